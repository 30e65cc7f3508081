// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while training steps run: copies the state, and then one thread per rank writes the copy.
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

/// Saves one rank's part of checkpoints while training steps run. At most one save runs at a time. The
/// trainer must be constructed with TrainerOptions::checkpoints = CheckpointMemory::snapshot, so that its
/// memory plan includes memory for the copy of the state. All ranks call `save` together, and `wait`
/// together. If a save fails, its files are removed, and the next call of `save` or `wait` throws the error
/// of the save. All ranks throw the same error.
class AsyncCheckpoint {
 public:
  AsyncCheckpoint();
  AsyncCheckpoint(AsyncCheckpoint const&) = delete;
  AsyncCheckpoint& operator=(AsyncCheckpoint const&) = delete;
  /// Abandons a running save. To complete the save, call `wait` first. The trainer of the last save must
  /// still exist.
  ~AsyncCheckpoint();

  /// Waits for the previous save and for running steps, starts to copy the state, and returns. Then a thread
  /// writes the files in `folder`, with the same bytes as save_checkpoint. When the folder has its final
  /// name, rank 0's thread calls `named`. Throws the errors of save_checkpoint that occur before this call
  /// returns.
  void save(AnyTrainer& trainer, std::filesystem::path const& folder, CheckpointOptions const& options = {},
            std::function<void()> named = {});

  /// Waits until no save is running.
  void wait();

  /// Whether this rank's thread still writes files or, on rank 0, still waits to rename the folder. Any
  /// thread may call `busy` and `failed`.
  bool busy() const noexcept;
  /// Whether the running save has failed on this rank. The program may then end the training at once. `wait`
  /// throws the error of the save.
  bool failed() const noexcept;

 private:
  enum class State { none, writing, written, done, failed };

  void write(detail::CheckpointWriter& to, std::function<void()> const& named) noexcept;
  void end();

  std::unique_ptr<detail::CheckpointWriter> writer_;  // for the running save; set on all ranks or none
  std::atomic<State> state_ = State::none;
  std::atomic<bool> stop_ = false;
  std::exception_ptr error_;  // the error of a failed save
  std::thread thread_;        // declared last, so it is destroyed first
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/async_definitions.hpp"
#endif
