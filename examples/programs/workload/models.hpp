// SPDX-License-Identifier: Apache-2.0
// Finds the model that the command line gives as text. The text is the name of a known model, the sizes of a
// model as FAMILY:key=N,..., or the path of a folder with a config.json. Without "FAMILY:" the model belongs
// to the first family of model_families().
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/train/model_family.hpp"

#include "cli/values.hpp"
#include "workload/model_folders.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// A model from the command line. The function `with_sizes` derives the sizes that are 0 and builds the
/// model.
struct ModelChoice {
  std::string name;  ///< the name in result files
  ModelFamily const* family = nullptr;
  ModelSpec sizes;
  bool named = false;                 ///< whether the model has its own positions and vocabulary
  std::int64_t parameters = 0;        ///< number of parameters of a model that cannot be built; 0 otherwise
  std::string lacking = {};           ///< why the model cannot be built; empty if it can
  AnyModel built = {};                ///< the model; empty until with_sizes, or if it cannot be built
  std::filesystem::path folder = {};  ///< folder with the config.json, or a file of llm.c; or empty
  std::string config = {};            ///< the text of the config.json
  std::string not_applied = {};       ///< settings of `config` that training here ignores
  ParameterSource weights = {};       ///< the initial weights; empty: random ones from the seed
  std::string hub = {};               ///< the model's name on the Hugging Face hub, if the user gave it
  std::string same_folder = {};       ///< the user gave this name of a known model, and a folder has it too

  /// Returns whether the model can run. A known model cannot run if it needs a feature that its family does
  /// not have here.
  bool can_run() const { return lacking.empty(); }
  friend bool operator==(ModelChoice const& a, ModelChoice const& b) { return a.name == b.name; }
};

/// Returns the folders of the models, or their files of llm.c. A model that has neither is left out.
inline std::vector<std::filesystem::path> folders_of(std::vector<ModelChoice> const& models) {
  std::vector<std::filesystem::path> folders;
  for (ModelChoice const& model : models)
    if (!model.folder.empty()) folders.push_back(model.folder);
  return folders;
}

namespace detail {

inline bool is_folder(std::string const& text) {
  std::error_code code;
  return std::filesystem::is_directory(text, code);
}

inline bool is_file(std::string const& text) {
  std::error_code code;
  return std::filesystem::is_regular_file(text, code);
}

inline void for_each_named(std::function<void(ModelFamily const&, NamedModel const&)> const& visit) {
  for (ModelFamily const* family : model_families())
    for (NamedModel const& model : family->models) visit(*family, model);
}

/// Returns the known model with this name; nullopt if there is none. The name may be "openai-community/gpt2",
/// "gpt2", "meta-llama/Llama-2-7b" or "Llama-2-7b-hf", for example.
inline std::optional<ModelChoice> find_known(std::string_view text) {
  std::string const lower_name = lower(text);
  auto const without_hf = [](std::string name) {
    return name.ends_with("-hf") ? name.substr(0, name.size() - 3) : name;
  };
  std::optional<ModelChoice> found;
  for_each_named([&](ModelFamily const& family, NamedModel const& model) {
    std::string const hub = lower(model.hub);
    std::string const short_hub = hub.substr(hub.find('/') + 1);
    bool const own = lower_name == lower(model.name);
    bool const on_hub =
        !hub.empty() && (lower_name == hub || lower_name == short_hub || lower_name == without_hf(hub));
    if (found || (!own && !on_hub)) return;
    found = ModelChoice{model.name,           &family,          family.spec(model),
                        model.positions != 0, model.parameters, model.lacking};
    if (!own) found->hub = model.hub;
    if (is_file(std::string(text) + "/config.json")) found->same_folder = text;
  });
  return found;
}

/// Returns the text before the sizes of a model of this family, such as "llama:". For the first family of
/// model_families(), whose name can be left out, returns "".
inline std::string prefix_of(ModelFamily const& family) {
  return &family == model_families().front() ? std::string() : family.name + ":";
}

/// Returns the syntax of the sizes of a family: "layers=L,heads=H,channels=C[,positions=P]".
inline std::string form_of(ModelFamily const& family) {
  auto const item = [](std::string const& key) {
    return key + "=" + static_cast<char>(std::toupper(static_cast<unsigned char>(key.front())));
  };
  std::string text;
  for (ModelKey const& key : family.keys) {
    std::string const part = (text.empty() ? "" : ",") + item(key.name);
    text += key.standard ? "[" + part + "]" : part;
  }
  return prefix_of(family) + text + "[," + item("positions") + "]";
}

inline std::string number_text(ModelKey const& key, double number) {
  return key.real ? shortest(number) : std::to_string(static_cast<std::int64_t>(number));
}

/// Throws if a size must divide another size but does not. For example, the number of heads must divide the
/// number of channels. The message suggests the nearest valid number.
inline void check_divisors(std::string const& flag, ModelFamily const& family, ModelSpec const& sizes) {
  for (ModelKey const& key : family.keys) {
    if (key.divides.empty()) continue;
    std::int64_t const divisor = sizes.integer(key.name), number = sizes.integer(key.divides);
    if (number % divisor == 0) continue;
    auto const of = std::find_if(family.keys.begin(), family.keys.end(),
                                 [&](ModelKey const& other) { return other.name == key.divides; });
    std::int64_t const below = number / divisor * divisor, above = below + divisor;
    std::string nearest = std::to_string(below > 0 ? below : above);
    if (below > 0 && above <= of->max) nearest += " and " + of->name + "=" + std::to_string(above);
    throw Error(ErrorKind::config, flag + ": " + std::to_string(divisor) + " " + key.name +
                                       " do not divide " + std::to_string(number) + " " + of->name +
                                       " (remainder " + std::to_string(number - below) +
                                       "); the nearest that fit are " + of->name + "=" + nearest);
  }
}

/// Splits "FAMILY:key=N,..." at the colon. Returns the family and the text of the sizes. Without a colon,
/// returns the first family of model_families().
inline std::pair<ModelFamily const*, std::string> family_of(std::string const& flag,
                                                            std::string const& text) {
  std::vector<ModelFamily const*> families = model_families();
  std::size_t const colon = text.find(':');
  if (colon == std::string::npos || colon > text.find('=')) return {families.front(), text};
  Names names;
  for (ModelFamily const* family : families) names.push_back(family->name);
  std::string const name = choice(flag, text.substr(0, colon), names);
  auto const at = std::find(names.begin(), names.end(), name) - names.begin();
  return {families[static_cast<std::size_t>(at)], text.substr(colon + 1)};
}

inline ModelChoice sizes_choice(std::string const& flag, std::string const& text) {
  auto const [family, list] = family_of(flag, text);
  ModelKey const positions{"positions", (std::int64_t{1} << 31) - 1};
  std::vector<ModelKey const*> keys;
  for (ModelKey const& key : family->keys) keys.push_back(&key);
  keys.push_back(&positions);
  Names names, members;
  for (ModelKey const* key : keys) {
    names.push_back(key->name);
    members.push_back(key->member);
  }
  std::vector<std::optional<double>> given(keys.size());
  for (auto const& item : split_list(flag, {list})) {
    std::size_t const equals = item.find('=');
    std::string spelt = item.substr(0, equals);
    if (auto const member = std::find(members.begin(), members.end(), lower(spelt)); member != members.end())
      spelt = names[static_cast<std::size_t>(member - members.begin())];
    std::string const name = cli::choice(flag, spelt, names);
    if (equals == std::string::npos)
      refuse(flag + ": " + in_quotes(item) + " has no number; write " + name + "=N");
    auto const at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    std::string_view const digits = std::string_view(item).substr(equals + 1);
    double const number =
        keys[at]->real
            ? parse_real(flag + " " + name, digits,
                         {.min = 0.0, .max = static_cast<double>(keys[at]->max), .open_below = true})
            : static_cast<double>(parse_integer(flag + " " + name, digits, keys[at]->min, keys[at]->max));
    if (given[at]) refuse(flag + ": " + in_quotes(text) + " gives " + name + " twice; give it once");
    given[at] = number;
  }
  ModelChoice model;
  model.family = family;
  for (std::size_t at = 0; at < keys.size(); ++at) {
    if (given[at])
      model.name += (model.name.empty() ? "" : ",") + names[at] + "=" + number_text(*keys[at], *given[at]);
    if (keys[at] == &positions) break;
    if (!given[at] && !keys[at]->standard)
      refuse(flag + ": " + in_quotes(text) + " lacks " + names[at] + "; write " + form_of(*family));
    model.sizes.numbers.push_back({names[at], given[at] ? *given[at] : keys[at]->standard(model.sizes)});
  }
  model.name = prefix_of(*family) + model.name;
  model.sizes.positions = static_cast<std::int64_t>(given.back().value_or(0.0));
  check_divisors(flag, *family, model.sizes);
  return model;
}

}  // namespace detail

/// Returns the names of all known models; with `runnable_only`, only of the models that can run here.
inline Names model_names(bool runnable_only = false) {
  Names names;
  detail::for_each_named([&](ModelFamily const&, NamedModel const& model) {
    if (model.lacking.empty() || !runnable_only) names.push_back(model.name);
  });
  return names;
}

/// Returns the syntax of the sizes for all families as one text.
inline std::string model_forms() {
  Names forms;
  for (ModelFamily const* family : model_families()) forms.push_back(detail::form_of(*family));
  return joined(forms, " or ");
}

namespace detail {

inline ModelChoice folder_choice(std::string const& flag, std::string const& text) {
  FolderModel from = is_folder(text) ? read_model_folder(text) : read_model_file(text);
  ModelChoice model{.name = files::path_text(text.substr(0, text.find_last_not_of('/') + 1)),
                    .family = from.family,
                    .sizes = std::move(from.sizes),
                    .named = true,
                    .built = {},
                    .folder = text,
                    .config = std::move(from.config),
                    .not_applied = std::move(from.not_applied)};
  check_divisors(flag + " " + model.name, *model.family, model.sizes);
  return model;
}

}  // namespace detail

/// Returns the model that a text of the command line gives. Throws Error(usage) for an unknown name, with the
/// nearest known one, and for a path at which there is nothing. Throws Error(config) if the heads do not
/// divide the channels, and the errors of read_model_folder.
inline ModelChoice model_choice(std::string const& flag, std::string const& text) {
  if (auto known = detail::find_known(text)) return *std::move(known);
  if (detail::is_folder(text) || detail::is_file(text)) return detail::folder_choice(flag, text);
  if (text.starts_with('.') || text.find('/') != std::string::npos)  // no name and no sizes have a slash
    refuse(flag + ": there is no folder or file " + in_quotes(text) +
           "; name a folder with config.json and model.safetensors (docs/how-to/load-and-save-weights.md has "
           "the "
           "command that downloads one)");
  if (text.find('=') != std::string::npos) return detail::sizes_choice(flag, text);
  Names all = model_names(/*runnable_only=*/true);
  std::string const near = nearest(text, all);
  refuse(flag + ": " + in_quotes(text) + " is not known, the nearest is '" + near + "'; choose from " +
         joined(all) + ", name a folder with a config.json or a file of llm.c, or write " + model_forms());
}

/// Returns the name of the known model that has the same sizes, positions and vocabulary as `model`, for
/// example "gpt2-medium" for a folder with the downloaded weights of gpt2-medium. If no known model
/// matches, returns the name of `model`. `model` must have its sizes (with_sizes).
inline std::string known_name(ModelChoice const& model) {
  std::string name = model.name;
  detail::for_each_named([&](ModelFamily const& family, NamedModel const& known) {
    if (&family != model.family || name != model.name) return;
    ModelSpec const spec = family.spec(known);
    bool same = spec.positions == model.sizes.positions && spec.vocabulary == model.sizes.vocabulary;
    for (ModelKey const& key : family.keys)
      same = same && model.sizes.number(key.name, NAN) == spec.number(key.name);
    if (same) name = known.name;
  });
  return name;
}

/// Prints a warning if the model has random weights, but the user possibly expects other weights: if a folder
/// has the name of the model too, if the user gave the model's name on the Hugging Face hub, or if the
/// model's folder has no weights. Nothing is downloaded.
inline void warn_of_random_weights(std::string const& flag, ModelChoice const& model) {
  if (!model.can_run()) return;
  if (!model.same_folder.empty()) {
    std::string const name = files::path_text(model.same_folder);
    std::cerr << "warning: the folder ./" << name << " exists; " << flag << " " << name
              << " starts from random weights, " << flag << " ./" << name << " reads the folder" << std::endl;
  } else if (!model.hub.empty()) {
    std::cerr
        << "warning: " << flag << " " << model.hub
        << " gives only the sizes of this model: nothing was downloaded, and the weights are random. For "
           "the trained weights: hf download "
        << model.hub << " --local-dir " << model.name << ", then " << flag << " ./" << model.name
        << ", or --init ./" << model.name << std::endl;
  } else if (!model.folder.empty() && !holds_weights(model.folder)) {
    std::cerr << "warning: the folder " << files::path_text(model.folder)
              << " holds a config.json but no weights: the training starts from random weights" << std::endl;
  }
}

/// Returns the models in a list, which is separated by commas or spaces. The commas between sizes such as
/// "layers=2,heads=2,channels=64" do not separate models.
inline std::vector<ModelChoice> model_list(std::string const& flag, Names const& values) {
  Names models;
  for (auto const& value : values) {
    if (detail::is_folder(value) || detail::is_file(value)) {
      models.push_back(value);
      continue;
    }
    Names keys;  // the keys in the sizes of the last model; empty if this model is a name
    for (auto const& item : split_list(flag, {value})) {
      std::size_t const equals = item.find('='), colon = item.find(':');
      bool const size = equals != std::string::npos, begins = colon < equals;
      std::string const key = item.substr(begins ? colon + 1 : 0, equals - (begins ? colon + 1 : 0));
      bool const goes_on =
          !keys.empty() && size && !begins && std::find(keys.begin(), keys.end(), key) == keys.end();
      if (goes_on) {
        models.back() += "," + item;
      } else {
        models.push_back(item);
        keys.clear();
      }
      if (size) keys.push_back(key);
    }
  }
  std::vector<ModelChoice> found;
  for (auto const& model : models) found.push_back(model_choice(flag, model));
  return distinct(found);
}

/// Completes the sizes of the model and builds it. A `vocabulary` above 0 is the value of a flag and replaces
/// the vocabulary size of the model. If the model has no number of positions, it gets max(sequence, 1024). If
/// it has no vocabulary size, it gets `text_vocabulary`, the vocabulary size of the data. Throws
/// Error(config) if the sequence is longer than the number of positions.
inline ModelChoice with_sizes(ModelChoice model, std::int64_t sequence, std::int64_t vocabulary,
                              std::int64_t text_vocabulary = 256) {
  ModelSpec& sizes = model.sizes;
  if (sizes.positions == 0) sizes.positions = std::max<std::int64_t>(sequence, 1024);
  if (vocabulary > 0) sizes.vocabulary = vocabulary;
  if (sizes.vocabulary == 0) sizes.vocabulary = text_vocabulary;
  if (sequence > sizes.positions)
    throw Error(ErrorKind::config, "--sequence " + std::to_string(sequence) + " is beyond the " +
                                       std::to_string(sizes.positions) + " positions of " + model.name +
                                       "; give --sequence " + std::to_string(sizes.positions) +
                                       " or less, or a model with more positions");
  if (model.can_run()) model.built = model.family->make(sizes);
  return model;
}

/// Opens and checks the weights in the model's folder. Does nothing if there are no weights.
inline void open_weights(ModelChoice& model) {
  if (model.built && holds_weights(model.folder))
    model.weights =
        ModelWeights::open(model.folder, model.built.units({1, 1}), model.family->weights).source();
}

/// Throws if a step would have more than 10^15 values, because numbers of bytes could overflow 64 bits. Must
/// be called before planning.
inline void check_magnitude(ModelChoice const& model, std::int64_t batch, std::int64_t sequence) {
  if (!model.built) return;
  double values = 0.0;  // activations per token
  for (UnitSpec const& unit : model.built.units({1, 1})) {
    values += static_cast<double>(unit.output.elements());
    for (auto const* list : {&unit.saved, &unit.backward})
      for (ActivationSpec const& activation : *list)
        values += static_cast<double>(activation.shape.elements());
  }
  if (static_cast<double>(batch) * static_cast<double>(sequence) * values > 1e15)
    throw Error(ErrorKind::config, "--batch " + std::to_string(batch) + " x --sequence " +
                                       std::to_string(sequence) + " with " + model.name +
                                       " and a vocabulary of " + std::to_string(model.sizes.vocabulary) +
                                       " is more than 10^15 values a step; lower one of them");
}

/// Throws if a micro-batch has more tokens than a trainer accepts.
inline void check_micro_batch(std::int64_t batch, std::int64_t sequence) {
  if (static_cast<double>(batch) * static_cast<double>(sequence) > 0x1p28)
    throw Error(ErrorKind::config, "--batch " + std::to_string(batch) + " x --sequence " +
                                       std::to_string(sequence) +
                                       " is more than 2^28 tokens a micro-batch; lower one of them");
}

/// Returns why a model cannot run; nullopt if it can.
inline std::optional<std::string> model_refusal(ModelChoice const& model) {
  if (model.can_run()) return std::nullopt;
  return "model " + model.name + " " + model.lacking + ", which " + model.family->title +
         " models do not support here; use another model";
}

}  // namespace cli
}  // namespace programs
