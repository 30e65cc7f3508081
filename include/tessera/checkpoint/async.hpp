// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while steps run: copies the state, and a thread per rank writes the copy.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "tessera/checkpoint/info.hpp"
#include "tessera/config.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {
class CheckpointWriter;
}  // namespace detail

/// One rank's save beside steps; one at most is under way. The trainer's plan has the copy that is written
/// (CheckpointMemory::snapshot). `save` and `wait` are called by all ranks together. An error of a save is
/// thrown by the next of these two, on all ranks the same; then nothing of it is left.
class AsyncCheckpoint {
 public:
  AsyncCheckpoint();
  AsyncCheckpoint(AsyncCheckpoint const&) = delete;
  AsyncCheckpoint& operator=(AsyncCheckpoint const&) = delete;
  /// Gives up what is under way: call `wait` first. The trainer of the last save is still there.
  ~AsyncCheckpoint();

  /// Waits for the save before and for the steps under way, begins to copy the state, and returns: a thread
  /// writes `folder` as save_checkpoint would, to the byte. `named` is called on that of rank 0 when the
  /// folder has its name. Throws what save_checkpoint throws, as far as it is known by now.
  void save(AnyTrainer& trainer, std::filesystem::path const& folder, CheckpointOptions const& options = {},
            std::function<void()> named = {});

  /// Returns when no save is under way.
  void wait();

  /// Whether this rank still writes, or gives the name. For any thread, as the next.
  bool busy() const noexcept;
  /// Whether the save under way has failed on this rank: a run may stop at once, and `wait` says why.
  bool failed() const noexcept;

 private:
  enum class State { none, writing, written, done, failed };

  void write(detail::CheckpointWriter& to, std::function<void()> const& named) noexcept;
  void end();

  std::unique_ptr<detail::CheckpointWriter> writer_;  // of the save under way, the same on all ranks
  std::atomic<State> state_ = State::none;
  std::atomic<bool> stop_ = false;
  std::exception_ptr error_;  // once it has failed
  std::thread thread_;        // ends first
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/async_definitions.hpp"
#endif
