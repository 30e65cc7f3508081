// SPDX-License-Identifier: Apache-2.0
// Defines the names of the files in a checkpoint's folder.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {
inline namespace v0 {
namespace detail {

inline constexpr char trainer_file[] = "trainer.json", model_folder[] = "model",
                      adapters_file[] = "adapters.safetensors";
/// The version of the folder's contents, in trainer.json.
inline constexpr int checkpoint_schema = 1;

/// Returns a name such as "optimizer-0-of-4.safetensors".
inline std::string optimizer_file(int rank, int world) {
  return "optimizer-" + std::to_string(rank) + "-of-" + std::to_string(world) + ".safetensors";
}

/// Returns a folder's path without a slash at its end.
inline std::filesystem::path without_slash(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
