// SPDX-License-Identifier: Apache-2.0
// Which numbers of a run can be.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <string>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Checks the numbers that belong together; throws Error(config) with the number and its range.
inline void check_options(TrainerOptions const& options, std::int64_t positions) {
  auto const fail = [](std::initializer_list<Word> words) {
    throw_error(ErrorKind::config, {"options: ", sentence(words)});
  };
  auto const text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", value);
    return std::string(digits);
  };
  double const infinity = std::numeric_limits<double>::infinity();
  auto const number = [&](char const* name, double value, double least, double below) {
    if (!(value >= least && value < below))
      fail({name, " is ", text(value), "; it must be from ", text(least), " to below ",
            below < infinity ? text(below) : "infinity"});
  };
  auto const count = [&](char const* name, std::int64_t value, std::int64_t least) {
    if (value < least) fail({name, " is ", value, "; it must be at least ", least});
    if (value > (std::int64_t{1} << 40))
      fail({name, " is ", value, ", beyond any machine; it must be at most 2^40"});
  };
  auto const power_of_two = [&](char const* name, double value) {
    int exponent = 0;
    if (!(value > 0.0 && value < infinity) || std::frexp(value, &exponent) != 0.5)
      fail({name, " is ", text(value), "; it must be a power of two"});
  };
  number("learning_rate", options.learning_rate, 0.0, infinity);
  number("beta1", options.beta1, 0.0, 1.0);
  number("beta2", options.beta2, 0.0, 1.0);
  number("epsilon", options.epsilon, 0.0, infinity);
  if (options.epsilon < 0x1p-126)
    fail(
        {"epsilon is 0 or not a normal number in fp32, and a weight without gradient would become 0 / 0; "
         "use 1e-8"});
  number("weight_decay", options.weight_decay, 0.0, infinity);
  number("clip", options.clip, 0.0, infinity);
  number("final_fraction", options.final_fraction, 0.0, infinity);
  if (options.schedule > RateShape::warmup_cosine_lr)
    fail({"schedule is the number ", static_cast<int>(options.schedule), ", which is none of the schedules"});
  count("warmup_steps", options.warmup_steps, 0);
  count("total_steps", options.total_steps, 0);
  number("first_rate", options.first_rate, 0.0, infinity);
  if (needs_end(options.schedule) && options.total_steps <= options.warmup_steps)
    fail({"total_steps is ", options.total_steps, " and warmup_steps is ", options.warmup_steps,
          "; a linear or cosine schedule needs total_steps beyond the warm-up"});
  count("batch", options.batch, 1);
  count("sequence", options.sequence, 1);
  count("accumulation", options.accumulation, 1);
  count("prefetch", options.prefetch, 0);
  count("replicas", options.replicas, 1);
  count("channels", options.channels, 1);
  count("weight_lag", options.weight_lag, 0);
  if (options.channels > 2)
    fail({"channels is ", options.channels, "; there are 2 at most: one for gathers, one for all else"});
  if (options.accumulation > most_accumulation)
    fail({"accumulation is ", options.accumulation,
          ", and a step's schedule holds at most 16384 micro-batches; use a larger batch or more ranks"});
  if (static_cast<double>(options.batch) * static_cast<double>(options.sequence) > 0x1p28)
    fail({"batch ", options.batch, " x sequence ", options.sequence,
          " is more than 2^28 tokens a micro-batch; lower one of them"});
  count("recompute_every", options.recompute_every, 1);
  count("bucket_bytes", options.bucket_bytes, 0);
  count("threads", options.threads, 0);
  count("skips_allowed", options.skips_allowed, 0);
  LossScaleOptions const& scale = options.loss_scale;
  power_of_two("loss_scale.initial", scale.initial);
  power_of_two("loss_scale.minimum", scale.minimum);
  power_of_two("loss_scale.maximum", scale.maximum);
  count("loss_scale.growth_interval", scale.growth_interval, 1);
  count("loss_scale.growth_delay", scale.growth_delay, 0);
  count("loss_scale.hysteresis", scale.hysteresis, 1);
  if (scale.minimum > scale.initial || scale.initial > scale.maximum)
    fail({"loss_scale.initial is ", text(scale.initial), "; it must lie between loss_scale.minimum ",
          text(scale.minimum), " and loss_scale.maximum ", text(scale.maximum)});
  if (options.sequence > positions)
    throw_error(ErrorKind::config,
                {"the sequence ", options.sequence, " is beyond the model's ", positions,
                 " positions; shorten the sequence or choose a model with more positions"});
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
