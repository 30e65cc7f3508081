// SPDX-License-Identifier: Apache-2.0
// Reads trainer.json of a checkpoint, and verifies the files of the checkpoint against its checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tessera/config.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/optim/step_state.hpp"

namespace tessera {
inline namespace v0 {

/// The contents of a checkpoint in addition to the trainer's state.
struct CheckpointOptions {
  std::string config = {};   ///< the text of the model's config.json; empty: the folder has none
  std::string notes = "{}";  ///< the text of a JSON object, which `resume` returns
  std::int64_t part_bytes = 5'000'000'000;  ///< a file of weights ends with the tensor that reaches this size
};

/// The contents of trainer.json.
struct CheckpointInfo {
  struct File {
    std::int64_t bytes = 0;
    std::string sum;  ///< XXH3-128
  };

  std::filesystem::path folder;
  std::int64_t step = 0;              ///< the last step that was begun; includes skipped steps
  StepState state;                    ///< the scalars that outlive a step
  std::string loss_scale;             ///< the kind of loss scale: "none", "static" or "dynamic"
  std::map<std::string, File> files;  ///< by path in the folder
  std::string notes;                  ///< the text of a JSON object: CheckpointOptions::notes
  std::string json;                   ///< the whole text except its checksum
};

/// Reads trainer.json of a checkpoint and checks it against its checksum. Does not touch the other files.
/// Throws Error(data) that names the file.
CheckpointInfo read_checkpoint(std::filesystem::path const& folder);

/// Checks files of a checkpoint against their sizes and checksums: every `world`-th one, starting with number
/// `rank`. Calls `heartbeat` after each chunk of up to 1 MiB. Throws Error(data) that lists all missing,
/// damaged and extra files.
void verify_checkpoint(CheckpointInfo const& info, int rank = 0, int world = 1,
                       detail::FunctionRef<void()> heartbeat = {});

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/info_definitions.hpp"
#endif
