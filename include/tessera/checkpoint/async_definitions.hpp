// SPDX-License-Identifier: Apache-2.0
// Defines the functions of checkpoint/async.hpp. Needs nlohmann-json and xxHash.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/checkpoint/async.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// The exception that ends the thread of an abandoned save.
struct SaveStopped {};

/// Sends a heartbeat, which shows other ranks that this rank is alive, and sleeps for 2 ms. A loop that waits
/// for another thread calls this function.
inline void pause(comm::Transport& transport) {
  transport.heartbeat();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace detail

TESSERA_INLINE AsyncCheckpoint::AsyncCheckpoint() = default;

TESSERA_INLINE AsyncCheckpoint::~AsyncCheckpoint() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

TESSERA_INLINE void AsyncCheckpoint::save(AnyTrainer& trainer, std::filesystem::path const& folder,
                                          CheckpointOptions const& options, std::function<void()> named) {
  wait();
  StateAccess& state = trainer.state();
  if (state.plan().shape.checkpoints != CheckpointMemory::snapshot)
    throw Error(ErrorKind::usage,
                "an asynchronous save needs memory for a copy of the state, which this trainer did not plan; "
                "construct the trainer with TrainerOptions::checkpoints = CheckpointMemory::snapshot");
  auto writer = std::make_unique<detail::CheckpointWriter>(state, folder, options);
  writer->begin(true);
  writer_ = std::move(writer);
  stop_ = false;
  state_ = State::writing;
  thread_ =
      std::thread([this, to = writer_.get(), named = std::move(named), cores = affinity::helper_cores()] {
        (void)affinity::bind_thread(cores);  // a new thread inherits the one core of its creator
        write(*to, named);
      });
}

TESSERA_INLINE void AsyncCheckpoint::wait() {
  if (!writer_) return;
  comm::Transport& transport = writer_->transport();
  // Each rank writes its part independently, so this rank first waits for its own part. Rank 0 renames the
  // folder only after all ranks have written their parts.
  while (state_.load() == State::writing) detail::pause(transport);
  auto const agree = [&](char const* what) {
    detail::together(transport, what, [&] {
      if (state_.load() == State::failed) std::rethrow_exception(error_);
    });
  };
  try {
    agree("part");
    while (busy()) detail::pause(transport);
    agree("name");
    end();
  } catch (PeerLost const&) {
    end();
    throw;  // does not remove files, because other ranks possibly still write them
  } catch (Error const&) {
    stop_ = true;  // ends rank 0's thread, which would wait for parts that never arrive
    thread_.join();
    transport.barrier({"checkpoint", "end"});
    writer_->remove();
    end();
    throw;
  }
}

TESSERA_INLINE bool AsyncCheckpoint::busy() const noexcept {
  State const now = state_.load();
  return now == State::writing || now == State::written;
}

TESSERA_INLINE bool AsyncCheckpoint::failed() const noexcept { return state_.load() == State::failed; }

TESSERA_INLINE void AsyncCheckpoint::write(detail::CheckpointWriter& to,
                                           std::function<void()> const& named) noexcept {
  try {
    to.write([this] {
      if (stop_.load()) throw detail::SaveStopped();
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

TESSERA_INLINE void AsyncCheckpoint::end() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  writer_.reset();
  state_ = State::none;
}

}  // namespace v0
}  // namespace tessera
