// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/model_folder.hpp. Needs nlohmann-json.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/hub_config.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/io/model_folder.hpp"
#include "tessera/io/model_weights.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Adds the values of `object` to `config`. A value in an inner object gets a dotted key: "outer.inner".
inline void add_values(HubConfig& config, nlohmann::ordered_json const& object, std::string const& prefix) {
  using Kind = HubValue::Kind;
  for (auto const& [key, value] : object.items()) {
    Kind const kind = value.is_null()      ? Kind::null
                      : value.is_boolean() ? Kind::boolean
                      : value.is_number()  ? Kind::number
                      : value.is_string()  ? Kind::text
                                           : Kind::other;
    double const number = kind == Kind::number    ? value.get<double>()
                          : kind == Kind::boolean ? static_cast<double>(value.get<bool>())
                                                  : 0.0;
    config.values[prefix + key] = {kind, value.dump(), number};
    if (value.is_object() && prefix.empty()) add_values(config, value, key + ".");
  }
}

}  // namespace detail

TESSERA_INLINE HubConfig parse_hub_config(std::string text, std::string name) {
  HubConfig config;
  config.name = std::move(name);
  config.source = std::move(text);
  detail::add_values(config, json_lines::parse_object(config.source, config.name), "");
  return config;
}

TESSERA_INLINE HubConfig read_hub_config(std::filesystem::path const& folder) {
  std::filesystem::path const path = folder / "config.json";
  std::string const name = files::path_text(path);
  constexpr std::size_t most = 1 << 20;
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    throw Error(ErrorKind::data, files::path_text(folder) + ": " +
                                     (std::filesystem::is_directory(folder, code)
                                          ? "the folder holds no config.json; name the folder of a model"
                                          : "no such folder; check the path"));
  files::FileReader const file(path, true);
  if (file.size() > most)
    throw Error(ErrorKind::data, name + ": holds " + std::to_string(file.size()) +
                                     " bytes, too many for a configuration; name the folder of a model");
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return parse_hub_config(std::move(text), name);
}

TESSERA_INLINE std::string hub_config_text(std::string const& source, HubEntries const& values) {
  using Json = nlohmann::ordered_json;
  Json json = source.empty() ? Json::object() : json_lines::parse_object(source, "config.json");
  for (auto const& [key, value] : values) {
    std::size_t const point = key.find('.');
    Json& holder = point == key.npos ? json : json[key.substr(0, point)];
    holder[point == key.npos ? key : key.substr(point + 1)] = Json::parse(value.json);
  }
  return json.dump(2) + "\n";
}

TESSERA_INLINE ModelFolderWriter::ModelFolderWriter(std::filesystem::path folder,
                                                    std::vector<UnitSpec> const& units,
                                                    std::string const& config)
    : folder_(std::move(folder)) {
  std::error_code code;
  fresh_ = !std::filesystem::exists(folder_, code);
  make_folder(folder_);
  weights_.emplace(folder_ / weights_name, units);
  config_.emplace(folder_ / config_name);
  config_->write(config);
}

TESSERA_INLINE ModelFolderWriter::~ModelFolderWriter() {
  weights_.reset();
  config_.reset();
  std::error_code code;
  if (fresh_) std::filesystem::remove(folder_, code);  // has no effect on a folder that is not empty
}

TESSERA_INLINE ParameterSink ModelFolderWriter::sink() { return weights_->sink(); }

TESSERA_INLINE void ModelFolderWriter::commit() {
  weights_->commit();
  config_->commit();
}

TESSERA_INLINE void ModelFolderWriter::check(std::filesystem::path const& folder) {
  check_writable_folder(folder);
  std::error_code code;
  if (!std::filesystem::exists(folder, code)) return;
  for (char const* file : {weights_name, config_name}) check_writable(folder / file);
  for (char const* other : {"model.safetensors.index.json", "pytorch_model.bin"})
    if (std::filesystem::exists(folder / other, code))
      throw Error(ErrorKind::failed, files::path_text(folder) + ": holds " + other +
                                         ", which are not the weights to write; give another folder");
}

}  // namespace v0
}  // namespace tessera
