// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/model_weights.hpp. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/io/llmc_file.hpp"
#include "tessera/io/model_weights.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/io/weight_names.hpp"
#include "tessera/io/weights_format.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Parses an index of safetensors files as Python does, which accepts NaN. If the text is not JSON, returns a
/// value whose is_discarded() is true.
inline nlohmann::json parse_index(std::filesystem::path const& path) {
  FileBytes const bytes = FileBytes::open(path);
  std::string const text =
      with_null_for_nan({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, true);
  return nlohmann::json::parse(text, nullptr, false);
}

/// Whether a relative path in an index leads to a file below the folder of the index.
inline bool stays_inside(std::filesystem::path const& part) {
  return !part.empty() && part.is_relative() &&
         std::none_of(part.begin(), part.end(), [](auto const& step) { return step == ".."; });
}

}  // namespace detail

TESSERA_INLINE std::vector<std::filesystem::path> weights_files(std::filesystem::path const& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    std::vector<std::filesystem::path> all;
    for (char const* inside : {"model.safetensors", "model.safetensors.index.json"})
      for (auto& file : weights_files(path / inside)) all.push_back(std::move(file));
    return all;
  }
  std::vector<std::filesystem::path> files{path};
  if (!path.native().ends_with(".json") || !std::filesystem::is_regular_file(path, code)) return files;
  nlohmann::json const index = detail::parse_index(path);
  auto const map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) return files;
  std::set<std::string> parts;
  for (auto const& part : *map)
    if (part.is_string()) parts.insert(part.get<std::string>());
  for (auto const& part : parts) files.push_back(path.parent_path() / part);
  return files;
}

struct ModelWeights::State {
  /// The position of a tensor: the file that holds it, and its name in this file.
  struct Location {
    SafetensorsFile const* file = nullptr;
    LlmcFile const* llmc = nullptr;  // if not null, the file is this one instead of `file`
    std::string tensor;

    std::vector<std::int64_t> const& shape() const {
      return llmc ? llmc->at(tensor).shape : file->at(tensor).shape;
    }
    std::string_view type() const {
      if (llmc) return llmc->is_bf16() ? "BF16" : "F32";
      return file->at(tensor).type;
    }
    std::int64_t elements() const { return llmc ? llmc->at(tensor).elements() : file->at(tensor).elements(); }
    void read(std::int64_t first, std::span<float> out) const {
      llmc ? llmc->read_as_float(tensor, first, out) : file->read_as_float(tensor, first, out);
    }
  };

  static constexpr std::int64_t chunk = 16384;
  static constexpr char head[] = "lm_head.weight";

  std::string name;
  WeightNames names;
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::unique_ptr<LlmcFile> llmc;
  std::map<std::string, Location> tensors;       // name of a tensor in the files -> its position
  std::map<std::string, std::string> unnamed;    // name of a tensor that the index lacks -> its file
  std::vector<std::vector<Location>> locations;  // positions by index of the unit and index of its parameter
  // Texts at the start of names. Names in the files begin with `prefix`, but names in the model do not. Names
  // in the model begin with `left_out`, but names in the files do not.
  std::string prefix, left_out;

  [[noreturn]] void fail(std::string const& text) const { throw Error(ErrorKind::data, name + ": " + text); }

  void add(std::filesystem::path const& path) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      for (char const* inside : {"model.safetensors", "model.safetensors.index.json"}) {
        if (std::filesystem::exists(path / inside, code)) return add(path / inside);
        if (code) fail("cannot list the folder (" + code.message() + "); give a readable folder");
      }
      for (char const* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (std::filesystem::exists(path / pickled, code))
          fail(std::string("the folder holds ") + pickled +
               " as its only weights, which may run code when it is read; convert it with python -c \"from "
               "transformers "
               "import AutoModelForCausalLM as M; M.from_pretrained('" +
               name + "').save_pretrained('" + name + "')\"");
      refuse_pickles_in(path);
      fail(
          "the folder holds neither model.safetensors nor model.safetensors.index.json; name a weights "
          "file");
    }
    if (path.native().ends_with(".json")) return add_index(path);
    if (weights_format(path) == WeightsFormat::llmc) {
      llmc = std::make_unique<LlmcFile>(LlmcFile::open(path));
      for (LlmcFile::Tensor const& tensor : llmc->tensors())
        tensors[tensor.name] = {nullptr, llmc.get(), tensor.name};
      return;
    }
    SafetensorsFile const& file = open_part(path);
    for (SafetensorsEntry const& entry : file.tensors()) tensors[entry.name] = {&file, nullptr, entry.name};
  }

  SafetensorsFile const& open_part(std::filesystem::path const& path) {
    files.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path)));
    return *files.back();
  }

  /// Opens the files of an index. The index is {"metadata": {...}, "weight_map": {"wte.weight":
  /// "model-00001-of-00002.safetensors", ...}}.
  void add_index(std::filesystem::path const& path) {
    nlohmann::json const index = detail::parse_index(path);
    auto const map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object() || map->empty())
      fail(
          "is not an index of safetensors files, because it has no weight_map; name a .safetensors file or a "
          "whole "
          "index");
    std::map<std::string, SafetensorsFile const*> parts;
    for (auto const& [tensor, part] : map->items()) {
      std::string const file = part.is_string() ? part.get<std::string>() : std::string();
      if (!detail::stays_inside(file))
        fail("weight_map does not give " + files::printable(tensor) + " a file in the folder of the index");
      auto const [at, fresh] = parts.try_emplace(file, nullptr);
      if (fresh) at->second = &open_part(path.parent_path() / file);
      if (at->second->find(tensor) == nullptr)
        fail("weight_map says that " + files::printable(file) + " holds " + files::printable(tensor) +
             ", but it does not; the download is incomplete or mixed");
      tensors[tensor] = {at->second, nullptr, tensor};
    }
    for (auto const& [file, opened] : parts)
      for (SafetensorsEntry const& entry : opened->tensors())
        if (auto const named = tensors.find(entry.name); named == tensors.end())
          unnamed.emplace(entry.name, file);
        else if (named->second.file != opened)
          fail(files::printable(file) + " holds " + files::printable(entry.name) +
               ", but weight_map names another file; the files are from different downloads");
  }

  /// Convert the name of a parameter: `name_in_file` from the model to the files, `name_in_model` from the
  /// files to the model.
  std::string name_in_file(std::string const& parameter) const {
    return prefix + (parameter.starts_with(left_out) ? parameter.substr(left_out.size()) : parameter);
  }
  std::string name_in_model(std::string const& tensor) const {
    if (tensor == head) return tensor;
    return left_out + (tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor);
  }
  /// Finds the tensor of a parameter by its name in the files, or else by its name in the model. Returns
  /// `tensors.end()` if no tensor has one of these names.
  auto find(std::string const& parameter) const {
    auto const found = tensors.find(name_in_file(parameter));
    return found == tensors.end() ? tensors.find(parameter) : found;
  }

  using Extents = std::map<std::string, std::vector<std::int64_t>>;

  /// Returns the sizes of a model as "layers=2,channels=48,positions=1024 and vocabulary 301". The sizes come
  /// from `shapes`, the shapes of the tensors. A size whose tensor is missing is left out.
  std::string described(Extents const& shapes) const {
    std::set<std::string_view> layers;
    for (auto const& [tensor, shape] : shapes) {
      std::string_view rest = tensor;
      if (names.layers.empty() || !rest.starts_with(names.layers)) continue;
      rest.remove_prefix(names.layers.size());
      layers.insert(rest.substr(0, rest.find('.')));
    }
    std::string text = "layers=" + std::to_string(layers.size());
    for (WeightNames::Extent const& extent : names.extents) {
      auto const found = shapes.find(extent.tensor);
      if (found == shapes.end() || found->second.size() <= extent.dim) continue;
      text += (extent.key == "vocabulary" ? " and vocabulary " : "," + extent.key + "=") +
              std::to_string(found->second[extent.dim]);
    }
    return text;
  }

  /// Returns a text with the sizes of the model in the file and of this model, for an error. Empty if
  /// WeightNames does not tell how layers are named.
  std::string sizes_of_both(std::vector<UnitSpec> const& units) const {
    if (names.layers.empty()) return {};
    Extents file, model;
    for (auto const& [tensor, at] : tensors) file[name_in_model(tensor)] = at.shape();
    for (UnitSpec const& unit : units)
      for (ParameterSpec const& parameter : unit.parameters)
        model[parameter.name] = extents_of(parameter.shape);
    return "the file holds " + described(file) + ", the model is " + described(model) + "; ";
  }

  void match(std::vector<UnitSpec> const& units) {
    left_out = names.base;
    for (auto const& [tensor, at] : tensors) {
      if (tensor.starts_with(names.prefix)) prefix = names.prefix;
      if (tensor.starts_with(names.base)) left_out.clear();
    }
    std::vector<std::string> missing, extra, misshapen, mistyped;
    std::set<std::string> expected;
    locations.resize(units.size());
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      for (ParameterSpec const& parameter : units[unit].parameters) {
        auto const found = find(parameter.name);
        if (found == tensors.end()) {
          for (std::string const& one : {name_in_file(parameter.name), parameter.name})
            if (auto const at = unnamed.find(one); at != unnamed.end())
              fail(files::printable(at->second) + " holds " + files::printable(one) +
                   ", which is not in weight_map; the parts belong to another index");
          missing.push_back(name_in_file(parameter.name) + " " + to_string(parameter.shape));
          continue;
        }
        std::string const& tensor = found->first;
        expected.insert(tensor);
        Location const& at = found->second;
        auto const extents = extents_of(parameter.shape);
        if (at.shape() != extents)
          misshapen.push_back(tensor + " has shape " + detail::shape_text(at.shape()) + ", the model needs " +
                              detail::shape_text(extents));
        std::string_view const type = at.type();
        if (type != "F32" && type != "F16" && type != "BF16" && type != "F64")
          mistyped.push_back(tensor + " is " + std::string(type));
        locations[unit].push_back(found->second);
      }
    for (auto const& [tensor, at] : tensors) {
      if (expected.count(tensor) || (tensor == head && !names.tied_to.empty())) continue;
      if (!names.is_buffer(name_in_model(tensor)))
        extra.push_back(files::printable(tensor) + " " + detail::shape_text(at.shape()));
    }
    if (missing.empty() && extra.empty() && misshapen.empty() && mistyped.empty()) {
      if (!expected.count(head)) check_head();
      return;
    }
    std::string text = "does not fit the model: " + sizes_of_both(units);
    detail::append_names(text, "wrong shape:", misshapen);
    detail::append_names(text, "missing:", missing);
    detail::append_names(text, "not in the model:", extra);
    detail::append_names(text, "not F32, F16, BF16 or F64:", mistyped);
    fail(text + "choose the model and vocabulary of the file, or other weights");
  }

  /// Throws Error(data) if the file has an `lm_head.weight` that differs from the token embedding. Called for
  /// a model whose output head is tied to the token embedding.
  void check_head() const {
    auto const own_head = tensors.find(head);
    auto const tokens = find(names.tied_to);
    if (own_head == tensors.end() || tokens == tensors.end()) return;
    Location const &separate = own_head->second, &embedding = tokens->second;
    if (separate.shape() != embedding.shape())
      fail("lm_head.weight has shape " + detail::shape_text(separate.shape()) + ", the model needs that of " +
           names.tied_to + ", " + detail::shape_text(embedding.shape()));
    std::vector<float> own(chunk), tied(chunk);
    std::int64_t const elements = separate.elements();
    for (std::int64_t at = 0; at < elements; at += chunk) {
      auto const count = static_cast<std::size_t>(std::min(chunk, elements - at));
      separate.read(at, std::span(own).first(count));
      embedding.read(at, std::span(tied).first(count));
      for (std::size_t i = 0; i < count; ++i)
        if (std::bit_cast<std::uint32_t>(own[i]) != std::bit_cast<std::uint32_t>(tied[i]))
          fail("lm_head.weight is not tied: it differs from " + names.tied_to + " at element " +
               std::to_string(at + static_cast<std::int64_t>(i)) +
               "; this model has one matrix for both, use weights with a tied head");
    }
  }

  void check_values() const {
    std::vector<float> values(chunk);
    for (auto const& unit : locations)
      for (Location const& at : unit) {
        std::int64_t const elements = at.elements();
        for (std::int64_t first = 0; first < elements; first += chunk) {
          auto const part =
              std::span(values).first(static_cast<std::size_t>(std::min(chunk, elements - first)));
          at.read(first, part);
          for (std::size_t i = 0; i < part.size(); ++i)
            if (!std::isfinite(part[i]))
              fail("tensor " + at.tensor + " holds " + std::to_string(files::plain(part[i])) +
                   " at element " + std::to_string(first + static_cast<std::int64_t>(i)) +
                   "; these weights cannot be trained");
        }
      }
  }
};

TESSERA_INLINE ModelWeights ModelWeights::open(std::filesystem::path const& path,
                                               std::vector<UnitSpec> const& units, WeightNames const& names) {
  auto state = std::make_shared<State>();
  state->names = names;
  state->name = files::path_text(path);
  state->add(path);
  state->match(units);
  state->check_values();
  return ModelWeights(std::move(state));
}

TESSERA_INLINE std::string const& ModelWeights::name() const noexcept { return state_->name; }

TESSERA_INLINE ParameterSource ModelWeights::source() const {
  return [state = state_](int unit, int parameter, std::int64_t offset, std::span<float> out) {
    State::Location const& at =
        state->locations[static_cast<std::size_t>(unit)][static_cast<std::size_t>(parameter)];
    at.read(offset, out);
  };
}

namespace detail {

/// Returns the tensors of a model in the order of their names, which is the order of `collect`.
inline std::vector<SafetensorsSpec> tensors_of(std::vector<UnitSpec> const& units) {
  std::vector<SafetensorsSpec> all;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters)
      all.push_back({parameter.name, extents_of(parameter.shape)});
  std::sort(all.begin(), all.end(),
            [](SafetensorsSpec const& a, SafetensorsSpec const& b) { return a.name < b.name; });
  return all;
}

}  // namespace detail

TESSERA_INLINE WeightsWriter::WeightsWriter(std::filesystem::path const& path,
                                            std::vector<UnitSpec> const& units)
    : writer_(std::make_shared<SafetensorsWriter>(path, detail::tensors_of(units))) {}

TESSERA_INLINE ParameterSink WeightsWriter::sink() {
  return [writer = writer_.get()](ParameterSpec const& parameter, std::span<float const> values) {
    writer->append(parameter.name, values);
  };
}

TESSERA_INLINE void WeightsWriter::commit() { writer_->commit(); }

}  // namespace v0
}  // namespace tessera
