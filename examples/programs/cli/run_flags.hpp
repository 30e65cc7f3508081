// SPDX-License-Identifier: Apache-2.0
// Provides the command-line flags that several programs share: flags for the data, the optimizer, the
// adapters, the seed and the threads.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/records.hpp"
#include "tessera/nn/freeze.hpp"
#include "tessera/nn/lora.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/policy/table.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/planning.hpp"

#include "cli/command_line.hpp"
#include "cli/option_flags.hpp"
#include "cli/pattern.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

struct DataFlags {
  std::vector<std::string> paths;  ///< empty: the file or folder default_data_path
  Order order = Order::shuffled;
  std::int64_t vocabulary = 0;  ///< 0: the vocabulary of the model or of the data
  SamplesAre samples_are = SamplesAre::tokens;
  std::string field = "text";   ///< the field of a JSON record that has the text
  std::int64_t separator = -1;  ///< the token between documents; negative: the default of the data's format
  std::string tokenizer;        ///< the tokenizer for text; empty: each byte is a token
};

inline char const* name_of(SamplesAre kind) {
  return kind == SamplesAre::lines ? "lines" : kind == SamplesAre::records ? "records" : "tokens";
}

/// Adds the flags that say how data is divided into samples and encoded.
inline void add_sample_flags(CommandLine& line, DataFlags& flags) {
  line.custom("--samples-are", "tokens|lines|records", name_of(flags.samples_are),
              "what a sample is: a stretch of tokens; or a line or record (JSON Lines, documents), cut or "
              "padded to --sequence. Empty lines and empty records are left out",
              [&](std::string const& flag, std::string const& value) {
                std::string const name = cli::choice(flag, value, {"tokens", "lines", "records"});
                flags.samples_are = name == "lines"     ? SamplesAre::lines
                                    : name == "records" ? SamplesAre::records
                                                        : SamplesAre::tokens;
              });
  line.text("--field", "NAME", flags.field, "the field of a JSON record that holds its text");
  line.custom("--separator", "TOKEN", "",
              "the token that ends a document of a token file; default: 50256, or 128000 in 32-bit files",
              [&](std::string const& flag, std::string const& value) {
                flags.separator = parse_integer(flag, value, 0, (std::int64_t{1} << 31) - 1);
              });
  line.text("--tokenizer", "DIR", flags.tokenizer,
            "data is text, to be encoded with this folder's tokenizer.json, vocab.json or tokenizer.model");
}

inline void add_order_flag(CommandLine& line, DataFlags& flags) {
  line.custom("--order", "shuffled|sequential", name_of(flags.order), "order of the samples",
              [&](std::string const& flag, std::string const& value) {
                flags.order = cli::choice(flag, value, {"shuffled", "sequential"}) == "shuffled"
                                  ? Order::shuffled
                                  : Order::sequential;
              });
}

inline void add_data_flags(CommandLine& line, DataFlags& flags) {
  line.group("Data");
  line.values("--data", "PATH...", default_data_path, "files and folders of text, or token files (.bin)",
              [&](std::string const&, Names const& values) { flags.paths = values; });
  add_order_flag(line, flags);
  add_sample_flags(line, flags);
  line.custom("--vocabulary", "N", "",
              "tokens of the vocabulary; default: a named model's own, the --tokenizer's, 50257 for token "
              "files (128256 "
              "if 32-bit), or 256 for text",
              [&](std::string const& flag, std::string const& value) {
                flags.vocabulary = parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });
}

/// Returns the name of a learning-rate schedule in flags, such as "cosine".
inline std::string name_of(RateShape shape) {
  TrainerOptions options;
  options.schedule = shape;
  return option_text("schedule", options);
}

/// Adds the flags of the optimizer and the loss scale, which set a trainer's options directly.
inline void add_optimizer_flags(CommandLine& line, TrainerOptions& options,
                                RenamedOption const& renamed = {}) {
  line.group("Optimizer");
  add_option_flags(line, OptionGroup::optimizer, options, renamed);
  line.group("Loss scale (fp16)");
  add_option_flags(line, OptionGroup::loss_scale, options);
}

/// Throws Error(usage) if the initial loss scale is outside its bounds. The message names the flags. If a
/// settings file gave the flags, the message also names the file.
inline void check_loss_scale(CommandLine const& line, LossScaleOptions const& scale) {
  auto const text = [&](char const* flag, double value) {
    std::string const origin = line.origin(flag);
    return flag + (" " + exact(value)) + (origin == "flag" ? "" : " (" + origin + ")");
  };
  bool const low = scale.initial < scale.minimum;
  if (!low && scale.initial <= scale.maximum) return;
  char const* const bound = low ? "--min-loss-scale" : "--max-loss-scale";
  refuse(text("--initial-loss-scale", scale.initial) + (low ? " is below " : " is above ") +
         text(bound, low ? scale.minimum : scale.maximum) + "; give " + bound + " " + exact(scale.initial) +
         ", or another --initial-loss-scale");
}

/// Adds `--freeze`. Stores the regular expression in `pattern`. Sets `options.freeze` to a function that
/// returns whether a parameter is frozen.
inline void add_freeze_flag(CommandLine& line, std::string& pattern, TrainerOptions& options) {
  line.custom("--freeze", "PATTERN", "",
              "regular expression; parameters with a match anywhere in their name are not trained",
              [&](std::string const& flag, std::string const& value) {
                pattern = value;
                options.freeze = [expression = Pattern(flag, value)](std::string_view name) {
                  return expression.matches(name);
                };
              });
}

/// Adds `--lora`, with values such as rank=8,alpha=16,targets=c_attn,c_proj. An item without "=", such as
/// c_proj here, is one more target. Stores the parsed options in `lora`, and the value as it was given in
/// `text`.
inline void add_lora_flag(CommandLine& line, LoraOptions& lora, std::string& text) {
  line.custom("--lora", "rank=R,alpha=A,targets=NAMES", "",
              "train low-rank adapters of these linear layers, or of all-linear; rslora=true: scale alpha / "
              "sqrt(rank)",
              [&](std::string const& flag, std::string const& value) {
                LoraOptions given;
                std::string key;
                Names seen;
                for (auto const& item : split_list(flag, {value})) {
                  std::size_t const equals = item.find('=');
                  bool const more = equals == item.npos && key == "targets";
                  if (!more)
                    key = choice(flag, item.substr(0, equals), {"rank", "alpha", "targets", "rslora"});
                  std::string const number = more ? item : equals == item.npos ? "" : item.substr(equals + 1);
                  if (number.empty()) refuse(flag + ": " + key + " has no value; write " + key + "=...");
                  if (!more && std::find(seen.begin(), seen.end(), key) != seen.end())
                    refuse(flag + ": " + in_quotes(value) + " gives " + key + " twice; give it once");
                  if (!more) seen.push_back(key);
                  if (key == "rank")
                    given.rank = static_cast<int>(parse_integer(flag + " rank", number, 1, 1 << 20));
                  if (key == "alpha")
                    given.alpha =
                        parse_real(flag + " alpha", number, {.min = 0.0, .max = 1e9, .open_below = true});
                  if (key == "rslora")
                    given.rank_stabilized = choice(flag + " rslora", number, {"true", "false"}) == "true";
                  if (key == "targets") given.targets += (given.targets.empty() ? "" : ",") + number;
                }
                for (char const* needed : {"rank", "alpha", "targets"})
                  if (std::find(seen.begin(), seen.end(), needed) == seen.end())
                    refuse(flag + ": " + in_quotes(value) + " lacks " + needed +
                           "; write --lora rank=8,alpha=16,targets=c_attn,c_proj");
                lora = std::move(given);
                text = value;
              });
}

/// `units` is a function that lists the units (embedding, blocks, head) of a model. Returns a function that
/// lists the same units with the adapters of `options.lora`, if the recipe trains adapters, and with the
/// parameters marked that `options.freeze` freezes.
inline UnitLister trained_units(UnitLister units, RecipeTable const& recipe, TrainerOptions const& options) {
  if (recipe.adapters == AdapterKind::lora) units = adapting(std::move(units), options.lora);
  return freezing(std::move(units), options.freeze);
}

/// Throws if the adapters do not fit the model, or if the pattern of --freeze matches none or all of the
/// model's parameters.
inline void check_trained(UnitLister const& units, RecipeTable const& recipe, TrainerOptions const& options,
                          std::string const& pattern) {
  TrainerOptions adapters = options;
  adapters.freeze = {};
  if (bool const adapts = recipe.adapters == AdapterKind::lora; adapts != bool(options.lora))
    throw Error(ErrorKind::config,
                adapts
                    ? "--adapters lora needs a description of the adapters; give --lora "
                      "rank=8,alpha=16,targets=c_attn,c_proj"
                    : "--lora describes adapters, but --adapters none trains the model's own weights; leave "
                      "one of them out");
  std::vector<UnitSpec> list = [&] {
    try {
      return trained_units(units, recipe, adapters)({1, 1});
    } catch (Error const& error) {
      // The message begins with "lora: target". With "--" in front it names the flag --lora.
      throw Error(error.kind(), "--" + std::string(error.what()));
    }
  }();
  try {
    (void)frozen(std::move(list), options.freeze);
  } catch (Error const& error) {
    throw Error(error.kind(), "--freeze " + in_quotes(pattern) + ": " + error.what());
  }
}

inline void add_machine_flags(CommandLine& line, TrainerOptions& options) {
  line.group("Machine");
  add_option_flags(line, OptionGroup::machine, options);
}

}  // namespace cli
}  // namespace programs
