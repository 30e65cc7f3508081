// SPDX-License-Identifier: Apache-2.0
// The flags that more than one program has: data, optimizer, seed and threads.
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

#include "common/command_line.hpp"
#include "common/pattern.hpp"
#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

struct DataFlags {
  std::vector<std::string> paths;  ///< none: default_data_path
  Order order = Order::shuffled;
  std::int64_t vocabulary = 0;  ///< 0: the model's own, or that of the data
  SamplesAre samples_are = SamplesAre::tokens;
  std::string field = "text";   ///< of JSON records
  std::int64_t separator = -1;  ///< of documents; negative: that of the format
  std::string tokenizer;        ///< makes tokens of text; empty: bytes are tokens
};

inline char const* name_of(SamplesAre kind) {
  return kind == SamplesAre::lines ? "lines" : kind == SamplesAre::records ? "records" : "tokens";
}

inline void add_data_flags(CommandLine& line, DataFlags& flags) {
  line.group("Data");
  line.values("--data", "PATH...", default_data_path, "files and folders of text, or token files (.bin)",
              [&](std::string const&, Names const& values) { flags.paths = values; });
  line.custom("--order", "shuffled|sequential", name_of(flags.order), "how samples are ordered",
              [&](std::string const& flag, std::string const& value) {
                flags.order = cli::choice(flag, value, {"shuffled", "sequential"}) == "shuffled"
                                  ? Order::shuffled
                                  : Order::sequential;
              });
  line.custom("--samples-are", "tokens|lines|records", name_of(flags.samples_are),
              "stretches of tokens; or lines, JSON Lines or documents, each cut or padded to --sequence",
              [&](std::string const& flag, std::string const& value) {
                std::string const name = cli::choice(flag, value, {"tokens", "lines", "records"});
                flags.samples_are = name == "lines"     ? SamplesAre::lines
                                    : name == "records" ? SamplesAre::records
                                                        : SamplesAre::tokens;
              });
  line.text("--field", "NAME", flags.field, "of a JSON record: its text");
  line.custom("--separator", "TOKEN", "",
              "the token that ends a document of a token file; else 50256, or 128000 in 32-bit files",
              [&](std::string const& flag, std::string const& value) {
                flags.separator = whole_number(flag, value, 0, (std::int64_t{1} << 31) - 1);
              });
  line.text(
      "--tokenizer", "DIR", flags.tokenizer,
      "data is text, and this folder's tokenizer.json, vocab.json or tokenizer.model makes tokens of it");
  line.custom(
      "--vocabulary", "N", "",
      "tokens of the vocabulary; else a named model's own, the --tokenizer's, 50257 for token files (128256 "
      "if 32-bit), or 256 for text",
      [&](std::string const& flag, std::string const& value) {
        flags.vocabulary = whole_number(flag, value, 1, (std::int64_t{1} << 31) - 1);
      });
}

/// The schedules, in the order of RateShape.
inline Names schedule_names() {
  return {"constant", "linear", "cosine", "warmuplr", "warmupdecaylr", "warmupcosinelr"};
}
inline std::string name_of(RateShape shape) { return schedule_names().at(static_cast<std::size_t>(shape)); }

/// The optimizer's flags, straight into the options of a trainer. `warmup_name` is the flag for the steps
/// over which the learning rate rises.
inline void add_optimizer_flags(CommandLine& line, TrainerOptions& options, std::string const& warmup_name) {
  using Float = std::numeric_limits<float>;  // in which the update computes
  Range const number{.least = 0.0, .most = Float::max()};
  line.group("Optimizer");
  line.real("--learning-rate,--lr", options.learning_rate, "the highest learning rate", number);
  line.real("--beta1", options.beta1, "decay of the first moment",
            {.least = 0.0, .most = 1.0, .open_above = true});
  line.real("--beta2", options.beta2, "decay of the second moment",
            {.least = 0.0, .most = 1.0, .open_above = true});
  line.real("--epsilon", options.epsilon, "added to the root of the second moment",
            {.least = Float::min(), .most = Float::max()});
  line.real("--weight-decay", options.weight_decay, "on matrices only", number);
  line.real("--clip", options.clip, "largest gradient norm; 0 clips nothing", number);
  line.custom("--optimizer", "adamw|adam", "adamw", "adam: weight decay is a part of the gradient",
              [&](std::string const& flag, std::string const& value) {
                options.decoupled_decay = cli::choice(flag, value, {"adamw", "adam"}) == "adamw";
              });
  line.custom("--schedule", joined(schedule_names(), "|"), "constant",
              "how the learning rate goes on after its warm-up; the last three are DeepSpeed's",
              [&](std::string const& flag, std::string const& value) {
                Names const names = schedule_names();
                std::string const name = cli::choice(flag, value, names);
                options.schedule = RateShape(std::find(names.begin(), names.end(), name) - names.begin());
              });
  line.whole(warmup_name, options.warmup_steps, "steps over which the learning rate rises", 0,
             std::int64_t{1} << 40);
  line.whole("--schedule-steps", options.total_steps, "where the schedule ends; 0: with the run", 0,
             std::int64_t{1} << 40);
  line.real("--final-fraction", options.final_fraction, "of the learning rate, at the end of the schedule",
            {.least = 0.0, .most = 1.0});
  line.real("--first-rate", options.first_rate, "where the warm-up of DeepSpeed's schedules begins", number);
  line.custom("--warmup-type", "log|linear", "log", "how the learning rate rises in DeepSpeed's schedules",
              [&](std::string const& flag, std::string const& value) {
                options.log_warmup = cli::choice(flag, value, {"log", "linear"}) == "log";
              });
}

/// The numbers of a loss scale.
inline void add_loss_scale_flags(CommandLine& line, LossScaleOptions& scale) {
  line.group("Loss scale (fp16)");
  auto const power = [&](char const* name, double& value, char const* help) {
    line.custom(name, "X", exact(value), help, [&value](std::string const& flag, std::string const& given) {
      double const number = real_number(flag, given, {.least = 0x1p-100, .most = 0x1p100});
      int exponent = 0;
      if (std::frexp(number, &exponent) != 0.5)
        refuse(flag + " is " + given + ", no power of two; give " + exact(std::ldexp(0.5, exponent)) +
               " or " + exact(std::ldexp(1.0, exponent)));
      value = number;
    });
  };
  power("--initial-loss-scale", scale.initial, "the first one, a power of two; the only one of static");
  power("--min-loss-scale", scale.minimum, "where it stops falling");
  power("--max-loss-scale", scale.maximum, "where it stops rising");
  line.whole("--loss-scale-window", scale.growth_interval, "good steps before it doubles", 1,
             std::int64_t{1} << 40);
  line.whole("--loss-scale-delay", scale.growth_delay,
             "good steps that do not count for that, at the start and after an overflow", 0,
             std::int64_t{1} << 40);
  line.whole("--hysteresis", scale.hysteresis, "the overflow that halves it; those before only skip a step",
             1, std::int64_t{1} << 40);
  line.toggle("--consecutive-hysteresis", scale.consecutive_hysteresis,
              "a good step forgives overflows; else only growth does");
}

/// Throws if the first loss scale is outside its bounds. Names the flags and the file that set them.
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

/// `--freeze`: the pattern as it was given, and what it means in the options of a trainer.
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

/// `--lora`: rank=8,alpha=16,targets=c_attn,c_proj. A word without = is one more target.
inline void add_lora_flag(CommandLine& line, LoraOptions& lora, std::string& text) {
  line.custom(
      "--lora", "rank=R,alpha=A,targets=NAMES", "",
      "train adapters of low rank beside these linear layers, or all-linear; rslora=true: alpha / sqrt(rank)",
      [&](std::string const& flag, std::string const& value) {
        LoraOptions given;
        std::string key;
        Names seen;
        for (auto const& item : split_list(flag, {value})) {
          std::size_t const equals = item.find('=');
          bool const more = equals == item.npos && key == "targets";
          if (!more) key = choice(flag, item.substr(0, equals), {"rank", "alpha", "targets", "rslora"});
          std::string const number = more ? item : equals == item.npos ? "" : item.substr(equals + 1);
          if (number.empty()) refuse(flag + ": " + key + " has no value; write " + key + "=...");
          if (!more && std::find(seen.begin(), seen.end(), key) != seen.end())
            refuse(flag + ": " + in_quotes(value) + " gives " + key + " twice; give it once");
          if (!more) seen.push_back(key);
          if (key == "rank") given.rank = static_cast<int>(whole_number(flag + " rank", number, 1, 1 << 20));
          if (key == "alpha")
            given.alpha =
                real_number(flag + " alpha", number, {.least = 0.0, .most = 1e9, .open_below = true});
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

/// A model's units as a recipe trains them: with their adapters, and with what is frozen.
inline UnitLister trained_units(UnitLister units, RecipeTable const& recipe, TrainerOptions const& options) {
  if (recipe.adapters == AdapterKind::lora) units = adapting(std::move(units), options.lora);
  return freezing(std::move(units), options.freeze);
}

/// Refuses adapters that a model cannot have, and a pattern that freezes none or all of its parameters.
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
      throw Error(error.kind(), "--" + std::string(error.what()));  // "lora: target ..."
    }
  }();
  try {
    (void)frozen(std::move(list), options.freeze);
  } catch (Error const& error) {
    throw Error(error.kind(), "--freeze " + in_quotes(pattern) + ": " + error.what());
  }
}

/// A seed: any whole number of 64 bits. Throws Error(usage) that names the flag.
inline std::uint64_t seed_number(std::string const& flag, std::string const& text) {
  std::uint64_t seed = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (code != std::errc() || end != text.data() + text.size())
    refuse(flag + ": " + in_quotes(text) + " is no seed; give a whole number from 0 to " +
           std::to_string(std::numeric_limits<std::uint64_t>::max()));
  return seed;
}

/// `--host-memory`: what all ranks together may take of the host.
inline void add_host_memory_flag(CommandLine& line, std::int64_t& bytes) {
  line.bytes("--host-memory", bytes, "what all ranks together may take of the host, such as 512GiB");
}

inline void add_machine_flags(CommandLine& line, TrainerOptions& options) {
  line.group("Machine");
  line.custom(
      "--seed", "N", std::to_string(options.seed), "of weights and data order",
      [&](std::string const& flag, std::string const& value) { options.seed = seed_number(flag, value); });
  line.whole("--threads", options.threads, "threads of a rank; 0 shares the cores", 0, 1024);
  line.whole("--prefetch", options.prefetch, "units that weights come ahead of use; 0 overlaps nothing", 0,
             1024);
  line.whole("--bucket-bytes", options.bucket_bytes, "gradients that travel in one call; 0: a unit's each", 0,
             std::int64_t{1} << 40);
  line.whole("--channels", options.channels,
             "2 gathers weights beside sums, on GPUs by a second communicator", 1, 2);
  line.whole("--weight-lag", options.weight_lag,
             "units that gradients of weights run behind those of inputs, beside them; 0: in turn", 0, 1024);
  add_host_memory_flag(line, options.host_memory_limit);
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
