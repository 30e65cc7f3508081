// SPDX-License-Identifier: Apache-2.0
// A model's folder as Hugging Face keeps it: config.json, and model.safetensors beside it. Needs
// nlohmann-json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/hub_config.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/io/model_weights.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Parses a JSON object. NaN and Infinity become null, and half a surrogate pair U+FFFD. Throws Error(data),
/// which names the file, if a key occurs twice: Python takes the last, and who wrote it may have meant
/// another.
inline nlohmann::ordered_json parse_object(std::string_view bytes, std::string const& name) {
  std::string text = with_null_for_nan(bytes);
  if (text.find("\\ud") != text.npos || text.find("\\uD") != text.npos) text = with_whole_pairs(text);
  auto const fail = [&](std::string const& what) { throw Error(ErrorKind::data, name + ": " + what); };
  using Json = nlohmann::ordered_json;
  std::vector<std::set<std::string>> keys;
  auto const watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 64) fail("is nested too deeply for a file of settings");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail("has the key " + printable(parsed.get<std::string>()) + " twice; keep one of them");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (nlohmann::json::exception const& error) {
    std::string_view what = error.what();
    if (std::size_t const end_of_id = what.find("] "); end_of_id != what.npos)
      what.remove_prefix(end_of_id + 2);
    fail("is no JSON: " + printable(what) + "; the file is damaged, copy it again");
  }
  if (!json.is_object()) fail("is no JSON object; name the folder of a model");
  return json;
}

/// The values of an object, those of objects within it behind a point.
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

/// Parses the text of a config.json; `name` is its path, for messages. Throws Error(data) for what is no JSON
/// object, and for a key that stands twice.
inline HubConfig parse_hub_config(std::string text, std::string name) {
  HubConfig config;
  config.name = std::move(name);
  config.source = std::move(text);
  detail::add_values(config, detail::parse_object(config.source, config.name), "");
  return config;
}

/// Reads the config.json of a folder.
inline HubConfig read_hub_config(std::filesystem::path const& folder) {
  std::filesystem::path const path = folder / "config.json";
  std::string const name = detail::path_text(path);
  constexpr std::size_t most = 1 << 20;
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    throw Error(ErrorKind::data, detail::path_text(folder) + ": " +
                                     (std::filesystem::is_directory(folder, code)
                                          ? "the folder holds no config.json; name the folder of a model"
                                          : "no such folder; check the path"));
  detail::FileReader const file(path, true);
  if (file.size() > most)
    throw Error(ErrorKind::data, name + ": holds " + std::to_string(file.size()) +
                                     " bytes, too many for a configuration; name the folder of a model");
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return parse_hub_config(std::move(text), name);
}

/// The text of a config.json: that of `source` (empty: none) with these values instead of its own. A point in
/// a key leads into an object.
inline std::string hub_config_text(std::string const& source, HubEntries const& values) {
  using Json = nlohmann::ordered_json;
  Json json = source.empty() ? Json::object() : detail::parse_object(source, "config.json");
  for (auto const& [key, value] : values) {
    std::size_t const point = key.find('.');
    Json& holder = point == key.npos ? json : json[key.substr(0, point)];
    holder[point == key.npos ? key : key.substr(point + 1)] = Json::parse(value.json);
  }
  return json.dump(2) + "\n";
}

/// Writes a folder that transformers and `--model` read: model.safetensors as WeightsWriter does, and
/// config.json. The folder is made if it is not there; what else it holds stays. Each file appears whole or
/// not at all, the weights first. Throws Error(failed) with path and reason.
class ModelFolderWriter {
 public:
  ModelFolderWriter(std::filesystem::path folder, std::vector<UnitSpec> const& units,
                    std::string const& config)
      : folder_(std::move(folder)) {
    std::error_code code;
    fresh_ = !std::filesystem::exists(folder_, code);
    make_folder(folder_);
    weights_.emplace(folder_ / weights_name, units);
    config_.emplace(folder_ / config_name);
    config_->write(config);
  }
  ModelFolderWriter(ModelFolderWriter const&) = delete;
  ~ModelFolderWriter() {
    weights_.reset();
    config_.reset();
    std::error_code code;
    if (fresh_) std::filesystem::remove(folder_, code);  // only when it is empty
  }

  ParameterSink sink() { return weights_->sink(); }
  void commit() {
    weights_->commit();
    config_->commit();
  }

  /// Throws Error(failed) unless such a folder can be written there now. Creates nothing.
  static void check(std::filesystem::path const& folder) {
    check_writable_folder(folder);
    std::error_code code;
    if (!std::filesystem::exists(folder, code)) return;
    for (char const* file : {weights_name, config_name}) check_writable(folder / file);
    for (char const* other : {"model.safetensors.index.json", "pytorch_model.bin"})
      if (std::filesystem::exists(folder / other, code))
        throw Error(ErrorKind::failed, detail::path_text(folder) + ": holds " + other +
                                           ", other weights than would be written; give another folder");
  }

  static constexpr char weights_name[] = "model.safetensors", config_name[] = "config.json";

 private:
  std::filesystem::path folder_;
  bool fresh_ = false;
  std::optional<WeightsWriter> weights_;
  std::optional<AtomicFile> config_;
};

}  // namespace v0
}  // namespace tessera
