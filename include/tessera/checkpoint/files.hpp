// SPDX-License-Identifier: Apache-2.0
// Defines the names of the files in the folder of a checkpoint.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {
inline namespace v0 {
namespace detail {

inline constexpr char trainer_file[] = "trainer.json", model_folder[] = "model",
                      adapters_file[] = "adapters.safetensors";
/// The version of the checkpoint format. trainer.json stores it as schema_version.
inline constexpr int checkpoint_schema = 1;

/// Returns the name of a rank's file of optimizer state, such as "optimizer-0-of-4.safetensors".
inline std::string optimizer_file(int rank, int world) {
  return "optimizer-" + std::to_string(rank) + "-of-" + std::to_string(world) + ".safetensors";
}

/// Returns the path of a folder without a slash at its end.
inline std::filesystem::path without_slash(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
