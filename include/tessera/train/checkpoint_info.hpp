// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of itself: trainer.json, its checksum and that of every file beside it. Needs
// nlohmann-json and xxHash.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/model_folder.hpp"
#include "tessera/io/weights_format.hpp"
#include "tessera/optim/step_state.hpp"

namespace tessera {
inline namespace v0 {

/// What goes into a checkpoint besides the trainer's state.
struct CheckpointOptions {
  std::string config = {};  ///< the text of the model's config.json; empty: the folder has none
  nlohmann::ordered_json notes = nlohmann::ordered_json::object();  ///< what `resume` hands back
  std::int64_t part_bytes = 5'000'000'000;  ///< a file of weights ends with the tensor that reaches it
};

/// What trainer.json says.
struct CheckpointInfo {
  struct File {
    std::int64_t bytes = 0;
    std::string sum;  ///< XXH3-128
  };

  std::filesystem::path folder;
  std::int64_t step = 0;              ///< the last that was begun; skipped ones count
  StepState state;                    ///< the scalars that outlive a step
  std::string loss_scale;             ///< its kind: "none", "static" or "dynamic"
  std::map<std::string, File> files;  ///< by their paths in the folder
  nlohmann::ordered_json notes;
  nlohmann::ordered_json json;  ///< all of it
};

namespace detail {

inline constexpr char trainer_file[] = "trainer.json", model_folder[] = "model";
inline constexpr int checkpoint_schema = 1;

/// A folder's path without a slash at its end.
inline std::filesystem::path without_slash(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

/// Runs a rank's part of what all ranks do; when it failed on some, all throw the error of the first. The
/// part itself meets no other rank.
inline void together(comm::Transport& transport, char const* what, FunctionRef<void()> part) {
  struct Outcome {
    std::int32_t failed = 0;
    ErrorKind kind = ErrorKind::failed;
    char text[4088] = {};
  };
  Outcome own;
  auto const fail = [&](ErrorKind kind, char const* text) {
    own.failed = 1;
    own.kind = kind;
    std::snprintf(own.text, sizeof own.text, "%s", text);
  };
  try {
    part();
  } catch (PeerLost const&) {
    throw;
  } catch (Error const& error) {
    fail(error.kind(), error.what());
  } catch (std::exception const& error) {
    fail(ErrorKind::failed, error.what());
  }
  std::vector<Outcome> all(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&own, all.data(), sizeof own, {"checkpoint", what});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].failed) throw Error(all[rank].kind, all[rank].text, static_cast<int>(rank));
}

/// The text of trainer.json: the object with the checksum of itself. Bytes of paths that are no UTF-8 become
/// U+FFFD.
inline std::string with_checksum(nlohmann::ordered_json json) {
  constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
  json["checksum"] = hash_of(json.dump(-1, ' ', false, replace));
  return json.dump(2, ' ', false, replace) + "\n";
}

}  // namespace detail

/// Reads trainer.json of a checkpoint and checks it against its checksum; the other files are not touched.
/// Throws Error(data) that names it.
inline CheckpointInfo read_checkpoint(std::filesystem::path const& folder) {
  CheckpointInfo info;
  info.folder = detail::without_slash(folder);
  std::filesystem::path const path = info.folder / detail::trainer_file;
  std::string const name = detail::path_text(path);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    refuse_pickles_in(info.folder);
    throw Error(ErrorKind::data, name + ": no such file; name the folder of a checkpoint");
  }
  FileBytes const bytes = FileBytes::open(path);
  info.json = detail::parse_object({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, name);
  using Json = nlohmann::ordered_json;
  auto const read = [&](Json const& object, char const* key, auto& value) {
    auto const found = object.find(key);
    if (found == object.end())
      throw Error(ErrorKind::data, name + ": lacks " + key + "; use the library that wrote the checkpoint");
    try {
      found->get_to(value);
    } catch (Json::exception const&) {
      throw Error(ErrorKind::data, name + ": " + key + " is " + detail::printable(found->dump(), 60) +
                                       ", which it cannot be; use the library that wrote the checkpoint");
    }
  };
  int schema = 0;
  read(info.json, "schema_version", schema);
  if (schema != detail::checkpoint_schema)
    throw Error(ErrorKind::data, name + ": has schema_version " + std::to_string(schema) +
                                     ", this library reads " + std::to_string(detail::checkpoint_schema) +
                                     "; use the library that wrote it");
  std::string sum;
  read(info.json, "checksum", sum);
  info.json.erase("checksum");
  if (hash_of(info.json.dump()) != sum)
    throw Error(ErrorKind::data, name + ": does not match its checksum; the file is damaged");
  // Keys that are read later, where they are there.
  if (info.json.contains("adapters")) {
    std::map<std::string, double> scales;
    read(info.json, "adapters", scales);
  }
  if (info.json.contains("batch")) {
    std::int64_t batch = 0;
    read(info.json, "batch", batch);
  }
  Json state, recipe, files;
  read(info.json, "state", state);
  read(info.json, "step", info.step);
  read(state, "attempted", info.state.attempted);
  read(state, "applied", info.state.applied);
  read(state, "beta1_power", info.state.beta1_power);
  read(state, "beta2_power", info.state.beta2_power);
  read(state, "loss_scale", info.state.loss_scale);
  read(state, "good_steps", info.state.good_steps);
  read(state, "forgiven", info.state.forgiven);
  read(state, "skips_in_row", info.state.skips_in_row);
  read(info.json, "recipe", recipe);
  read(recipe, "loss_scale", info.loss_scale);
  std::map<std::string, Json> notes;
  read(info.json, "notes", notes);
  read(info.json, "notes", info.notes);
  read(info.json, "files", files);
  for (auto const& [file, about] : files.items()) {
    read(about, "bytes", info.files[file].bytes);
    read(about, "xxh3", info.files[file].sum);
  }
  return info;
}

/// Holds the files of a checkpoint against their sizes and sums, every `world`-th of them from number `rank`
/// on; `beat` is called now and then. Throws Error(data) with all that is missing, damaged or too much.
inline void verify_checkpoint(CheckpointInfo const& info, int rank = 0, int world = 1,
                              detail::FunctionRef<void()> beat = {}) {
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
      resized.push_back(file + " holds " + detail::with_commas(bytes) + " bytes instead of " +
                        detail::with_commas(about.bytes));
    } else if (hash_of_file(path.string(), beat) != about.sum) {
      damaged.push_back(file);
    }
  }
  // Weights that do not belong here would be read by other programs. What else lies beside them may stay.
  if (rank == 0)
    for (std::string const inside : {"", detail::model_folder}) {
      std::filesystem::directory_iterator entry(info.folder / inside, code);
      for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
        std::string const file = (inside.empty() ? "" : inside + "/") + entry->path().filename().string();
        if ((file.ends_with(".safetensors") || file.ends_with(".index.json")) && !info.files.contains(file))
          extra.push_back(detail::printable(file));
      }
    }
  std::string text;
  detail::append_names(text, "missing:", missing);
  detail::append_names(text, "of another size:", resized);
  detail::append_names(text, "damaged (another checksum):", damaged);
  detail::append_names(text, "not of this checkpoint:", extra);
  if (!text.empty())
    throw Error(ErrorKind::data, detail::path_text(info.folder) + ": is not whole: " + text +
                                     "restore it, or move the folder away to go on from an earlier one");
}

}  // namespace v0
}  // namespace tessera
