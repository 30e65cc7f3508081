// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a folder that holds all of a run's state, and a folder of such folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "tessera/checkpoint/async.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/config.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// Writes all state of a trainer as a new folder, which appears whole or not at all; all ranks call it
/// together and see the same file system. Waits for the steps under way. Each rank writes what it holds, a
/// chunk at a time; takes SaveStaging::bytes of host memory a rank, of the plan where
/// TrainerOptions::checkpoints says so. Throws Error(failed) with path and reason, on all ranks the same.
void save_checkpoint(AnyTrainer& trainer, std::filesystem::path const& folder,
                     CheckpointOptions const& options = {});

/// Replaces all state of a trainer by that of a checkpoint, which may come from another stage, world,
/// offload, precision or device: the next step is the one after the checkpoint's. All ranks call it together.
/// Reads every file once against its checksum. Throws Error(data) that names the file or tensor, on all ranks
/// the same; then the trainer may be half filled.
CheckpointInfo resume(AnyTrainer& trainer, std::filesystem::path const& folder);

/// A folder of checkpoints, one a step: `step-00000010`, and `latest`, a file that names the newest. One run
/// at a time may have it. Every rank may make one.
class Checkpoints {
 public:
  /// `keep`: how many stay, the newest; 0: all.
  explicit Checkpoints(std::filesystem::path folder, int keep = 0);

  std::filesystem::path path(std::int64_t step) const;
  /// The steps that have a checkpoint, rising. None where there is no such folder.
  std::vector<std::int64_t> steps() const;
  std::optional<std::int64_t> newest() const;

  /// Makes the folder, takes it for this object until it goes, and removes what saves and removals that were
  /// killed have left. One rank calls it. Throws Error(failed) when another run has the folder.
  void take();

  /// Saves the step that the trainer is at, then removes the oldest that are too many; all ranks together.
  /// Gives the folder.
  std::filesystem::path save(AnyTrainer& trainer, CheckpointOptions const& options = {}) const;
  /// The same beside the steps that follow; this object outlives the save. Waits for the one before.
  std::filesystem::path save(AnyTrainer& trainer, AsyncCheckpoint& beside,
                             CheckpointOptions const& options = {}) const;

 private:
  /// On rank 0, once a checkpoint has its name.
  void named(std::filesystem::path const& newest) const;
  /// One that is being removed has another name first: what has the name of a checkpoint is whole.
  void remove_old() const;

  std::filesystem::path folder_;
  int keep_;
  files::Descriptor taken_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/checkpoint_definitions.hpp"
#endif
