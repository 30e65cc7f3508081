// SPDX-License-Identifier: Apache-2.0
// Models by name: tiny, the sizes of GPT-2, other known ones, or layers=L,heads=H,channels=C[,positions=P].
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/token_file.hpp"
#include "tessera/nn/gpt2_options.hpp"

#include "common/values.hpp"

namespace tessera::inline v0 {
namespace cli {

/// A model of the command line. Sizes with 0 are settled by `with_sizes`.
struct ModelChoice {
  std::string name;             ///< as results spell it
  Gpt2Options options;          ///< of the GPT-2 kind
  bool named = false;           ///< its positions and vocabulary are its own
  bool in_build = true;         ///< false: known, but not of a kind that this build has
  std::int64_t parameters = 0;  ///< of a model that is not in the build; 0 otherwise

  friend bool operator==(ModelChoice const& a, ModelChoice const& b) { return a.name == b.name; }
};

namespace detail {

struct Known {
  std::string_view name;
  std::string_view hub;  ///< its name on the Hugging Face hub
  Gpt2Options options;
  bool in_build;
  std::int64_t parameters;
};

inline constexpr auto known_models = std::to_array<Known>({
    {"tiny", "", {4, 4, 128, 0, 0}, true, 0},
    {"gpt2", "openai-community/gpt2", {12, 12, 768, 1024, 50257}, true, 0},
    {"gpt2-medium", "openai-community/gpt2-medium", {24, 16, 1024, 1024, 50257}, true, 0},
    {"gpt2-large", "openai-community/gpt2-large", {36, 20, 1280, 1024, 50257}, true, 0},
    {"gpt2-xl", "openai-community/gpt2-xl", {48, 25, 1600, 1024, 50257}, true, 0},
    {"opt-1.3b", "facebook/opt-1.3b", {24, 32, 2048, 2048, 50272}, false, 1315758080},
    {"llama-2-7b", "meta-llama/Llama-2-7b-hf", {32, 32, 4096, 4096, 32000}, false, 6738415616},
    {"llama-2-13b", "meta-llama/Llama-2-13b-hf", {40, 40, 5120, 4096, 32000}, false, 13015864320},
    {"llama-2-70b", "meta-llama/Llama-2-70b-hf", {80, 64, 8192, 4096, 32000}, false, 68976648192},
});

/// "openai-community/gpt2", "gpt2", "meta-llama/Llama-2-7b" and "Llama-2-7b-hf" name known models.
inline Known const* find_known(std::string_view text) {
  std::string wanted = lower(text);
  for (Known const& known : known_models) {
    std::string const hub = lower(known.hub);
    std::string const short_hub = hub.substr(hub.find('/') + 1);
    auto const without_hf = [](std::string name) {
      return name.ends_with("-hf") ? name.substr(0, name.size() - 3) : name;
    };
    if (wanted == known.name) return &known;
    if (!hub.empty() && (wanted == hub || wanted == short_hub || wanted == without_hf(hub))) return &known;
  }
  return nullptr;
}

inline constexpr std::int64_t most_channels = 65536;

inline ModelChoice sizes_choice(std::string const& flag, std::string const& text) {
  ModelChoice model;
  model.options = {0, 0, 0, 0, 0};
  for (auto const& item : split_list(flag, {text})) {
    std::size_t const equals = item.find('=');
    std::string const key =
        cli::choice(flag, item.substr(0, equals), {"layers", "heads", "channels", "positions"});
    if (equals == std::string::npos)
      refuse(flag + ": " + in_quotes(item) + " has no number; write " + key + "=N");
    std::int64_t const most = key == "layers"      ? 1000
                              : key == "positions" ? (std::int64_t{1} << 31) - 1
                                                   : most_channels;
    std::int64_t const number =
        whole_number(flag + " " + key, std::string_view(item).substr(equals + 1), 1, most);
    std::int64_t& field = key == "layers"     ? model.options.layers
                          : key == "heads"    ? model.options.heads
                          : key == "channels" ? model.options.channels
                                              : model.options.positions;
    if (field != 0) refuse(flag + ": " + in_quotes(text) + " gives " + key + " twice; give it once");
    field = number;
  }
  auto const need = [&](std::int64_t value, char const* key) {
    if (value == 0)
      refuse(flag + ": " + in_quotes(text) + " lacks " + key +
             "; write layers=L,heads=H,channels=C[,positions=P]");
  };
  need(model.options.layers, "layers");
  need(model.options.heads, "heads");
  need(model.options.channels, "channels");
  Gpt2Options const& sizes = model.options;
  model.name = "layers=" + std::to_string(sizes.layers) + ",heads=" + std::to_string(sizes.heads) +
               ",channels=" + std::to_string(sizes.channels) +
               (sizes.positions > 0 ? ",positions=" + std::to_string(sizes.positions) : "");
  if (sizes.channels % sizes.heads != 0) {
    std::int64_t const below = sizes.channels / sizes.heads * sizes.heads, above = below + sizes.heads;
    std::string nearest = std::to_string(below > 0 ? below : above);
    if (below > 0 && above <= most_channels) nearest += " and channels=" + std::to_string(above);
    throw Error(ErrorKind::config, flag + ": " + std::to_string(sizes.heads) + " heads do not divide " +
                                       std::to_string(sizes.channels) + " channels (remainder " +
                                       std::to_string(sizes.channels - below) +
                                       "); the nearest that fit are channels=" + nearest);
  }
  return model;
}

}  // namespace detail

/// The names that the command line knows.
inline Names model_names() {
  Names names;
  for (auto const& known : detail::known_models) names.emplace_back(known.name);
  return names;
}

/// One model. Throws Error(usage) with the nearest name, Error(config) when heads do not divide channels.
inline ModelChoice model_choice(std::string const& flag, std::string const& text) {
  if (detail::Known const* known = detail::find_known(text)) {
    ModelChoice model;
    model.name = known->name;
    model.options = known->options;
    model.named = known->options.positions != 0;
    model.in_build = known->in_build;
    model.parameters = known->parameters;
    return model;
  }
  if (text.find('=') != std::string::npos) return detail::sizes_choice(flag, text);
  Names all = model_names();
  std::string const near = nearest(text, all);
  refuse(flag + ": " + in_quotes(text) + " is not known, the nearest is '" + near + "'; choose from " +
         joined(all) + " or write layers=L,heads=H,channels=C[,positions=P]");
}

/// Models between commas or spaces, where "layers=2,heads=2,channels=64" is one of them.
inline std::vector<ModelChoice> model_list(std::string const& flag, Names const& values) {
  Names models;
  for (auto const& value : values) {
    bool open = false;  // the last model of this word is a list of sizes that may go on
    for (auto const& item : split_list(flag, {value})) {
      bool const size = item.find('=') != std::string::npos;
      std::string const key = item.substr(0, item.find('=') + 1);
      bool const goes_on = open && size && models.back().find(key) == std::string::npos;
      if (goes_on)
        models.back() += "," + item;
      else
        models.push_back(item);
      open = size;
    }
  }
  std::vector<ModelChoice> found;
  for (auto const& model : models) found.push_back(model_choice(flag, model));
  return distinct(found);
}

/// The model with its positions and vocabulary settled: a named model keeps its own, another one gets
/// max(sequence, 1024) positions unless it says them, and `text_vocabulary` (that of the data) unless
/// `vocabulary` (a flag; 0: not given) says otherwise. Throws Error(config) when the sequence is beyond the
/// positions.
inline ModelChoice with_sizes(ModelChoice model, std::int64_t sequence, std::int64_t vocabulary,
                              std::int64_t text_vocabulary = 256) {
  Gpt2Options& sizes = model.options;
  if (sizes.positions == 0) sizes.positions = std::max<std::int64_t>(sequence, 1024);
  if (vocabulary > 0) sizes.vocabulary = vocabulary;
  if (sizes.vocabulary == 0) sizes.vocabulary = text_vocabulary;
  if (sequence > sizes.positions)
    throw Error(ErrorKind::config, "--sequence " + std::to_string(sequence) + " is beyond the " +
                                       std::to_string(sizes.positions) + " positions of " + model.name +
                                       "; give --sequence " + std::to_string(sizes.positions) +
                                       " or less, or a model with more positions");
  return model;
}

/// Refuses sizes whose bytes cannot be counted in 64 bits, long before any plan does.
inline void check_magnitude(ModelChoice const& model, std::int64_t batch, std::int64_t sequence) {
  Gpt2Options const& sizes = model.options;
  double const tokens = static_cast<double>(batch) * static_cast<double>(sequence);
  double const values =
      tokens * (static_cast<double>(sizes.vocabulary) +
                40.0 * static_cast<double>(sizes.channels) * static_cast<double>(sizes.layers));
  if (values > 1e15)
    throw Error(ErrorKind::config, "--batch " + std::to_string(batch) + " x --sequence " +
                                       std::to_string(sequence) + " with " + model.name +
                                       " and a vocabulary of " + std::to_string(sizes.vocabulary) +
                                       " is more than 10^15 values a step; lower one of them");
}

/// Why this build cannot run a model; nothing when it can.
inline std::optional<std::string> model_refusal(ModelChoice const& model) {
  if (model.in_build) return std::nullopt;
  return "model " + model.name + " is not part of this build; use one of the GPT-2 kind";
}

}  // namespace cli
}  // namespace tessera::inline v0
