// SPDX-License-Identifier: Apache-2.0
// Reads and writes models in folders with Hugging Face's layout. Such a folder contains a config.json and the
// weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/llmc_file.hpp"
#include "tessera/io/model_folder.hpp"
#include "tessera/io/weights_format.hpp"
#include "tessera/train/model_family.hpp"

#include "cli/values.hpp"
#include "text/tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// A model that the config.json of a folder describes.
struct FolderModel {
  ModelFamily const* family;
  ModelSpec sizes;
  std::string config;       ///< the text of the config.json
  std::string not_applied;  ///< a list of dropouts and other settings that are ignored here; empty: none
};

/// Returns the model that the config.json of a folder describes. Throws Error(data) if the folder has no
/// model, and Error(unsupported) if no model family of this build can represent the model.
inline FolderModel read_model_folder(std::filesystem::path const& folder) {
  std::error_code code;
  if (!std::filesystem::exists(folder / "config.json", code)) refuse_pickles_in(folder);
  HubConfig config = read_hub_config(folder);
  HubValue const* const type = config.find("model_type");
  if (type == nullptr || type->kind != HubValue::Kind::text)
    throw Error(ErrorKind::data,
                config.name + ": lacks model_type, the kind of model; name the folder of a model");
  Names known;
  for (ModelFamily const* family : model_families()) {
    if (family->hub.model_type.empty()) continue;
    known.push_back(family->hub.model_type);
    if (*type != HubValue(family->hub.model_type.c_str())) continue;
    ModelSpec sizes = family->spec(config);
    return {family, std::move(sizes), config.source, config.not_applied()};
  }
  throw Error(ErrorKind::unsupported, config.name + ": model_type is " + files::printable(type->json, 60) +
                                          "; the kinds that are supported here are " + joined(known));
}

/// Returns the model of a weights file of llm.c: GPT-2 with the sizes in the file's header. Throws
/// Error(data) for a file that is not a weights file. Throws Error(usage) for a weights file of another
/// format, which does not contain the sizes of its model.
inline FolderModel read_model_file(std::filesystem::path const& path) {
  if (weights_format(path) != WeightsFormat::llmc)
    refuse(files::path_text(path) +
           " is a file, but only files of llm.c contain the sizes of their model; name the model, and give "
           "the file to --init");
  LlmcFile::Sizes const has = LlmcFile::open(path).sizes();
  for (ModelFamily const* family : model_families()) {
    if (family->name != "gpt2") continue;
    ModelSpec sizes{.numbers = {}, .positions = has.positions, .vocabulary = has.vocabulary};
    for (auto const& [key, value] : {std::pair("layers", has.layers), std::pair("heads", has.heads),
                                     std::pair("channels", has.channels)})
      sizes.set(key, static_cast<double>(value));
    return {family, std::move(sizes), {}, {}};
  }
  throw Error(ErrorKind::unsupported,
              files::path_text(path) + ": belongs to GPT-2, which is not part of this build");
}

/// Returns whether a folder contains weights of any format, or parts of weights without their index file. If
/// `folder` is the path of a file, returns true, because a user can name a file as a model only if it
/// contains weights. For an empty path returns false.
inline bool holds_weights(std::filesystem::path const& folder) {
  if (folder.empty()) return false;
  std::error_code code;
  if (std::filesystem::is_regular_file(folder, code)) return true;
  std::filesystem::directory_iterator entry(folder, code);
  for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
    if (entry->path().extension() == ".pt" || entry->path().extension() == ".pth") return true;
    for (char const* start : {"model.", "model-", "pytorch_model", "tf_model", "flax_model", "consolidated."})
      if (entry->path().filename().native().starts_with(start)) return true;
  }
  if (code)
    throw Error(ErrorKind::data, files::path_text(folder) + ": cannot list the folder (" + code.message() +
                                     "); give a readable folder");
  return false;
}

/// Returns whether --save writes a folder at this path. This is so if the path does not end in .safetensors
/// and is not a device or a pipe.
inline bool is_model_folder(std::filesystem::path const& path) {
  std::error_code code;
  if (path.empty() || path.native().ends_with(".safetensors")) return false;
  auto const type = std::filesystem::status(path, code).type();
  if (type == std::filesystem::file_type::regular)
    refuse("--save '" + files::path_text(path) +
           "' is a file, but a name that does not end in .safetensors must be a folder; give another name");
  return type == std::filesystem::file_type::directory ||
         std::filesystem::symlink_status(path, code).type() == std::filesystem::file_type::not_found;
}

/// Returns the path of the weights file in `folder`. If the folder does not exist, returns a path of this
/// name in its nearest existing parent folder. The caller reads the free space of the disk that contains this
/// path.
inline std::filesystem::path weights_file_in(std::filesystem::path folder) {
  std::error_code code;
  while (!std::filesystem::exists(folder, code)) {
    if (folder.parent_path() == folder) break;
    folder = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path(".");
  }
  return folder / ModelFolderWriter::weights_name;
}

/// Writes trained weights to a file, or to a folder with a config.json and the files of a tokenizer.
class WeightsOutput {
 public:
  /// `config` is the text of the config.json. If it is empty, `path` is the path of a file, otherwise of a
  /// folder, to which `commit` copies the files `tokenizer` after it has written the weights.
  WeightsOutput(std::filesystem::path const& path, std::vector<UnitSpec> const& units,
                std::string const& config, std::vector<text::TokenizerFile> tokenizer = {})
      : path_(path), tokenizer_(std::move(tokenizer)) {
    if (config.empty())
      file_.emplace(path, units);
    else
      folder_.emplace(path, units, config);
  }
  ParameterSink sink() { return file_ ? file_->sink() : folder_->sink(); }
  void commit() {
    file_ ? file_->commit() : folder_->commit();
    for (text::TokenizerFile const& file : tokenizer_) {
      FileBytes const bytes = FileBytes::open(file.path);
      write_file(path_ / file.name, {reinterpret_cast<char const*>(bytes.data()), bytes.size()});
    }
  }

 private:
  std::filesystem::path path_;
  std::vector<text::TokenizerFile> tokenizer_;
  std::optional<WeightsWriter> file_;
  std::optional<ModelFolderWriter> folder_;
};

}  // namespace cli
}  // namespace programs
