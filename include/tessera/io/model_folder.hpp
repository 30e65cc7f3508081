// SPDX-License-Identifier: Apache-2.0
// Reads and writes a model's folder in the layout of Hugging Face: config.json and model.safetensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/hub_config.hpp"
#include "tessera/io/model_weights.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the values of a config.json, given its text. `name` is the path of the file, for messages. Throws
/// Error(data) if the text is not a JSON object or has a key twice.
HubConfig parse_hub_config(std::string text, std::string name);

/// Returns the values of the config.json in `folder`. Throws Error(data) if there is none or it is invalid.
HubConfig read_hub_config(std::filesystem::path const& folder);

/// Returns the text of a config.json with the entries of `source` and the entries `values`. `source` is the
/// text of another config.json or an empty string. If a key is in `source` and in `values`, the entry of
/// `values` counts. A key "a.b" of `values` means key b in the object of key a.
std::string hub_config_text(std::string const& source, HubEntries const& values);

/// Writes a folder that the library transformers of Hugging Face can read, and programs of Tessera with the
/// flag `--model`. The folder holds model.safetensors, as WeightsWriter writes it, and config.json. Creates
/// the folder if it does not exist, and keeps other files in it. Each of the two files appears completely or
/// not at all, the weights first. Throws Error(failed) with path and reason.
class ModelFolderWriter {
 public:
  ModelFolderWriter(std::filesystem::path folder, std::vector<UnitSpec> const& units,
                    std::string const& config);
  ModelFolderWriter(ModelFolderWriter const&) = delete;
  ~ModelFolderWriter();

  ParameterSink sink();
  void commit();

  /// Throws Error(failed) if the folder cannot be written now. Creates nothing.
  static void check(std::filesystem::path const& folder);

  static constexpr char weights_name[] = "model.safetensors", config_name[] = "config.json";

 private:
  std::filesystem::path folder_;
  bool fresh_ = false;
  std::optional<WeightsWriter> weights_;
  std::optional<AtomicFile> config_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/model_folder_definitions.hpp"
#endif
