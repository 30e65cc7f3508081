// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint. Every rank writes the state that it holds directly to its position in the files, so no
// rank needs memory for the whole model. Needs nlohmann-json and xxHash.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/files.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/numbers.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/version.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Calls the function `part` on each rank, and then tells every rank whether `part` failed on any rank. If
/// `part` failed on some ranks, all ranks throw the error of the lowest of these ranks. All ranks must call
/// `together`. `part` must not communicate. `what` is the name of this exchange in error messages.
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

/// Returns the text of trainer.json: the given object with the checksum of its text added. In paths, bytes
/// that are not UTF-8 become U+FFFD.
inline std::string with_checksum(nlohmann::ordered_json json) {
  constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
  json["checksum"] = hash_of(json.dump(-1, ' ', false, replace));
  return json.dump(2, ' ', false, replace) + "\n";
}

/// One kind of state that a checkpoint stores for a flat group of trained parameters, in addition to the
/// weights in fp32. `name` is a moment such as "exp_avg", or "master" for fp64 master weights. `buffer` is
/// the index of the buffer with this state in the training program of the step plan (StepPlan::train).
struct StoredState {
  std::string name;
  int buffer;
};
inline std::vector<StoredState> stored_states(StepPlan const& plan, Flat of) {
  std::vector<StoredState> list;
  for (int index = 0; index < static_cast<int>(plan.optimizer.size()); ++index)
    list.push_back({std::string(plan.optimizer[static_cast<std::size_t>(index)].name),
                    plan.train.find(BufferKind::moment, of, index)});
  if (plan.recipe.types.master == DType::f64)
    list.push_back({"master", plan.train.find(plan.master_kind(of), of)});
  return list;
}

/// Whether parameter number `parameter` of a unit belongs to an adapter.
inline bool is_adapter(UnitSpec const& unit, int parameter) {
  for (nn::Adapter const& adapter : unit.adapters)
    if (adapter.a.index == parameter || adapter.b.index == parameter) return true;
  return false;
}

/// Returns the scale of each adapter. The key is the name of the adapter's layer.
inline std::map<std::string, double> adapter_scales(StepPlan const& plan) {
  std::map<std::string, double> scales;
  for (UnitSpec const& unit : plan.units)
    for (nn::Adapter const& adapter : unit.adapters) {
      std::string const& weight = unit.parameters[static_cast<std::size_t>(adapter.weight.index)].name;
      scales[weight.substr(0, weight.rfind('.'))] = adapter.scale;
    }
  return scales;
}

/// Syncs a file or a folder to disk. Does nothing for a folder whose file system cannot sync folders.
inline void sync_path(std::filesystem::path const& path) {
  Descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) file_error(path, "open", errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) file_error(path, "sync", errno);
}

/// A file that several ranks write. Each rank writes its own ranges of bytes.
class PlacedFile {
 public:
  PlacedFile(std::filesystem::path path, bool create) : path_(std::move(path)) {
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666));
    if (!file_) file_error(path_, create ? "create the file" : "open for writing", errno);
  }
  std::filesystem::path const& path() const { return path_; }

  void write(std::int64_t at, void const* data, std::int64_t size) {
    auto const* bytes = static_cast<char const*>(data);
    unsynced_ += size;
    while (size > 0) {
      ssize_t const written = ::pwrite(file_.get(), bytes, static_cast<std::size_t>(size), at);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) file_error(path_, "write", errno);
      bytes += written;
      at += written;
      size -= written;
    }
    // Syncs after every 256 MiB. During one long sync at the end, this rank would send no heartbeat and would
    // look lost.
    if (unsynced_ >= std::int64_t{1} << 28) sync();
  }
  void sync() {
    if (::fsync(file_.get()) != 0) file_error(path_, "sync", errno);
    unsynced_ = 0;
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::int64_t unsynced_ = 0;
};

/// Writes one rank's part of a checkpoint. All ranks construct a writer and call `run` together. To save
/// while steps run, all ranks call `begin(true)` together instead, and each rank then calls `write` on a
/// separate thread (async.hpp).
class CheckpointWriter {
 public:
  CheckpointWriter(StateAccess& state, std::filesystem::path const& folder, CheckpointOptions options)
      : state_(state),
        plan_(state.plan()),
        transport_(state.transport()),
        options_(std::move(options)),
        folder_(without_slash(folder)),
        partial_folder_(folder_.parent_path() / ("." + folder_.filename().string() + ".partial")),
        staging_(state.staging()) {}

  /// Writes the whole checkpoint. If it fails, removes the written files and throws, the same error on all
  /// ranks: Error(failed) with path and reason, or Error(diverged) if weights are not finite. If a rank is
  /// lost (PeerLost), the folder stays under its temporary name, which ends with .partial, and the next save
  /// removes it.
  void run() {
    heartbeat_ = [this] { transport_.heartbeat(); };
    begin();
    try {
      together(transport_, "state", [&] { write_states(); });
      together(transport_, "weights", [&] { write_weights(); });
      together(transport_, "sums", [&] { compute_sums(); });
      exchange_sums();
      together(transport_, "name", [&] { finish(); });
    } catch (PeerLost const&) {
      throw;  // does not remove files, because other ranks possibly still write them
    } catch (Error const&) {
      remove();
      throw;
    }
  }

  /// Creates the folder and this rank's files in it. With `from_snapshot`, also starts to copy the state into
  /// the snapshot that `write` reads. All ranks call it together. Throws the same errors as `run`.
  void begin(bool from_snapshot = false) {
    from_snapshot_ = from_snapshot;
    scalars_ = state_.scalars();
    if (scalars_.stopped_at > 0)
      throw Error(ErrorKind::diverged, "the run diverged in step " + std::to_string(scalars_.stopped_at) +
                                           "; no checkpoint was written");
    lay_out();
    try {
      together(transport_, "prepare", [&] { prepare(); });
      together(transport_, "files", [&] { make_files(); });
      if (from_snapshot) together(transport_, "snapshot", [&] { state_.take_snapshot(); });
    } catch (PeerLost const&) {
      throw;
    } catch (Error const&) {
      remove();
      throw;
    }
  }
  /// Waits until the snapshot is complete, then writes this rank's part from it. Steps may run meanwhile. At
  /// the end writes a small file for rank 0 with the checksum of this rank's optimizer file. Communicates
  /// with no other rank. Calls `heartbeat` repeatedly; an exception from `heartbeat` ends the write.
  void write(std::function<void()> heartbeat) {
    heartbeat_ = std::move(heartbeat);
    while (!state_.has_snapshot()) rest();
    write_states();
    write_weights();
    int const rank = plan_.shape.rank;
    Sum const own = sum_of(parts_.size() + static_cast<std::size_t>(rank));
    write_file(partial_folder_ / mark_of(rank), std::to_string(own.bytes) + " " + own.text());
  }
  /// Completes the checkpoint. Called on rank 0 after `write`. Waits for the other ranks' parts, computes the
  /// checksums of the weights, and gives the folder its final name.
  void name() {
    sums_.assign(files_.size(), {});
    std::error_code code;
    for (int rank = 0; rank < world(); ++rank) {
      std::filesystem::path const mark = partial_folder_ / mark_of(rank);
      while (!std::filesystem::exists(mark, code)) rest();
      Sum& sum = sums_[parts_.size() + static_cast<std::size_t>(rank)];
      std::string digits;
      std::ifstream file(mark);
      if (!(file >> sum.bytes >> digits) || sum.bytes <= 0 || digits.size() != sizeof sum.digits)
        throw Error(ErrorKind::failed,
                    path_text(mark) + ": cannot be read back, so the checkpoint was not completed");
      digits.copy(sum.digits, sizeof sum.digits);
      std::filesystem::remove(mark, code);
    }
    for (std::size_t part = 0; part < parts_.size(); ++part) sums_[part] = sum_of(part);
    finish();
  }
  /// On rank 0, removes all files written so far. Call it only when no rank writes any more.
  void remove() const {
    std::error_code ignored;
    if (plan_.is_root()) std::filesystem::remove_all(partial_folder_, ignored);
  }
  bool is_root() const { return plan_.is_root(); }
  comm::Transport& transport() const { return transport_; }
  std::filesystem::path const& folder() const { return folder_; }

 private:
  struct Place {
    std::size_t file;
    std::int64_t at;
  };
  struct Part {
    std::string name;
    SafetensorsLayout layout;
    std::vector<SafetensorsSpec> tensors;
  };
  struct Sum {
    std::int64_t bytes = 0;
    char digits[32] = {};

    std::string text() const { return std::string(digits, sizeof digits); }
  };
  struct Box {
    std::size_t tensor;
    std::int64_t begin;  // index of the tensor's first element in the parameter
  };

  static std::string mark_of(int rank) { return ".rank-" + std::to_string(rank); }
  /// Calls `heartbeat_` and sleeps for 5 ms. A loop in which this thread waits for another thread or process
  /// calls this function.
  void rest() const {
    heartbeat_();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  ParameterSpec const& spec(int unit, int parameter) const {
    return plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)];
  }
  int world() const { return plan_.shape.world; }
  int owner(std::size_t part) const { return static_cast<int>(part) % world(); }

  /// Calls `write(piece, values)` for each piece of a parameter in the part of `buffer` that this rank
  /// writes. `values` points to the piece's values in the buffer's number format. Handles one chunk of the
  /// buffer at a time.
  template <class Write>
  void stream(Buffer const& buffer, Write&& write) {
    Flat const of{buffer.unit, buffer.flat};
    Range const all = plan_.written(buffer);
    for (Range now{all.begin, all.begin}; now.end < all.end; now.begin = now.end) {
      now.end = std::min(now.begin + checkpoint_chunk, all.end);
      std::vector<Piece> const pieces = plan_.pieces(of, now);
      if (pieces.empty()) continue;
      std::byte const* const values =
          from_snapshot_ ? state_.snapshot(buffer, now) : state_.view(buffer, now);
      for (Piece const& piece : pieces) write(piece, values + buffer.bytes_of(piece.flat.begin - now.begin));
      heartbeat_();
    }
  }

  /// Assigns each parameter a position in a file of weights, in the order of the units. Every rank computes
  /// the same positions. Adapters have a file of their own after the files of the model's own weights.
  void lay_out() {
    for (bool const adapters : {false, true}) {
      std::int64_t bytes = options_.part_bytes;
      for (int unit = 0; unit < plan_.units_count(); ++unit)
        for (int parameter = 0; parameter < static_cast<int>(plan_.unit(unit).parameters.size());
             ++parameter) {
          if (is_adapter(plan_.unit(unit), parameter) != adapters) continue;
          if (adapters ? parts_.size() == model_parts_ : bytes >= options_.part_bytes) {
            parts_.emplace_back();
            bytes = 0;
          }
          ParameterSpec const& about = spec(unit, parameter);
          places_[{unit, parameter}] = {parts_.size() - 1,
                                        static_cast<std::int64_t>(parts_.back().tensors.size())};
          parts_.back().tensors.push_back({about.name, extents_of(about.shape)});
          bytes += 4 * about.shape.elements();
        }
      if (!adapters) model_parts_ = parts_.size();
    }
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      char name[64] = "model.safetensors";
      if (model_parts_ > 1)
        std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", part + 1, model_parts_);
      parts_[part].name = part < model_parts_ ? std::string(model_folder) + "/" + name : adapters_file;
      parts_[part].layout = safetensors_layout(parts_[part].name, parts_[part].tensors);
    }
    for (auto& [parameter, place] : places_)
      place.at = parts_[place.file].layout.begins[static_cast<std::size_t>(place.at)];
    for (Part const& part : parts_) files_.push_back(part.name);
    for (int rank = 0; rank < world(); ++rank) files_.push_back(optimizer_file(rank, world()));
    lay_out_states();
  }
  void lay_out_states() {
    std::vector<SafetensorsSpec> boxes;
    for (Flat const of : plan_.trainable())
      for (StoredState const& stored_state : stored_states(plan_, of)) {
        Buffer const& buffer = plan_.train.at(stored_state.buffer);
        if (buffer.block != 1)
          throw Error(ErrorKind::unsupported, "checkpoints store one value for each element, but " +
                                                  stored_state.name + " has one value for each block of " +
                                                  std::to_string(buffer.block) +
                                                  "; keep it in another format");
        for (Piece const& piece : plan_.pieces(of, plan_.written(buffer))) {
          box_of_[{stored_state.buffer, piece.parameter}] = {boxes.size(), piece.logical.begin};
          boxes.push_back({spec(of.unit, piece.parameter).name + "." + stored_state.name + "[" +
                               std::to_string(piece.logical.begin) + ":" + std::to_string(piece.logical.end) +
                               "]",
                           {piece.logical.size()},
                           buffer.type});
        }
      }
    states_ = safetensors_layout(optimizer_file(plan_.shape.rank, world()), boxes);
  }

  void prepare() {
    if (!plan_.is_root()) return;
    notes_ = nlohmann::ordered_json::parse(options_.notes, nullptr, false);
    if (!notes_.is_object())
      throw Error(
          ErrorKind::usage,
          "CheckpointOptions::notes is " + printable(options_.notes, 60) +
              ", which is not the text of a JSON object; write one, such as {\"data\": \"book.txt\"}");
    std::error_code code;
    if (std::filesystem::exists(folder_, code))
      throw Error(ErrorKind::failed, path_text(folder_) + ": exists already; give another folder");
    std::filesystem::remove_all(partial_folder_, code);  // the incomplete folder of a killed save
    make_folder(partial_folder_ / model_folder);
  }

  /// Creates this rank's file of optimizer state, and the files of weights that this rank owns. Writes only
  /// their headers.
  void make_files() {
    auto const make = [&](std::string const& name, SafetensorsLayout const& layout) {
      PlacedFile file(partial_folder_ / name, true);
      file.write(0, layout.start.data(), static_cast<std::int64_t>(layout.start.size()));
    };
    make(optimizer_file(plan_.shape.rank, world()), states_);
    for (std::size_t part = 0; part < parts_.size(); ++part)
      if (owner(part) == plan_.shape.rank) make(parts_[part].name, parts_[part].layout);
  }

  void write_states() {
    PlacedFile file(partial_folder_ / optimizer_file(plan_.shape.rank, world()), false);
    for (Flat const of : plan_.trainable())
      for (StoredState const& stored_state : stored_states(plan_, of)) {
        Buffer const& buffer = plan_.train.at(stored_state.buffer);
        stream(buffer, [&](Piece const& piece, std::byte const* values) {
          Box const box = box_of_.at({stored_state.buffer, piece.parameter});
          file.write(states_.begins[box.tensor] + buffer.bytes_of(piece.logical.begin - box.begin), values,
                     buffer.bytes_of(piece.logical.size()));
        });
      }
    file.sync();
  }

  /// Writes this rank's elements to the files of weights. Throws Error(diverged) if a weight is not finite,
  /// because training could not continue from such a checkpoint.
  void write_weights() {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      PlacedFile file(partial_folder_ / parts_[part].name, false);
      for (Flat const of : plan_.flats()) {
        Buffer const& buffer = plan_.train.at(plan_.train.find(plan_.master_kind(of), of));
        bool here = false;
        for (Piece const& piece : plan_.pieces(of, plan_.written(buffer)))
          here = here || places_.at({of.unit, piece.parameter}).file == part;
        if (!here) continue;
        stream(buffer, [&](Piece const& piece, std::byte const* stored) {
          Place const place = places_.at({of.unit, piece.parameter});
          if (place.file != part) return;
          std::span<float> const values{reinterpret_cast<float*>(staging_ + SaveStaging::values),
                                        static_cast<std::size_t>(piece.logical.size())};
          widen(buffer.type, stored, values);
          for (std::size_t at = 0; at < values.size(); ++at)
            if (!std::isfinite(values[at]))
              throw Error(ErrorKind::diverged,
                          "the weights are not finite after step " + std::to_string(scalars_.attempted) +
                              ": " + spec(of.unit, piece.parameter).name + " holds " +
                              std::to_string(plain(values[at])) + " at element " +
                              std::to_string(piece.logical.begin + static_cast<std::int64_t>(at)) +
                              "; no checkpoint was written, lower the learning rate or set clip");
          file.write(place.at + 4 * piece.logical.begin, values.data(), 4 * piece.logical.size());
        });
      }
      file.sync();
    }
  }
  /// Reads the written files again and computes their checksums. Each file is read by one rank.
  void compute_sums() {
    sums_.assign(files_.size(), {});
    for (std::size_t file = 0; file < files_.size(); ++file) {
      int const by = file < parts_.size() ? owner(file) : static_cast<int>(file - parts_.size());
      if (by == plan_.shape.rank) sums_[file] = sum_of(file);
    }
  }
  Sum sum_of(std::size_t file) const {
    std::filesystem::path const path = partial_folder_ / files_[file];
    std::span<char> const scratch{reinterpret_cast<char*>(staging_ + SaveStaging::summed),
                                  static_cast<std::size_t>(SaveStaging::summed_bytes)};
    Sum sum;
    hash_of_file(
        path.string(), [&] { heartbeat_(); }, scratch)
        .copy(sum.digits, sizeof sum.digits);
    sum.bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
    return sum;
  }
  void exchange_sums() {
    std::size_t const count = files_.size();
    std::vector<Sum> all(count * static_cast<std::size_t>(world()));
    transport_.all_gather(sums_.data(), all.data(), static_cast<std::int64_t>(count * sizeof(Sum)),
                          {"checkpoint", "sums of files"});
    for (std::size_t file = 0; file < count; ++file)
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(world()); ++rank)
        if (all[rank * count + file].digits[0] != 0) sums_[file] = all[rank * count + file];
  }

  /// On rank 0, writes config.json, the index and trainer.json, and renames the folder. The checkpoint exists
  /// only after the rename.
  void finish() {
    if (!plan_.is_root()) return;
    nlohmann::ordered_json files = nlohmann::ordered_json::object();
    for (std::size_t file = 0; file < files_.size(); ++file)
      files[files_[file]] = {{"bytes", sums_[file].bytes}, {"xxh3", sums_[file].text()}};
    auto const add = [&](std::string const& name, std::string const& text) {
      write_file(partial_folder_ / name, text);
      files[name] = {{"bytes", text.size()}, {"xxh3", hash_of(text)}};
    };
    if (!options_.config.empty()) add(std::string(model_folder) + "/config.json", options_.config);
    if (model_parts_ > 1) add(std::string(model_folder) + "/model.safetensors.index.json", index());
    write_file(partial_folder_ / trainer_file, with_checksum(trainer_json(std::move(files))));
    sync_path(partial_folder_ / model_folder);
    sync_path(partial_folder_);
    if (::rename(partial_folder_.c_str(), folder_.c_str()) != 0) file_error(folder_, "rename to it", errno);
    sync_path(folder_of(folder_));
  }

  std::string index() const {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    std::int64_t total = 0;
    for (Part const& part : std::span(parts_).first(model_parts_))
      for (SafetensorsSpec const& tensor : part.tensors) {
        map[tensor.name] = part.name.substr(std::string_view(model_folder).size() + 1);
        std::int64_t bytes = 4;
        for (std::int64_t const extent : tensor.shape) bytes *= extent;
        total += bytes;
      }
    return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
  }

  nlohmann::ordered_json trainer_json(nlohmann::ordered_json files) const {
    TrainerOptions const& numbers = state_.options();
    nlohmann::ordered_json json, recipe;
    for_each_slot([&]<class Slot>(Slot) {
      std::string key(Slot::title);
      std::replace(key.begin(), key.end(), ' ', '_');
      recipe[key] = std::string(plan_.recipe.names.*Slot::field);
    });
    recipe["loss_scale"] = std::string(name_of(plan_.recipe.loss_scale));
    json["schema_version"] = checkpoint_schema;
    json["library"] = version;
    json["step"] = scalars_.attempted;
    json["state"] = {{"attempted", scalars_.attempted},     {"applied", scalars_.applied},
                     {"beta1_power", scalars_.beta1_power}, {"beta2_power", scalars_.beta2_power},
                     {"loss_scale", scalars_.loss_scale},   {"good_steps", scalars_.good_steps},
                     {"forgiven", scalars_.forgiven},       {"skips_in_row", scalars_.skips_in_row}};
    json["seed"] = numbers.seed;
    json["world"] = world();
    json["batch"] = plan_.shape.batch;
    json["sequence"] = plan_.shape.sequence;
    json["accumulation"] = plan_.shape.accumulation;
    json["recipe"] = std::move(recipe);
    for (auto const& [layer, scale] : adapter_scales(plan_)) json["adapters"][layer] = scale;
    json["notes"] = notes_;
    json["files"] = std::move(files);
    return json;
  }

  StateAccess& state_;
  StepPlan const& plan_;
  comm::Transport& transport_;
  CheckpointOptions options_;
  nlohmann::ordered_json notes_;  // set only on rank 0
  std::filesystem::path folder_, partial_folder_;
  std::byte* staging_;
  std::function<void()> heartbeat_;  // called repeatedly while this rank writes
  bool from_snapshot_ = false;       // whether values come from the snapshot
  StepState scalars_;
  std::vector<Part> parts_;
  std::size_t model_parts_ = 0;                  // number of the first parts_ that hold no adapters
  std::map<std::pair<int, int>, Place> places_;  // key: unit and parameter
  SafetensorsLayout states_;                     // layout of this rank's file of optimizer state
  std::map<std::pair<int, int>, Box> box_of_;    // tensors in this rank's file; key: buffer and parameter
  std::vector<std::string> files_;               // paths of the files of weights, then of optimizer state
  std::vector<Sum> sums_;                        // checksum of each file in files_
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
