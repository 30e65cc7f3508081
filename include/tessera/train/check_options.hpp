// SPDX-License-Identifier: Apache-2.0
// Checks that the numbers in TrainerOptions are in their ranges.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/option_table.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Checks the ranges of all options and the rules between options. Throws Error(config) with the number and
/// its range.
inline void check_options(TrainerOptions const& options, std::int64_t positions) {
  auto const fail = [](std::initializer_list<Word> words) {
    throw_error(ErrorKind::config, {"options: ", sentence(words)});
  };
  auto const text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", value);
    return std::string(digits);
  };
  if (options.epsilon >= 0.0 && options.epsilon < min_normal)
    fail(
        {"epsilon is 0 or not a normal number in fp32, so a weight without gradient would become 0 / 0; use "
         "1e-8"});
  if (options.schedule > RateShape::warmup_cosine_lr)
    fail({"schedule has the value ", static_cast<int>(options.schedule),
          ", which is not a member of RateShape"});
  if (options.bind_threads > BindThreads::numa)
    fail({"bind_threads has the value ", static_cast<int>(options.bind_threads),
          ", which is not a member of BindThreads"});
  if (options.accumulation > max_accumulation)
    fail({"accumulation is ", options.accumulation,
          ", but a step can have at most 16384 micro-batches; use a larger batch or more ranks"});
  for (Option const& option : option_table) {
    OptionValue const value = value_of(option, options);
    bool const real = value.type() == OptionValue::Type::real;
    if (value.type() == OptionValue::Type::seed) continue;
    double const number = real ? value.real() : static_cast<double>(value.integer());
    std::string const given = real ? text(number) : std::to_string(value.integer());
    int exponent = 0;
    bool const below = option.rule == OptionRule::below;
    if (option.rule == OptionRule::power_of_two &&
        (!(number > 0.0 && std::isfinite(number)) || std::frexp(number, &exponent) != 0.5))
      fail({option.name, " is ", given, "; it must be a power of two"});
    if (number >= option.min && (below ? number < option.max : number <= option.max)) continue;
    auto const limit = [&](double bound) {
      return real ? text(bound) : std::to_string(static_cast<std::int64_t>(bound));
    };
    if (std::isinf(option.max) && number < option.min)
      fail({option.name, " is ", given, "; it must be at least ", limit(option.min)});
    fail({option.name, " is ", given, "; it must be from ", limit(option.min), below ? " to below " : " to ",
          limit(option.max)});
  }
  if (has_end(options.schedule) && options.total_steps == 0)
    fail(
        {"total_steps is 0, but this schedule falls until the step total_steps; set it to the number of "
         "steps of the run, or choose a schedule that stays constant"});
  if (needs_end(options.schedule) && options.total_steps <= options.warmup_steps)
    fail({"total_steps is ", options.total_steps, " and warmup_steps is ", options.warmup_steps,
          "; a linear or cosine schedule needs total_steps beyond the warm-up"});
  if (static_cast<double>(options.batch) * static_cast<double>(options.sequence) > 0x1p28)
    fail({"batch ", options.batch, " x sequence ", options.sequence,
          " is more than 2^28 tokens a micro-batch; lower one of them"});
  LossScaleOptions const& scale = options.loss_scale;
  if (scale.minimum > scale.initial || scale.initial > scale.maximum)
    fail({"loss_scale.initial is ", text(scale.initial), "; it must be between loss_scale.minimum ",
          text(scale.minimum), " and loss_scale.maximum ", text(scale.maximum)});
  if (options.sequence > positions)
    throw_error(ErrorKind::config,
                {"the sequence ", options.sequence, " is beyond the model's ", positions,
                 " positions; shorten the sequence or choose a model with more positions"});
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
