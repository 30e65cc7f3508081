// SPDX-License-Identifier: Apache-2.0
// What PEFT's adapter_config.json says of an adapter, and what of it is not built. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/nn/lora.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// An adapter_config.json, as far as it decides over what is computed.
class AdapterConfig {
 public:
  using Json = nlohmann::ordered_json;

  AdapterConfig(Json const& json, std::string name) : name_(std::move(name)) {
    if (!json.contains("peft_type") || json["peft_type"] != "LORA")
      fail("peft_type is " + (json.contains("peft_type") ? spelled(json["peft_type"]) : "missing") +
           "; adapters of type \"LORA\" are read");
    rank = whole(json, "r", "the rank");
    alpha = number(json, "lora_alpha", "the adapters' scale times their rank");
    if (json.contains("use_rslora")) rank_stabilized = json["use_rslora"] == true;
    read_pattern(json, "rank_pattern", ranks);
    for (auto const& [layer, value] : ranks)
      if (value != std::floor(value) || value > (1 << 20))
        fail("rank_pattern gives " + printable(layer) + " " + std::to_string(value) +
             "; it must be a whole number up to 2^20");
    read_pattern(json, "alpha_pattern", alphas);
    if (json.contains("target_modules")) read_targets(json["target_modules"]);
    if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string())
      base = json["base_model_name_or_path"].get<std::string>();
    if (json.contains("lora_dropout") && json["lora_dropout"].is_number())
      dropout = json["lora_dropout"].get<double>();
    for (auto const& [key, value] : json.items()) {
      if (!std::count(std::begin(without_effect), std::end(without_effect), key)) refuse_unknown(key, value);
      partly |= (key == "layers_to_transform" || key == "exclude_modules") && !neutral(value);
    }
  }

  int rank = 0;
  double alpha = 0.0, dropout = 0.0;
  bool rank_stabilized = false;
  std::vector<std::pair<std::string, double>> ranks, alphas;  ///< of layers that differ, by the ends of names
  std::vector<std::string> targets;                           ///< empty: a pattern, the tensors say which
  bool partly = false;                                        ///< not every layer that a target names has one
  std::string base;                                           ///< the model that it was made for

  /// The first pattern's number that names a layer, else `standard`.
  static double of(std::vector<std::pair<std::string, double>> const& pattern, std::string_view layer,
                   double standard) {
    for (auto const& [key, value] : pattern)
      if (names_layer(key, layer)) return value;
    return standard;
  }
  [[noreturn]] void fail(std::string const& text) const { throw Error(ErrorKind::data, name_ + ": " + text); }

 private:
  static bool neutral(Json const& value) {
    return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
  }
  static std::string spelled(Json const& value) { return printable(value.dump(), 60); }

  double number(Json const& json, char const* key, char const* what) const {
    if (!json.contains(key) || !json[key].is_number())
      fail(std::string("lacks ") + key + ", " + what + "; copy the whole folder of the adapter again");
    double const value = json[key].get<double>();
    if (!(value > 0.0 && std::isfinite(value)))
      fail(std::string(key) + " is " + spelled(json[key]) + "; it must be above 0");
    return value;
  }
  int whole(Json const& json, char const* key, char const* what) const {
    double const value = number(json, key, what);
    if (value != std::floor(value) || value > (1 << 20))
      fail(std::string(key) + " is " + spelled(json[key]) + "; it must be a whole number up to 2^20");
    return static_cast<int>(value);
  }
  void read_pattern(Json const& json, char const* key, std::vector<std::pair<std::string, double>>& into) {
    if (!json.contains(key) || neutral(json[key])) return;
    if (!json[key].is_object())
      fail(std::string(key) + " is " + spelled(json[key]) + "; it must be an object");
    for (auto const& [layer, value] : json[key].items()) {
      std::string const name = layer.starts_with('^') ? layer.substr(1) : layer;
      if (name.find_first_of("*+?()[]{}|\\^$") != name.npos)
        fail(std::string(key) + " has the regular expression " + printable(layer) +
             "; write the names of the layers instead");
      if (!value.is_number() || !(value.get<double>() > 0.0))
        fail(std::string(key) + " gives " + printable(layer) + " " + spelled(value) + "; it must be above 0");
      into.emplace_back(name, value.get<double>());
    }
  }
  void read_targets(Json const& value) {
    if (value.is_string() && value == "all-linear") targets = {"all-linear"};
    if (!value.is_array()) return;
    for (auto const& target : value) {
      if (!target.is_string())
        fail("target_modules holds " + spelled(target) + "; it must hold names of layers");
      targets.push_back(target.get<std::string>());
    }
  }
  /// A key that changes what is computed in a way that is not built, or may: what PEFT adds later is not
  /// passed over.
  void refuse_unknown(std::string const& key, Json const& value) const {
    constexpr char const* plain[] = {"gaussian", "orthogonal",
                                     "eva"};  // these leave the model's weights alone
    if (neutral(value) || (key == "bias" && value == "none")) return;
    bool const initial = key == "init_lora_weights";
    if (initial && (value.is_boolean() || std::count(std::begin(plain), std::end(plain), value))) return;
    fail(printable(key) + " is " + spelled(value) + ", which " +
         (initial ? "changes the model's own weights too" : "adapters here do not have") +
         "; fold the adapter into its model with PEFT (merge_and_unload) and start from that");
  }

  static constexpr char const* without_effect[] = {"peft_type",
                                                   "r",
                                                   "lora_alpha",
                                                   "lora_dropout",
                                                   "use_rslora",
                                                   "rank_pattern",
                                                   "alpha_pattern",
                                                   "target_modules",
                                                   "base_model_name_or_path",
                                                   "revision",
                                                   "task_type",
                                                   "inference_mode",
                                                   "peft_version",
                                                   "auto_mapping",
                                                   "layers_to_transform",
                                                   "layers_pattern",
                                                   "exclude_modules",
                                                   "fan_in_fan_out",
                                                   "megatron_core",
                                                   "eva_config",
                                                   "corda_config",
                                                   "loftq_config",
                                                   "lora_ga_config",
                                                   "arrow_config",
                                                   "qalora_group_size",
                                                   "runtime_config",
                                                   "ensure_weight_tying"};

  std::string name_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
