// SPDX-License-Identifier: Apache-2.0
// Saving beside steps: a copy of the state, and a thread a rank that writes it. Needs nlohmann-json and
// xxHash.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/checkpoint_info.hpp"
#include "tessera/train/checkpoint_writer.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// The state of a trainer.
inline StateAccess& state_of(AnyTrainer& trainer) { return trainer.state(); }
template <class M, class Recipe>
StateAccess& state_of(BasicTrainer<M, Recipe>& trainer) {
  return trainer.engine().state();
}

}  // namespace detail

/// One rank's save beside steps; one at most is under way. The trainer's plan has the copy that is written
/// (CheckpointMemory::snapshot). `save` and `wait` are called by all ranks together. An error of a save is
/// thrown by the next of these two, on all ranks the same; then nothing of it is left.
class AsyncCheckpoint {
 public:
  AsyncCheckpoint() = default;
  AsyncCheckpoint(AsyncCheckpoint const&) = delete;
  AsyncCheckpoint& operator=(AsyncCheckpoint const&) = delete;
  /// Gives up what is under way: call `wait` first. The trainer of the last save is still there.
  ~AsyncCheckpoint() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Waits for the save before and for the steps under way, begins to copy the state, and returns: a thread
  /// writes `folder` as save_checkpoint would, to the byte. `named` is called on that of rank 0 when the
  /// folder has its name. Throws what save_checkpoint throws, as far as it is known by now.
  template <class AnyKindOfTrainer>
  void save(AnyKindOfTrainer& trainer, std::filesystem::path const& folder,
            CheckpointOptions const& options = {}, std::function<void()> named = {}) {
    wait();
    begin(detail::state_of(trainer), folder, options, std::move(named));
  }

  /// Returns when no save is under way.
  void wait() {
    if (!writer_) return;
    comm::Transport& transport = writer_->transport();
    // A rank's own part needs no other rank; the name needs all parts.
    while (state_.load() == State::writing) pause(transport);
    auto const agree = [&](char const* what) {
      detail::together(transport, what, [&] {
        if (state_.load() == State::failed) std::rethrow_exception(error_);
      });
    };
    try {
      agree("part");
      while (busy()) pause(transport);
      agree("name");
      end();
    } catch (PeerLost const&) {
      end();
      throw;  // who is left may still be writing
    } catch (Error const&) {
      stop_ = true;  // rank 0 waits for parts that do not come
      thread_.join();
      transport.barrier({"checkpoint", "end"});
      writer_->remove();
      end();
      throw;
    }
  }

  /// Whether this rank still writes, or gives the name. For any thread, as the next.
  bool busy() const noexcept {
    State const now = state_.load();
    return now == State::writing || now == State::written;
  }
  /// Whether the save under way has failed on this rank: a run may stop at once, and `wait` says why.
  bool failed() const noexcept { return state_.load() == State::failed; }

 private:
  enum class State { none, writing, written, done, failed };
  struct Stopped {};

  void begin(StateAccess& state, std::filesystem::path const& folder, CheckpointOptions const& options,
             std::function<void()> named) {
    if (state.plan().shape.checkpoints != CheckpointMemory::snapshot)
      throw Error(
          ErrorKind::usage,
          "a save beside steps needs a copy of the state, which this trainer has not planned; make it "
          "with TrainerOptions::checkpoints = CheckpointMemory::snapshot");
    auto writer = std::make_unique<detail::CheckpointWriter>(state, folder, options);
    writer->begin(true);
    writer_ = std::move(writer);
    stop_ = false;
    state_ = State::writing;
    thread_ = std::thread([this, to = writer_.get(), named = std::move(named)] { write(*to, named); });
  }

  void write(detail::CheckpointWriter& to, std::function<void()> const& named) noexcept {
    try {
      to.write([this] {
        if (stop_.load()) throw Stopped();
      });
      state_ = to.is_root() ? State::written : State::done;
      if (!to.is_root()) return;
      to.name();
      if (named) named();
      state_ = State::done;
    } catch (...) {
      error_ = std::current_exception();
      state_ = State::failed;
    }
  }

  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    writer_.reset();
    state_ = State::none;
  }
  static void pause(comm::Transport& transport) {
    transport.heartbeat();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  std::unique_ptr<detail::CheckpointWriter> writer_;  // of the save under way, the same on all ranks
  std::atomic<State> state_ = State::none;
  std::atomic<bool> stop_ = false;
  std::exception_ptr error_;  // once it has failed
  std::thread thread_;        // ends first
};

}  // namespace v0
}  // namespace tessera
