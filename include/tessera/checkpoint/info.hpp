// SPDX-License-Identifier: Apache-2.0
// Reads the file trainer.json of a checkpoint, and verifies the other files against the checksums in
// trainer.json.
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

/// The contents of a checkpoint that are not state of the trainer.
struct CheckpointOptions {
  std::string config = {};   ///< the text of the model's config.json; empty: do not write the file
  std::string notes = "{}";  ///< the text of a JSON object; `resume` returns it
  /// The size in bytes at which a file of weights ends. The weights are divided into several files. The
  /// tensor that brings a file to this size is the last one in the file.
  std::int64_t part_bytes = 5'000'000'000;
};

/// The contents of a checkpoint's trainer.json.
struct CheckpointInfo {
  struct File {
    std::int64_t bytes = 0;
    std::string sum;  ///< the XXH3-128 of the file, 32 hexadecimal digits
  };

  std::filesystem::path folder;
  std::int64_t step = 0;              ///< number of attempted steps; skipped steps count
  StepState state;                    ///< the scalars that training keeps between steps
  std::string loss_scale;             ///< the kind of loss scale: "none", "static" or "dynamic"
  std::map<std::string, File> files;  ///< key: the file's path in the folder
  std::string notes;                  ///< the text of a JSON object: CheckpointOptions::notes
  std::string json;                   ///< the text of trainer.json without its checksum
};

/// Returns the contents of a checkpoint's trainer.json. Checks this file against the checksum in it, and
/// reads no other file. Throws Error(data) that names the file.
CheckpointInfo read_checkpoint(std::filesystem::path const& folder);

/// Checks files of a checkpoint against their sizes and checksums. Of the files in the order of their paths,
/// checks number `rank` and every `world`-th after it, so that `world` ranks check all files together. Rank 0
/// also refuses files of weights that trainer.json does not list. Calls `heartbeat` after each chunk of up to
/// 1 MiB. Throws Error(data) that names up to three files of each fault (missing, wrong size, damaged, extra)
/// and the number of further files with this fault.
void verify_checkpoint(CheckpointInfo const& info, int rank = 0, int world = 1,
                       detail::FunctionRef<void()> heartbeat = {});

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/checkpoint/info_definitions.hpp"
#endif
