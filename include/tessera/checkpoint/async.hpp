// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while steps run: copies the state, and writes the copy in one thread per rank.
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

/// Saves one rank's part while steps run, at most one save at a time. The trainer's plan must include memory
/// for the copy of the state (CheckpointMemory::snapshot). All ranks call `save` and `wait` together. The
/// next of these calls throws the error of a failed save, the same on all ranks, after the save's files are
/// removed.
class AsyncCheckpoint {
 public:
  AsyncCheckpoint();
  AsyncCheckpoint(AsyncCheckpoint const&) = delete;
  AsyncCheckpoint& operator=(AsyncCheckpoint const&) = delete;
  /// Abandons a running save; call `wait` first to complete it. The trainer of the last save must still
  /// exist.
  ~AsyncCheckpoint();

  /// Waits for the previous save and for running steps, starts to copy the state, and returns. A thread then
  /// writes `folder`, byte for byte as save_checkpoint would. Rank 0's thread calls `named` once the folder
  /// has its final name. Throws the errors of save_checkpoint that are known by then.
  void save(AnyTrainer& trainer, std::filesystem::path const& folder, CheckpointOptions const& options = {},
            std::function<void()> named = {});

  /// Waits until no save is running.
  void wait();

  /// Whether this rank is still writing its files or renaming the folder. Any thread may call `busy` and
  /// `failed`.
  bool busy() const noexcept;
  /// Whether the running save has failed on this rank. The training may then end at once.
  /// `wait` throws the reason.
  bool failed() const noexcept;

 private:
  enum class State { none, writing, written, done, failed };

  void write(detail::CheckpointWriter& to, std::function<void()> const& named) noexcept;
  void end();

  std::unique_ptr<detail::CheckpointWriter> writer_;  // of the running save; set on all ranks or on none
  std::atomic<State> state_ = State::none;
  std::atomic<bool> stop_ = false;
  std::exception_ptr error_;  // set once the save has failed
  std::thread thread_;        // destroyed first
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/async_definitions.hpp"
#endif
