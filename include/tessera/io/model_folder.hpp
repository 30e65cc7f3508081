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

/// Parses the text of a config.json; `name` is its path, for messages. Throws Error(data) if it is not a JSON
/// object or has a key twice.
HubConfig parse_hub_config(std::string text, std::string name);

/// Reads the config.json of a folder.
HubConfig read_hub_config(std::filesystem::path const& folder);

/// Returns the text of a config.json: `source` (may be empty), with these values replacing its own. A key
/// "a.b" means key b in the object of key a.
std::string hub_config_text(std::string const& source, HubEntries const& values);

/// Writes a folder that Hugging Face transformers and the flag `--model` can read: model.safetensors, as
/// WeightsWriter writes it, and config.json. Creates the folder if it does not exist; other files in it stay.
/// Each file appears whole or not at all, the weights first. Throws Error(failed) with path and reason.
class ModelFolderWriter {
 public:
  ModelFolderWriter(std::filesystem::path folder, std::vector<UnitSpec> const& units,
                    std::string const& config);
  ModelFolderWriter(ModelFolderWriter const&) = delete;
  ~ModelFolderWriter();

  ParameterSink sink();
  void commit();

  /// Throws Error(failed) unless the folder can be written now. Creates nothing.
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
