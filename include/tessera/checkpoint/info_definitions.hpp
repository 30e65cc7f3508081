// SPDX-License-Identifier: Apache-2.0
// Defines the functions of checkpoint/info.hpp. Needs nlohmann-json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/files.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/io/safetensors_header.hpp"
#include "tessera/io/weights_format.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_INLINE CheckpointInfo read_checkpoint(std::filesystem::path const& folder) {
  CheckpointInfo info;
  info.folder = detail::without_slash(folder);
  std::filesystem::path const path = info.folder / detail::trainer_file;
  std::string const name = files::path_text(path);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    refuse_pickles_in(info.folder);
    throw Error(ErrorKind::data, name + ": no such file; name the folder of a checkpoint");
  }
  FileBytes const bytes = FileBytes::open(path);
  using Json = nlohmann::ordered_json;
  Json json = json_lines::parse_object({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, name);
  auto const read = [&](Json const& object, char const* key, auto& value) {
    auto const found = object.find(key);
    if (found == object.end())
      throw Error(ErrorKind::data, name + ": has no " + key +
                                       "; read it with the version of the library that wrote the checkpoint");
    try {
      found->get_to(value);
    } catch (Json::exception const&) {
      throw Error(
          ErrorKind::data,
          name + ": " + key + " is " + files::printable(found->dump(), 60) +
              ", which is not valid; read it with the version of the library that wrote the checkpoint");
    }
  };
  int schema = 0;
  read(json, "schema_version", schema);
  if (schema != detail::checkpoint_schema)
    throw Error(ErrorKind::data, name + ": has schema_version " + std::to_string(schema) +
                                     ", but this library reads " + std::to_string(detail::checkpoint_schema) +
                                     "; read it with the version of the library that wrote it");
  std::string sum;
  read(json, "checksum", sum);
  json.erase("checksum");
  info.json = json.dump();
  if (hash_of(info.json) != sum)
    throw Error(ErrorKind::data, name + ": does not match its checksum; the file is damaged");
  // The keys "adapters" and "batch" are optional. Other code reads their values later, so this code only
  // checks their types.
  if (json.contains("adapters")) {
    std::map<std::string, double> scales;
    read(json, "adapters", scales);
  }
  if (json.contains("batch")) {
    std::int64_t batch = 0;
    read(json, "batch", batch);
  }
  Json state, recipe, files, noted;
  read(json, "state", state);
  read(json, "step", info.step);
  read(state, "attempted", info.state.attempted);
  read(state, "applied", info.state.applied);
  read(state, "beta1_power", info.state.beta1_power);
  read(state, "beta2_power", info.state.beta2_power);
  read(state, "loss_scale", info.state.loss_scale);
  read(state, "good_steps", info.state.good_steps);
  read(state, "forgiven", info.state.forgiven);
  read(state, "skips_in_row", info.state.skips_in_row);
  read(json, "recipe", recipe);
  read(recipe, "loss_scale", info.loss_scale);
  std::map<std::string, Json> notes;
  read(json, "notes", notes);
  read(json, "notes", noted);
  info.notes = noted.dump();
  read(json, "files", files);
  for (auto const& [file, about] : files.items()) {
    read(about, "bytes", info.files[file].bytes);
    read(about, "xxh3", info.files[file].sum);
  }
  return info;
}

TESSERA_INLINE void verify_checkpoint(CheckpointInfo const& info, int rank, int world,
                                      detail::FunctionRef<void()> heartbeat) {
  std::vector<std::string> missing, resized, damaged, extra;
  std::error_code code;
  int number = 0;
  for (auto const& [file, about] : info.files) {
    if (number++ % world != rank) continue;
    std::filesystem::path const path = info.folder / file;
    if (!std::filesystem::is_regular_file(path, code)) {
      missing.push_back(file);
    } else if (auto const bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, code));
               bytes != about.bytes) {
      resized.push_back(file + " holds " + files::with_commas(bytes) + " bytes instead of " +
                        files::with_commas(about.bytes));
    } else if (hash_of_file(path.string(), heartbeat) != about.sum) {
      damaged.push_back(file);
    }
  }
  // Extra files of weights are refused, because other programs would load them. Other extra files are
  // ignored.
  if (rank == 0)
    for (std::string const inside : {"", detail::model_folder}) {
      std::filesystem::directory_iterator entry(info.folder / inside, code);
      for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
        std::string const file = (inside.empty() ? "" : inside + "/") + entry->path().filename().string();
        if ((file.ends_with(".safetensors") || file.ends_with(".index.json")) && !info.files.contains(file))
          extra.push_back(files::printable(file));
      }
    }
  std::string text;
  detail::append_names(text, "missing:", missing);
  detail::append_names(text, "wrong size:", resized);
  detail::append_names(text, "damaged (wrong checksum):", damaged);
  detail::append_names(text, "not part of this checkpoint:", extra);
  if (!text.empty())
    throw Error(ErrorKind::data, files::path_text(info.folder) + ": is incomplete or damaged: " + text +
                                     "restore it, or move the folder away to resume from an earlier one");
}

}  // namespace v0
}  // namespace tessera
