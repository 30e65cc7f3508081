// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/adapter.hpp. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
#include "tessera/io/adapter.hpp"
#include "tessera/io/adapter_config.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/json_lines.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/nn/init.hpp"
#include "tessera/nn/lora.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

inline constexpr char adapter_config[] = "adapter_config.json", adapter_file[] = "adapter_model.safetensors";
inline constexpr std::string_view peft_prefix = "base_model.model.", lora_a = ".lora_A.weight",
                                  lora_b = ".lora_B.weight";

/// Returns the name of the layer if `parameter` is a parameter of an adapter, otherwise an empty string.
inline std::string_view layer_of(std::string_view parameter) {
  for (std::string_view const ending : {lora_a, lora_b})
    if (parameter.ends_with(ending)) return parameter.substr(0, parameter.size() - ending.size());
  return {};
}

}  // namespace detail

struct AdapterWeights::State {
  std::string name;
  LoraOptions options;
  double dropout = 0.0;
  std::optional<SafetensorsFile> file;
  // name of a parameter in the model -> name of its tensor in the file
  std::map<std::string, std::string> tensors;

  State(std::filesystem::path const& folder, std::vector<UnitSpec> const& units)
      : name(files::path_text(folder)) {
    std::filesystem::path const weights = folder / detail::adapter_file;
    detail::AdapterConfig const config = read_config(folder);
    std::error_code code;
    if (!std::filesystem::exists(weights, code)) {
      bool const pickled = std::filesystem::exists(folder / "adapter_model.bin", code);
      fail(pickled ? "the folder holds only adapter_model.bin, which may run code when it is read; load it "
                     "with PEFT and save it again with save_pretrained"
                   : std::string("the folder holds no ") + detail::adapter_file +
                         "; copy the whole folder of the adapter again");
    }
    file = SafetensorsFile::open(weights);
    match(config, units);
    dropout = config.dropout;
    for (auto const& [parameter, tensor] : tensors) check_values(tensor);
  }

  [[noreturn]] void fail(std::string const& text) const { throw Error(ErrorKind::data, name + ": " + text); }

  detail::AdapterConfig read_config(std::filesystem::path const& folder) const {
    std::filesystem::path const path = folder / detail::adapter_config;
    std::string const shown = files::path_text(path);
    std::error_code code;
    if (!std::filesystem::exists(path, code))
      fail(std::filesystem::is_directory(folder, code)
               ? std::string("the folder holds no ") + detail::adapter_config +
                     "; name the folder of an adapter that PEFT or --save-adapter wrote"
               : "no such folder; name the folder of an adapter");
    files::FileReader const reader(path, true);
    if (reader.size() > std::size_t{1} << 20)
      throw Error(ErrorKind::data, shown + ": is too large for a configuration");
    std::string text(reader.size(), '\0');
    reader.read(0, text.data(), text.size());
    return {json_lines::parse_object(text, shown), shown};
  }

  /// Splits "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight" into "transformer.h.0.attn.c_attn"
  /// and 'A'. The letter is 'B' for a tensor "lora_B". Some files of PEFT have the name of the adapter before
  /// "weight", as in "lora_A.default.weight".
  std::pair<std::string, char> parts_of(std::string const& tensor) const {
    std::string_view text = tensor;
    if (text.starts_with(detail::peft_prefix)) text.remove_prefix(detail::peft_prefix.size());
    for (char const which : {'A', 'B'}) {
      std::string const middle = std::string(".lora_") + which + ".";
      std::size_t const at = text.rfind(middle);
      if (at == text.npos || !text.ends_with("weight")) continue;
      std::string_view const behind = text.substr(at + middle.size());
      if (behind == "weight" || behind.find('.') == behind.size() - 7)
        return {std::string(text.substr(0, at)), which};
    }
    throw Error(ErrorKind::data,
                file->name() + ": tensor " + files::printable(tensor) +
                    " is not a lora_A or lora_B weight of a linear layer, and tessera's adapters have no "
                    "other tensors; merge the adapter into its model with PEFT (merge_and_unload)");
  }

  void match(detail::AdapterConfig const& config, std::vector<UnitSpec> const& units) {
    std::map<std::string, ParameterSpec const*> linear;
    for (UnitSpec const& unit : units)
      for (ParameterSpec const& parameter : unit.parameters)
        if (parameter.inputs >= 0 && parameter.name.ends_with(detail::weight_ending))
          linear[parameter.name.substr(0, parameter.name.size() - detail::weight_ending.size())] = &parameter;
    std::vector<std::string> missing, extra, left_out, misshapen, mistyped;
    std::map<std::string, std::string> names;  // name of a layer in the model -> its name in the file
    std::string prefix;                        // the file has this text before the name of a layer
    for (SafetensorsEntry const& entry : file->tensors()) {
      auto const parts = parts_of(entry.name);
      std::string const& module = parts.first;
      char const which = parts.second;
      auto const layer = std::find_if(linear.begin(), linear.end(), [&](auto const& one) {
        return module == one.first || module.ends_with("." + one.first);
      });
      if (layer == linear.end()) {
        extra.push_back(files::printable(entry.name) + " " + detail::shape_text(entry.shape));
        continue;
      }
      prefix = module.substr(0, module.size() - layer->first.size());
      if (!config.has(module) && names.count(layer->first) == 0) left_out.push_back(files::printable(module));
      std::string const parameter =
          layer->first + std::string(which == 'A' ? detail::lora_a : detail::lora_b);
      if (!tensors.emplace(parameter, entry.name).second)
        fail("has the same tensor under two names, " + files::printable(tensors.at(parameter)) + " and " +
             files::printable(entry.name) + "; keep one of them");
      names[layer->first] = module;
      if (entry.type != "F32" && entry.type != "F16" && entry.type != "BF16" && entry.type != "F64")
        mistyped.push_back(files::printable(entry.name) + " is " + std::string(entry.type));
    }
    bool known = config.targets().empty() || config.targets().front() == "all-linear";
    if (!known)
      for (auto const& one : linear) {
        std::string const module = prefix + one.first;
        known |= config.is_target(module);  // PEFT ignores names that are not in the model
        if (config.has(module)) names.try_emplace(one.first, module);
      }
    if (!known) refuse_target(config, config.targets().front(), linear);
    if (names.empty()) fail("the adapter has no tensor that fits a layer; " + origin(config));
    options.rank_stabilized = config.rank_stabilized;
    std::vector<LoraOptions::Layer> layers;
    for (auto const& one : names) {
      std::string const &layer = one.first, &module = one.second;
      ParameterSpec const& weight = *linear.at(layer);
      int const rank = config.rank_of(module);
      layers.push_back({layer, rank, config.alpha_of(module)});
      std::int64_t const in = weight.shape[weight.inputs], out = weight.shape[1 - weight.inputs];
      auto const want = [&](std::string_view ending, std::vector<std::int64_t> const& shape) {
        auto const found = tensors.find(layer + std::string(ending));
        if (found == tensors.end())
          return missing.push_back(std::string(detail::peft_prefix) + module + std::string(ending) + " " +
                                   detail::shape_text(shape));
        SafetensorsEntry const& entry = file->at(found->second);
        if (entry.shape != shape)
          misshapen.push_back(files::printable(entry.name) + " has shape " + detail::shape_text(entry.shape) +
                              ", the model and rank " + std::to_string(rank) + " need " +
                              detail::shape_text(shape));
      };
      want(detail::lora_a, {rank, in});
      want(detail::lora_b, {out, rank});
    }
    options.layers = std::make_shared<std::vector<LoraOptions::Layer> const>(std::move(layers));
    if (!left_out.empty()) {
      std::string text;
      detail::append_names(text, "", left_out);
      fail("has tensors of layers that target_modules, layers_to_transform or exclude_modules of " +
           std::string(detail::adapter_config) + " exclude; PEFT would not use them:" + text +
           "correct that file, or copy the folder again");
    }
    if (missing.empty() && extra.empty() && misshapen.empty() && mistyped.empty()) return;
    std::string text = "does not fit the model: ";
    detail::append_names(text, "wrong shape:", misshapen);
    detail::append_names(text, "missing:", missing);
    detail::append_names(text, "not of a linear layer of the model:", extra);
    detail::append_names(text, "not F32, F16, BF16 or F64:", mistyped);
    fail(text + origin(config));
  }

  /// Returns the last part of an error text: the advice to the user if an adapter does not fit the model.
  static std::string origin(detail::AdapterConfig const& config) {
    return (config.base.empty() ? std::string("choose")
                                : "it was made for " + files::printable(config.base) + ", choose") +
           " the model that it was trained on, or copy the folder again";
  }
  [[noreturn]] static void refuse_target(detail::AdapterConfig const& config, std::string const& target,
                                         std::map<std::string, ParameterSpec const*> const& linear) {
    std::vector<std::string> layers;
    for (auto const& [layer, weight] : linear) layers.push_back(layer);
    try {
      detail::refuse_target(target, layers);
    } catch (Error const& error) {
      config.fail("target_modules: " + std::string(error.what()) + "; " + origin(config));
    }
  }

  void check_values(std::string const& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(file->at(tensor).elements()));
    file->read_as_float(tensor, values);
    for (std::size_t at = 0; at < values.size(); ++at)
      if (!std::isfinite(values[at]))
        fail("tensor " + files::printable(tensor) + " holds " + std::to_string(files::plain(values[at])) +
             " at element " + std::to_string(at) + "; this adapter cannot be used");
  }
};

TESSERA_INLINE AdapterWeights AdapterWeights::open(std::filesystem::path const& folder,
                                                   std::vector<UnitSpec> const& units) {
  AdapterWeights adapter;
  adapter.state_ = std::make_shared<State>(folder, units);
  return adapter;
}

TESSERA_INLINE std::string const& AdapterWeights::name() const { return state_->name; }

TESSERA_INLINE LoraOptions const& AdapterWeights::options() const { return state_->options; }

TESSERA_INLINE double AdapterWeights::dropout() const { return state_->dropout; }

TESSERA_INLINE void AdapterWeights::read(std::string const& parameter, std::int64_t offset,
                                         std::span<float> out) const {
  state_->file->read_as_float(state_->tensors.at(parameter), offset, out);
}

TESSERA_INLINE ParameterSource source_with_adapters(std::vector<UnitSpec> units, ParameterSource weights,
                                                    std::optional<AdapterWeights> adapter,
                                                    std::uint64_t seed) {
  return [units = std::move(units), weights = std::move(weights), adapter = std::move(adapter), seed](
             int unit, int parameter, std::int64_t offset, std::span<float> out) {
    ParameterSpec const& spec =
        units[static_cast<std::size_t>(unit)].parameters[static_cast<std::size_t>(parameter)];
    bool const adapts = !detail::layer_of(spec.name).empty();
    if (adapts && adapter)
      adapter->read(spec.name, offset, out);
    else if (!adapts && weights)
      weights(unit, parameter, offset, out);
    else
      initial_values(seed, unit, parameter, spec.init, offset, out);
  };
}

namespace detail {

/// Returns the tensors of the adapters in the order of their names. In the file each name begins with
/// `prefix`.
inline std::vector<SafetensorsSpec> adapter_tensors(std::vector<UnitSpec> const& units,
                                                    std::string const& prefix) {
  std::vector<SafetensorsSpec> all;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters)
      if (!layer_of(parameter.name).empty())
        all.push_back({prefix + parameter.name, extents_of(parameter.shape)});
  std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
  return all;
}
/// Returns the contents of adapter_config.json for a model's adapters. `units`, `prefix` and `base` are as in
/// AdapterWriter.
inline nlohmann::ordered_json adapter_config_json(std::vector<UnitSpec> const& units, LoraOptions const& lora,
                                                  std::string const& prefix, std::string const& base) {
  std::vector<LoraOptions::Layer> adapted;
  std::set<std::string> ends, full_names;
  bool transposed = false;
  std::vector<std::string> const layers = linear_layers(units);
  for (std::string const& layer : layers)
    if (LoraOptions::Layer const with = lora_of(lora, layer); with.rank > 0) {
      adapted.push_back(with);
      ends.insert(std::string(last_name(layer)));
      full_names.insert(prefix + layer);
    }
  for (UnitSpec const& unit : units)
    for (nn::Adapter const& adapter : unit.adapters)
      transposed |= unit.parameters[static_cast<std::size_t>(adapter.weight.index)].inputs == 0;
  bool const by_ends = std::all_of(layers.begin(), layers.end(), [&](std::string const& layer) {
    return !ends.contains(std::string(last_name(layer))) || full_names.contains(prefix + layer);
  });
  using Json = nlohmann::ordered_json;
  auto const number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 0x1p53 ? Json(static_cast<std::int64_t>(value))
                                                                  : Json(value);
  };
  Json ranks = Json::object(), alphas = Json::object();
  for (LoraOptions::Layer const& one : adapted) {
    if (one.rank != adapted.front().rank) ranks[prefix + one.name] = one.rank;
    if (one.alpha != adapted.front().alpha) alphas[prefix + one.name] = number(one.alpha);
  }
  return {{"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
          {"bias", "none"},
          {"fan_in_fan_out", transposed},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"alpha_pattern", alphas},
          {"lora_alpha", number(adapted.front().alpha)},
          {"lora_dropout", 0.0},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", adapted.front().rank},
          {"rank_pattern", ranks},
          {"target_modules", by_ends ? ends : full_names},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", false},
          {"use_rslora", lora.rank_stabilized}};
}

}  // namespace detail

TESSERA_INLINE AdapterWriter::AdapterWriter(std::filesystem::path const& folder,
                                            std::vector<UnitSpec> const& units, LoraOptions const& lora,
                                            std::string const& prefix, std::string const& base)
    : prefix_(std::string(detail::peft_prefix) + prefix) {
  make_folder(folder);
  weights_.emplace(folder / detail::adapter_file, detail::adapter_tensors(units, prefix_),
                   std::map<std::string, std::string>{{"format", "pt"}});
  config_.emplace(folder / detail::adapter_config);
  config_->write(detail::adapter_config_json(units, lora, prefix, base).dump(2) + "\n");
}

TESSERA_INLINE AdapterWriter::~AdapterWriter() = default;

TESSERA_INLINE ParameterSink AdapterWriter::sink() {
  return [this](ParameterSpec const& parameter, std::span<float const> values) {
    if (!detail::layer_of(parameter.name).empty()) weights_->append(prefix_ + parameter.name, values);
  };
}

TESSERA_INLINE void AdapterWriter::commit() {
  weights_->commit();
  config_->commit();
}

TESSERA_INLINE void AdapterWriter::check(std::filesystem::path const& folder) {
  check_writable_folder(folder);
  std::error_code code;
  if (!std::filesystem::exists(folder, code)) return;
  for (char const* file : {detail::adapter_file, detail::adapter_config}) check_writable(folder / file);
}

TESSERA_INLINE ParameterSink merging(std::vector<UnitSpec> const& units, ParameterSink sink) {
  struct Layer {
    double scale;
    int inputs;
  };
  struct State {
    std::map<std::string, Layer, std::less<>> layers;
    std::string name;       // name of the parameter that the sink receives now
    std::size_t begun = 0;  // number of this parameter's elements received so far
    std::vector<float> a, b, merged;
    std::vector<double> row;
  };
  auto state = std::make_shared<State>();
  for (UnitSpec const& unit : units)
    for (nn::Adapter const& adapter : unit.adapters) {
      ParameterSpec const& weight = unit.parameters[static_cast<std::size_t>(adapter.weight.index)];
      state->layers[weight.name] = {adapter.scale, weight.inputs};
    }
  return [state, sink = std::move(sink)](ParameterSpec const& parameter, std::span<float const> values) {
    if (state->name != parameter.name) {
      state->name = parameter.name;
      state->begun = 0;
    }
    std::size_t const first = std::exchange(state->begun, state->begun + values.size());
    if (!detail::layer_of(parameter.name).empty()) {
      std::vector<float>& adapter = parameter.name.ends_with(detail::lora_a) ? state->a : state->b;
      if (first == 0) adapter.clear();
      adapter.insert(adapter.end(), values.begin(), values.end());
      return;
    }
    auto const found = state->layers.find(parameter.name);
    if (found == state->layers.end()) return sink(parameter, values);
    auto const [scale, inputs] = found->second;
    auto const in = static_cast<std::size_t>(parameter.shape[inputs]), rank = state->a.size() / in;
    auto const out = static_cast<std::size_t>(parameter.shape[1 - inputs]);
    std::size_t const width = inputs == 1 ? in : out;  // elements of one stored row
    state->merged.assign(values.begin(), values.end());
    for (std::size_t at = 0; at < values.size();) {
      std::size_t const row = (first + at) / width, column = (first + at) % width;
      std::size_t const count = std::min(width - column, values.size() - at);
      state->row.assign(count, 0.0);
      for (std::size_t k = 0; k < rank; ++k)
        for (std::size_t i = 0; i < count; ++i) {
          std::size_t const o = inputs == 1 ? row : column + i, from = inputs == 1 ? column + i : row;
          state->row[i] += scale * static_cast<double>(state->b[o * rank + k]) *
                           static_cast<double>(state->a[k * in + from]);
        }
      for (std::size_t i = 0; i < count; ++i, ++at)
        state->merged[at] = static_cast<float>(static_cast<double>(state->merged[at]) + state->row[i]);
    }
    sink(parameter, {state->merged.data(), state->merged.size()});
  };
}

}  // namespace v0
}  // namespace tessera
