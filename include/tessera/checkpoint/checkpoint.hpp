// SPDX-License-Identifier: Apache-2.0
// Saves and loads checkpoints. A checkpoint is a folder with all state of a run.
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

/// Writes all state of a trainer to a new folder, which appears complete or not at all. All ranks call it
/// together and must see the same file system. Waits for running steps. Each rank writes the state that it
/// holds, one chunk at a time. Needs SaveStaging::bytes of host memory per rank, which are part of the plan
/// if TrainerOptions::checkpoints requests it. Throws Error(failed) with path and reason, the same on all
/// ranks.
void save_checkpoint(AnyTrainer& trainer, std::filesystem::path const& folder,
                     CheckpointOptions const& options = {});

/// Replaces all state of a trainer with a checkpoint's. The checkpoint may come from another ZeRO stage,
/// number of ranks, offload, precision or device. The next step follows the checkpoint's step. All ranks call
/// it together. Checks every file once against its checksum. Throws Error(data) that names the file or
/// tensor, the same on all ranks; the trainer may then be partly filled.
CheckpointInfo resume(AnyTrainer& trainer, std::filesystem::path const& folder);

/// A folder of checkpoints, one per step: `step-00000010`, and `latest`, a file that names the newest. Only
/// one run at a time may use it. Every rank may construct one.
class Checkpoints {
 public:
  /// `keep`: the number of newest checkpoints that stay; 0: all.
  explicit Checkpoints(std::filesystem::path folder, int keep = 0);

  std::filesystem::path path(std::int64_t step) const;
  /// Returns the steps that have a checkpoint, in ascending order. Empty if the folder does not exist.
  std::vector<std::int64_t> steps() const;
  std::optional<std::int64_t> newest() const;

  /// Creates the folder, locks it for the lifetime of this object, and removes what killed saves and removals
  /// have left. Only one rank calls it. Throws Error(failed) if another run has locked the folder.
  void lock();

  /// Saves the trainer's current step, then removes the oldest checkpoints beyond `keep`. All ranks call it
  /// together. Returns the checkpoint's folder.
  std::filesystem::path save(AnyTrainer& trainer, CheckpointOptions const& options = {}) const;
  /// Same, but saves while the next steps run. Waits for the previous save. This object must outlive the
  /// save.
  std::filesystem::path save(AnyTrainer& trainer, AsyncCheckpoint& async,
                             CheckpointOptions const& options = {}) const;

 private:
  /// Updates `latest` and removes old checkpoints. Called on rank 0 when a checkpoint's folder has its final
  /// name.
  void named(std::filesystem::path const& newest) const;
  /// Renames a checkpoint before removing it, so that a folder with the name of a checkpoint is always
  /// complete.
  void remove_old() const;

  std::filesystem::path folder_;
  int keep_;
  files::Descriptor lock_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/checkpoint_definitions.hpp"
#endif
