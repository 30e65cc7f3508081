// SPDX-License-Identifier: Apache-2.0
// Saves and loads checkpoints. A checkpoint is a folder with all state of a training run.
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

/// Writes all state of a trainer to a new folder, which appears complete or not at all. All ranks call this
/// function together and must see the same file system. Waits for running steps. Each rank writes the state
/// that it holds, one chunk at a time. Needs SaveStaging::bytes of host memory per rank. The trainer's memory
/// plan includes this memory if TrainerOptions::checkpoints requests it. If the save fails, all ranks throw
/// the same Error(failed), with path and reason.
void save_checkpoint(AnyTrainer& trainer, std::filesystem::path const& folder,
                     CheckpointOptions const& options = {});

/// Replaces all state of a trainer with the state in a checkpoint, and returns the contents of its
/// trainer.json. The run that saved the checkpoint may have another ZeRO stage, number of ranks, offload,
/// precision or device than this trainer. The next training step has the number after the checkpoint's step.
/// All ranks call this function together. Checks every file once against its checksum. If the load fails, all
/// ranks throw the same Error(data), which names the file or the tensor. After an error the state of the
/// trainer is possibly partly replaced.
CheckpointInfo resume(AnyTrainer& trainer, std::filesystem::path const& folder);

/// Manages a folder of checkpoints, one per saved step. The checkpoint of step 10 is the folder
/// `step-00000010`. The file `latest` contains the name of the newest checkpoint. Only one run at a time may
/// use the folder. Every rank may construct this object.
class Checkpoints {
 public:
  /// `keep` is the number of newest checkpoints that are not removed. 0 keeps all checkpoints.
  explicit Checkpoints(std::filesystem::path folder, int keep = 0);

  std::filesystem::path path(std::int64_t step) const;
  /// Returns the steps that have a checkpoint, in ascending order. The list is empty if the folder does not
  /// exist.
  std::vector<std::int64_t> steps() const;
  std::optional<std::int64_t> newest() const;

  /// Creates the folder and locks it for the lifetime of this object. Removes the folders that killed
  /// processes left: incomplete checkpoints, and old checkpoints that were only partly removed. Only one rank
  /// may call it. Throws Error(failed) if another run has locked the folder.
  void lock();

  /// Saves a checkpoint of the trainer's current step, then removes the oldest checkpoints so that `keep`
  /// remain. All ranks call it together. Returns the folder of the new checkpoint.
  std::filesystem::path save(AnyTrainer& trainer, CheckpointOptions const& options = {}) const;
  /// Starts to save a checkpoint of the trainer's current step with `async` and returns, so the next steps
  /// can run during the save. First waits for the previous save of `async`. This object must exist until the
  /// save ends.
  std::filesystem::path save(AnyTrainer& trainer, AsyncCheckpoint& async,
                             CheckpointOptions const& options = {}) const;

 private:
  /// Writes the name of the newest checkpoint to `latest` and removes old checkpoints. Called on rank 0 when
  /// the folder `newest` has its final name.
  void named(std::filesystem::path const& newest) const;
  /// Removes the oldest checkpoints so that `keep_` remain. Each one is renamed first, so a folder with the
  /// name of a checkpoint is always complete.
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
