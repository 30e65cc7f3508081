// SPDX-License-Identifier: Apache-2.0
// Reads PEFT's adapter_config.json and rejects unsupported settings. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Returns the compiled form of `text`, a regular expression for layer names in the syntax of Python's `re`.
/// Throws Error(data) if `text` has another meaning in std::regex than in Python, or if a match could need
/// too much time. The error message begins with `what`.
inline std::regex python_pattern(std::string const& text, std::string const& what) {
  // std::regex backtracks, which can take exponential time. Two limits keep the match below 1 s for all
  // layers of a model: at most four repetitions, and no repeated group that contains a choice or a
  // repetition.
  constexpr int max_repetitions = 4;
  std::string why = text.size() > 1000 ? "has more than 1000 characters" : "";
  bool in_class = false;
  int repetitions = 0;
  std::vector<bool> groups;  // for each open group: whether it contains a choice or a repetition
  bool was_choice = false;   // whether the group that has just ended contains a choice or a repetition
  for (std::size_t at = 0; at < text.size() && why.empty(); ++at) {
    std::string_view const rest = std::string_view(text).substr(at), next = rest.substr(1);
    auto const next_is = [&](std::string_view letters) {
      return !next.empty() && letters.find(next.front()) != letters.npos;
    };
    bool const repeats = !in_class && std::string_view("*+{").find(rest.front()) != std::string_view::npos;
    if (repeats && ++repetitions > max_repetitions) why = "has more than four repetitions";
    if (repeats && was_choice) why = "repeats a group with | or a repetition in it";
    was_choice = false;
    if (rest.front() == '(' && !in_class) {
      groups.push_back(false);
    } else if (!groups.empty() && !in_class && (repeats || rest.front() == '|')) {
      groups.back() = true;
    } else if (!groups.empty() && !in_class && rest.front() == ')') {
      was_choice = groups.back();
      groups.pop_back();
      if (was_choice && !groups.empty()) groups.back() = true;
    }
    if (!why.empty()) break;
    if (rest.front() == '\\') {
      bool const letter = !next.empty() && std::isalnum(static_cast<unsigned char>(next.front())) != 0;
      if (letter && !next_is(in_class ? "dDwWsS" : "dDwWsSbB"))
        why = "has the escape \\" + std::string(next.substr(0, 1));
      ++at;
    } else if (in_class) {
      in_class = rest.front() != ']';
      if (rest.front() == '[') why = "has [ within [ ]";
    } else if (rest.front() == '[') {
      in_class = true;
      if (next.starts_with("]") || next.starts_with("^]")) why = "has ] as the first of [ ]";
    } else if (rest.starts_with("(?") && !rest.starts_with("(?:") && !rest.starts_with("(?=") &&
               !rest.starts_with("(?!")) {
      why = "has the group " + std::string(rest.substr(0, 3));
    } else if (std::string_view("*+?}").find(rest.front()) != std::string_view::npos && next_is("*+{")) {
      why = "repeats a repetition";
    }
  }
  try {
    if (why.empty()) return std::regex(text);
  } catch (std::regex_error const&) {
    throw Error(ErrorKind::data,
                what + " " + printable(text, 60) +
                    " is not a regular expression; correct it, or write the names of the layers");
  }
  throw Error(ErrorKind::data, what + " " + printable(text, 60) + " " + why +
                                   ", which is not supported in regular expressions; write the names of the "
                                   "layers instead");
}

/// The settings in an adapter_config.json that affect the computation.
class AdapterConfig {
 public:
  using Json = nlohmann::ordered_json;

  AdapterConfig(Json const& json, std::string name) : name_(std::move(name)) {
    if (!json.contains("peft_type") || json["peft_type"] != "LORA")
      fail("peft_type is " + (json.contains("peft_type") ? spelled(json["peft_type"]) : "missing") +
           "; only adapters of type \"LORA\" can be read");
    rank = integer(json, "r", "the rank");
    alpha = number(json, "lora_alpha", "the adapters' scale times their rank");
    if (json.contains("use_rslora")) {
      if (!json["use_rslora"].is_boolean() && !json["use_rslora"].is_null())
        fail("use_rslora is " + spelled(json["use_rslora"]) + "; it must be true or false");
      rank_stabilized = json["use_rslora"] == true;
    }
    read_pattern(json, "rank_pattern", ranks_, 1 << 20);
    read_pattern(json, "alpha_pattern", alphas_, 0);
    if (json.contains("target_modules")) read_names(json["target_modules"], "target_modules", targets_);
    if (json.contains("exclude_modules")) read_names(json["exclude_modules"], "exclude_modules", excluded_);
    read_layers(json);
    if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string())
      base = json["base_model_name_or_path"].get<std::string>();
    if (json.contains("lora_dropout") && json["lora_dropout"].is_number())
      dropout = json["lora_dropout"].get<double>();
    for (auto const& [key, value] : json.items()) {
      if (!std::count(std::begin(known), std::end(known), key)) refuse_unknown(key, value);
    }
  }

  int rank = 0;
  double alpha = 0.0, dropout = 0.0;
  bool rank_stabilized = false;
  std::string base;  ///< the name or path of the model that the adapter was trained for

  // In the next functions, `module` is the full name of a layer in the model's own files, for example
  // "transformer.h.0.attn.c_attn".

  int rank_of(std::string const& module) const { return static_cast<int>(of(ranks_, module).value_or(rank)); }
  double alpha_of(std::string const& module) const { return of(alphas_, module).value_or(alpha); }
  /// Returns the names in target_modules. The list is empty if target_modules is a pattern or missing.
  std::vector<std::string> const& targets() const { return targets_.names; }
  bool is_target(std::string const& module) const { return targets_.hold(module); }
  /// Whether PEFT adds an adapter to the layer `module`.
  bool has(std::string const& module) const {
    if (excluded_.hold(module)) return false;
    if (!targets_.pattern && (targets_.names.empty() || targets_.names.front() == "all-linear")) return true;
    if (!is_target(module)) return false;
    bool const whole_name =
        std::find(targets_.names.begin(), targets_.names.end(), module) != targets_.names.end();
    if (!layers_ || whole_name)
      return true;  // PEFT checks the layer number only for a name that matches the end of `module`
    for (std::regex const& pattern : layers_patterns_) {
      std::smatch found;
      if (!std::regex_search(module, found, pattern, std::regex_constants::match_continuous)) continue;
      std::string const index = found[found.size() - 1];
      return std::any_of(layers_->begin(), layers_->end(),
                         [&](std::int64_t layer) { return std::to_string(layer) == index; });
    }
    return false;
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
  int integer(Json const& json, char const* key, char const* what) const {
    double const value = number(json, key, what);
    if (value != std::floor(value) || value > (1 << 20))
      fail(std::string(key) + " is " + spelled(json[key]) + "; it must be a whole number up to 2^20");
    return static_cast<int>(value);
  }
  struct Pattern {
    std::regex key;
    double value;
  };
  /// The value of target_modules or exclude_modules: a list of names, or one regular expression. A name
  /// matches a layer if it equals the layer's full name or the end of the full name after a dot. A regular
  /// expression must match the full name.
  struct Modules {
    std::vector<std::string> names;
    std::optional<std::regex> pattern;

    bool hold(std::string const& module) const {
      if (pattern) return std::regex_match(module, *pattern);
      return std::any_of(names.begin(), names.end(), [&](std::string const& name) {
        return module == name || module.ends_with("." + name);
      });
    }
  };
  /// Returns the value of the first pattern that matches `module` or the end of `module` after a dot.
  static std::optional<double> of(std::vector<Pattern> const& patterns, std::string const& module) {
    for (auto const& [key, value] : patterns)
      if (std::regex_search(module, key, std::regex_constants::match_continuous)) return value;
    return std::nullopt;
  }
  /// Reads the object at `key`, which maps patterns of layer names to numbers, into `into`. If `max` is above
  /// 0, the numbers must be whole numbers up to `max`. If `max` is 0, they may be any numbers above 0.
  void read_pattern(Json const& json, char const* key, std::vector<Pattern>& into, int max) const {
    if (!json.contains(key) || neutral(json[key])) return;
    if (!json[key].is_object())
      fail(std::string(key) + " is " + spelled(json[key]) + "; it must be an object");
    for (auto const& [layer, value] : json[key].items()) {
      std::string const gives = std::string(key) + " gives " + printable(layer) + " ";
      double const number = value.is_number() ? value.get<double>() : 0.0;
      if (!(number > 0.0)) fail(gives + spelled(value) + "; it must be above 0");
      if (max > 0 && (number != std::floor(number) || number > max))
        fail(gives + std::to_string(number) + "; it must be a whole number up to 2^20");
      (void)python_pattern(layer, name_ + ": " + key);
      into.push_back({python_pattern("(.*\\.)?(" + layer + ")$", name_ + ": " + key), number});
    }
  }
  void read_names(Json const& value, char const* key, Modules& into) const {
    if (value == "all-linear" && &into == &targets_) {
      into.names = {"all-linear"};
    } else if (value.is_string()) {
      into.pattern = python_pattern(value.get<std::string>(), name_ + ": " + key);
    } else if (value.is_array()) {
      for (auto const& target : value) {
        if (!target.is_string())
          fail(std::string(key) + " holds " + spelled(target) + "; it must hold names of layers");
        into.names.push_back(target.get<std::string>());
      }
    } else if (!value.is_null()) {
      fail(std::string(key) + " is " + spelled(value) + "; it must be a list of names, or a pattern");
    }
  }
  /// Reads two keys. layers_to_transform is a list of the numbers of the layers that get an adapter.
  /// layers_pattern is the name that precedes the number in the full name of a layer, such as "h".
  void read_layers(Json const& json) {
    if (!json.contains("layers_to_transform") || neutral(json["layers_to_transform"])) return;
    Json const& layers = json["layers_to_transform"];
    if (targets_.pattern || json.value("target_modules", Json()) == "all-linear")
      fail("layers_to_transform needs a list in target_modules; select the layers in the pattern instead");
    layers_.emplace();
    for (auto const& layer : layers.is_array() ? layers : Json::array({layers})) {
      if (!layer.is_number_integer())
        fail("layers_to_transform holds " + spelled(layer) + "; it must hold numbers of layers");
      layers_->push_back(layer.get<std::int64_t>());
    }
    Modules between;
    if (json.contains("layers_pattern")) {
      Json const& pattern = json["layers_pattern"];
      read_names(pattern.is_string() && pattern != "" ? Json::array({pattern})
                 : pattern == ""                      ? Json()
                                                      : pattern,
                 "layers_pattern", between);
    }
    if (between.names.empty()) layers_patterns_.emplace_back(R"(.*?\.[^.]*\.(\d+)\.)");
    for (std::string const& name : between.names)
      layers_patterns_.push_back(
          python_pattern("(?:^|.*?\\.)" + name + "\\.(\\d+)\\.", name_ + ": layers_pattern"));
  }
  /// Throws Error(data) if a key that this class does not know possibly changes the computation. A future
  /// PEFT can add such keys. Values that switch a feature off, such as null or false, are accepted.
  void refuse_unknown(std::string const& key, Json const& value) const {
    constexpr char const* plain[] = {"gaussian", "orthogonal",
                                     "eva"};  // these only choose initial values of the adapter
    if (neutral(value) || (key == "bias" && value == "none")) return;
    bool const initial = key == "init_lora_weights";
    if (initial && (value.is_boolean() || std::count(std::begin(plain), std::end(plain), value))) return;
    fail(printable(key) + " is " + spelled(value) + ", which " +
         (initial ? "changes the model's own weights too" : "tessera's adapters do not support") +
         "; merge the adapter into its model with PEFT (merge_and_unload) and start from that");
  }

  static constexpr char const* known[] = {"peft_type",
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
  std::vector<Pattern> ranks_, alphas_;
  Modules targets_, excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  ///< layers with an adapter; empty: all
  std::vector<std::regex> layers_patterns_;          ///< the last group of each captures the layer number
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
