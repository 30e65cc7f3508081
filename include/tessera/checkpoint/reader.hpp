// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint into a trainer. The trainer may have another recipe and number of ranks than the run
// that saved the checkpoint. Each rank reads the elements that it holds. Needs nlohmann-json and xxHash.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/files.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/numbers.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/train/state_access.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Reads one rank's part of a checkpoint. All ranks construct a reader and call `run` together.
class CheckpointReader {
 public:
  CheckpointReader(StateAccess& state, std::filesystem::path const& folder)
      : state_(state), plan_(state.plan()), transport_(state.transport()), folder_(without_slash(folder)) {}

  /// Reads the checkpoint into the trainer and returns the contents of trainer.json. First verifies all files
  /// and compares their tensors with the model, without changing the trainer. An error after these checks
  /// leaves the trainer's state undefined. All ranks throw the same Error(data).
  CheckpointInfo run() {
    (void)state_.scalars();
    CheckpointInfo info;
    together(transport_, "open", [&] { info = read_checkpoint(folder_); });
    comm::agree(
        transport_,
        static_cast<std::uint64_t>(std::strtoull(hash_of(info.json).substr(0, 16).c_str(), nullptr, 16)),
        "checkpoint");
    together(transport_, "verify", [&] {
      verify_checkpoint(info, transport_.rank(), transport_.world(), [&] { transport_.heartbeat(); });
    });
    together(transport_, "match", [&] {
      open(info);
      match();
      match_scales(info);
    });
    together(transport_, "read", [&] {
      for (Buffer const& buffer : plan_.train.buffers) read(buffer);
      state_.set_scalars(scalars_of(info));
    });
    return info;
  }

 private:
  /// A range of elements of a parameter, and the tensor in a file that holds the values of these elements.
  /// The values are the parameter's weights or one kind of its optimizer state, such as "exp_avg".
  struct Box {
    Range logical;
    SafetensorsFile const* file;
    std::string tensor;
  };

  [[noreturn]] void fail(std::string const& text) const {
    throw Error(ErrorKind::data, path_text(folder_) + ": " + text);
  }
  ParameterSpec const& spec(int unit, int parameter) const {
    return plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)];
  }

  void open(CheckpointInfo const& info) {
    for (auto const& [name, about] : info.files) {
      if (!name.ends_with(".safetensors")) continue;
      SafetensorsFile const& file =
          files_.emplace(name, SafetensorsFile::open(folder_ / name, false)).first->second;
      bool const weights = name.starts_with(model_folder) || name == adapters_file;
      for (SafetensorsEntry const& entry : file.tensors())
        if (weights)
          boxes_[{entry.name, ""}].push_back({{0, entry.elements()}, &file, entry.name});
        else
          add_box(file, entry);
    }
    for (auto& [of, list] : boxes_)
      std::sort(list.begin(), list.end(),
                [](Box const& a, Box const& b) { return a.logical.begin < b.logical.begin; });
  }
  /// Adds the tensor `entry` of an optimizer file to `boxes_`. Its name gives the parameter, the kind of
  /// state and the range of elements, as in "wte.weight.exp_avg[0:4096]".
  void add_box(SafetensorsFile const& file, SafetensorsEntry const& entry) {
    std::string_view const name = entry.name;
    std::size_t const bracket = name.rfind('['), colon = name.rfind(':'),
                      point = name.substr(0, bracket).rfind('.');
    Range range;
    auto const number = [&](std::size_t begin, std::size_t end, std::int64_t& value) {
      auto const [last, code] = std::from_chars(name.data() + begin, name.data() + end, value);
      return code == std::errc() && last == name.data() + end;
    };
    if (bracket == name.npos || colon == name.npos || colon < bracket || point == name.npos ||
        !name.ends_with(']') || !number(bracket + 1, colon, range.begin) ||
        !number(colon + 1, name.size() - 1, range.end) || range.begin < 0 ||
        entry.elements() != range.end - range.begin)
      throw Error(ErrorKind::data, file.name() + ": tensor " + printable(name) +
                                       " does not have the name and shape of a part of a checkpoint");
    boxes_[{std::string(name.substr(0, point)), std::string(name.substr(point + 1, bracket - point - 1))}]
        .push_back({range, &file, entry.name});
  }

  /// Throws Error(data) if the tensors in the files do not match the model's parameters and the state that
  /// its optimizer keeps.
  void match() const {
    std::vector<std::string> missing, extra, misshapen;
    std::set<std::pair<std::string, std::string>> expected;
    auto const expect = [&](ParameterSpec const& parameter, std::string const& state) {
      expected.insert({parameter.name, state});
      auto const found = boxes_.find({parameter.name, state});
      std::string const name = parameter.name + (state.empty() ? "" : "." + state);
      if (found == boxes_.end()) return missing.push_back(name);
      std::int64_t at = 0;
      for (Box const& box : found->second) {
        if (box.logical.begin != at) break;
        at = box.logical.end;
      }
      if (state.empty()) {
        SafetensorsEntry const& entry = found->second.front().file->at(parameter.name);
        if (entry.shape != extents_of(parameter.shape))
          misshapen.push_back(name + " has shape " + shape_text(entry.shape) + ", the model needs " +
                              shape_text(extents_of(parameter.shape)));
      } else if (at != parameter.shape.elements()) {
        missing.push_back(name + " from element " + std::to_string(at) + " on");
      }
    };
    for (Flat const of : plan_.flats())
      for (int index = 0; index < static_cast<int>(plan_.unit(of.unit).parameters.size()); ++index) {
        ParameterSpec const& parameter = spec(of.unit, index);
        if (plan_.flat_of(of.unit, index).group != of.group) continue;
        expect(parameter, "");
        if (!plan_.flat(of).trainable) continue;
        for (OptimizerState const& optimizer_state : plan_.optimizer)
          expect(parameter, std::string(optimizer_state.name));
      }
    for (auto const& [of, list] : boxes_)
      if (!expected.contains(of) && of.second != "master")
        extra.push_back(printable(of.first) + (of.second.empty() ? "" : "." + of.second));
    if (missing.empty() && extra.empty() && misshapen.empty()) return;
    std::string text = "does not match the model and its trained parameters: ";
    append_names(text, "wrong shape:", misshapen);
    append_names(text, "missing:", missing);
    append_names(text, "not needed:", extra);
    fail(text + "resume with the model and the frozen parameters that were saved");
  }

  /// Throws Error(data) if the scale of an adapter differs from the saved scale. A different scale does not
  /// change any shape, so `match` does not find it.
  void match_scales(CheckpointInfo const& info) const {
    auto const saved =
        nlohmann::ordered_json::parse(info.json).value("adapters", nlohmann::ordered_json::object());
    for (auto const& [layer, scale] : adapter_scales(plan_)) {
      nlohmann::ordered_json const before = saved.value(layer, nlohmann::ordered_json());
      if (before != scale)
        fail("the adapter of " + layer + " had the scale " + before.dump() +
             " when it was saved, and now has " + nlohmann::ordered_json(scale).dump() +
             "; resume with the rank and alpha that were saved");
    }
  }

  /// Reads this rank's part of a buffer of weights, master weights or moments from the files. Ignores other
  /// buffers.
  void read(Buffer const& buffer) {
    std::string state;
    if (buffer.kind == BufferKind::moment)
      state = std::string(plan_.optimizer[static_cast<std::size_t>(buffer.index)].name);
    else if (buffer.kind != BufferKind::weights && buffer.kind != BufferKind::master)
      return;
    Flat const of{buffer.unit, buffer.flat};
    for (Range now{buffer.range.begin, buffer.range.begin}; now.end < buffer.range.end; now.begin = now.end) {
      now.end = std::min(now.begin + checkpoint_chunk, buffer.range.end);
      std::byte* const staged = state_.stage(buffer, now);
      for (Piece const& piece : plan_.pieces(of, now))
        read(spec(of.unit, piece.parameter).name, state, piece.logical, buffer.type,
             staged + buffer.bytes_of(piece.flat.begin - now.begin));
      state_.put(buffer, now, staged);
      transport_.heartbeat();
    }
  }
  void read(std::string const& parameter, std::string const& state, Range part, DType type, std::byte* to) {
    auto const count = static_cast<std::size_t>(part.size());
    if (type == DType::f64) {
      bool const exact = state.empty() && boxes_.contains({parameter, "master"});
      return read(parameter, exact ? "master" : state, part,
                  std::span<double>{reinterpret_cast<double*>(to), count});
    }
    values_.resize(count);
    read(parameter, state, part, std::span<float>{values_});
    narrow(values_, type, to);
  }
  template <class U>
  void read(std::string const& parameter, std::string const& state, Range part, std::span<U> out) const {
    for (Box const& box : boxes_.at({parameter, state})) {
      Range const here = intersect(box.logical, part);
      if (here.size() > 0)
        box.file->read_as(box.tensor, here.begin - box.logical.begin,
                          out.subspan(static_cast<std::size_t>(here.begin - part.begin),
                                      static_cast<std::size_t>(here.size())));
    }
  }

  /// Returns the step counts and other scalars of the checkpoint. Keeps the saved loss scale only if it was
  /// dynamic and this recipe's loss scale is dynamic too. Otherwise the loss scale is the initial one of this
  /// recipe.
  StepState scalars_of(CheckpointInfo const& info) const {
    StepState state = info.state;
    LossScaleKind const kind = plan_.recipe.loss_scale;
    if (!changes(kind) || info.loss_scale != name_of(kind)) {
      state.loss_scale = kind == LossScaleKind::none ? 1.0 : state_.options().loss_scale.initial;
      state.good_steps = 0;
      state.forgiven = 0;
      state.skips_in_row = 0;
    }
    return state;
  }

  StateAccess& state_;
  StepPlan const& plan_;
  comm::Transport& transport_;
  std::filesystem::path folder_;
  std::map<std::string, SafetensorsFile> files_;
  // The tensors of each parameter and kind of state. The second string of the key is the kind of state, such
  // as "exp_avg"; empty: the weights.
  std::map<std::pair<std::string, std::string>, std::vector<Box>> boxes_;
  std::vector<float> values_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
