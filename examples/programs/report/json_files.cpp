// SPDX-License-Identifier: Apache-2.0
// Implements json_files.hpp: the class Reader, and the reading of the schema version and of the environment
// from a result file.
#include "report/json_files.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// Returns the value `value` of the key `key` in a result file's section "environment", as text. Equal GPUs
/// are counted: "8 x NVIDIA H200".
std::string words_of(std::string const& key, Json const& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (key.ends_with("_bytes") && value.is_number())
    return cli::fixed(value.get<double>() / 1073741824.0, 1) + " GiB";
  if (value.is_number_integer() && !value.is_number_unsigned())
    return std::to_string(value.get<std::int64_t>());
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number()) return cli::shortest(value.get<double>());
  cli::Names parts;
  if (value.is_array()) {
    if (key == "gpus") {
      std::vector<std::pair<std::string, int>> names;
      for (Json const& gpu : value) {
        std::string const name = gpu.is_object() && gpu.contains("name") && gpu["name"].is_string()
                                     ? gpu["name"].get<std::string>()
                                     : "GPU";
        if (!names.empty() && names.back().first == name)
          ++names.back().second;
        else
          names.emplace_back(name, 1);
      }
      for (auto const& [name, count] : names) parts.push_back(std::to_string(count) + " x " + name);
    } else {
      for (Json const& element : value)
        if (element.is_primitive() && !element.is_null()) parts.push_back(words_of({}, element));
    }
  } else if (value.is_object()) {
    for (auto const& entry : value.items())
      if (entry.value().is_primitive() && !entry.value().is_null())
        parts.push_back(entry.key() + " " + words_of(entry.key(), entry.value()));
  }
  return cli::joined(parts);
}

}  // namespace

void take_environment(Json const& environment, Source& source) {
  if (!environment.is_object()) return;
  for (auto const& entry : environment.items()) {
    if (entry.value().is_null()) continue;
    std::string words = words_of(entry.key(), entry.value());
    if (!words.empty()) source.environment.emplace_back(entry.key(), std::move(words));
  }
}

std::int64_t version_of(std::string const& name, Json const& object, int newest) {
  auto const found = object.find("schema_version");
  if (found == object.end() || !found->is_number_integer() || found->get<std::int64_t>() < 1)
    throw Error(ErrorKind::data, name + ": 'schema_version' is missing or not a version; " + kinds);
  std::int64_t const version = found->get<std::int64_t>();
  if (version > newest)
    throw Error(ErrorKind::data, name + ": has schema_version " + std::to_string(version) +
                                     ", but this program reads up to " + std::to_string(newest) +
                                     "; use a newer program");
  return version;
}

}  // namespace reporting
}  // namespace programs
