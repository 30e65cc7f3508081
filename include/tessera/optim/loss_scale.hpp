// SPDX-License-Identifier: Apache-2.0
// Provides the loss scale of fp16 and the decisions at the end of a step: gradient norm, clip factor, and
// whether to skip the update.
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/config.hpp"
#include "tessera/optim/adamw_formula.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The settings of the loss scale. All scales are powers of two, so that scaling changes only the exponent of
/// a value. A good step is a step without overflow. The settings hysteresis 2 and growth_delay 1 give the
/// behaviour of DeepSpeed's loss scaler.
struct LossScaleOptions {
  double initial = 65536.0;             ///< the first scale of Dynamic, the only scale of Static
  std::int64_t growth_interval = 2000;  ///< good steps before the scale doubles
  std::int64_t growth_delay = 0;        ///< good steps that do not count, at the start and after an overflow
  /// The number of the overflow that halves the scale; 1 is the first. Earlier overflows only skip their
  /// steps.
  std::int64_t hysteresis = 1;
  /// Whether a good step resets the count of overflows. If not, only a growth of the scale resets it.
  bool consecutive_hysteresis = false;
  double minimum = 1.0;  ///< Dynamic never lowers the scale below this value
  double maximum = 0x1p24;
};

/// The settings for the decisions at the end of a step.
struct StepRule {
  LossScaleKind loss_scale = LossScaleKind::none;
  LossScaleOptions scale;
  AdamWOptions adamw;
  RateSchedule rates;
  double clip = 0.0;  ///< largest norm of the gradient; 0: no clipping
  /// The largest number of consecutive overflows after which a run with a loss scale continues. The next
  /// consecutive overflow ends the run. Without a loss scale, the first overflow ends the run.
  std::int64_t skips_allowed = 50;
  std::int64_t tokens = 0;  ///< tokens of the global batch, including masked tokens
};

/// Whether the loss scale changes during a run.
TESSERA_HOST_DEVICE constexpr bool changes(LossScaleKind kind) {
  switch (kind) {
    case LossScaleKind::dynamic:
      return true;
    case LossScaleKind::none:
    case LossScaleKind::fixed:
      break;
  }
  return false;
}

/// Sets the learning rate of a step, and the factor of the loss's gradient: the loss scale divided by the
/// tokens of the global batch. Runs before the first micro-batch. `learning_rate` is the rate that the host
/// computed. If the schedule counts applied updates, this function computes the rate instead, because only
/// the device knows the number of applied updates.
TESSERA_HOST_DEVICE inline void begin_step(StepState& state, StepRule const& rule, double learning_rate) {
  if (state.stopped_at > 0) return;
  state.learning_rate = rule.rates.counts_skipped() ? learning_rate : rule.rates.at(state.applied);
  state.used_scale = rule.loss_scale == LossScaleKind::none ? 1.0 : state.loss_scale;
  state.backward_scale_double = state.used_scale / static_cast<double>(rule.tokens);
  state.backward_scale = static_cast<float>(state.backward_scale_double);
}

/// Decides whether the update is skipped, updates the loss scale, and computes the factor by which the update
/// multiplies gradients. Runs after the last micro-batch is accumulated. `square_sum` is the sum of squares
/// of the accumulated gradient. This gradient includes the loss scale and is divided by all tokens, masked
/// ones included. `loss_sum` and `valid_tokens` are sums over the global batch.
///
/// The factor removes the loss scale, replaces the division by all tokens with a division by the valid
/// tokens, and includes the clip coefficient min(1, clip / (norm + 1e-6)). A step without valid tokens is
/// skipped: weights, moments and loss scale stay unchanged. After the step `stopped_at`, every step is
/// skipped.
TESSERA_HOST_DEVICE inline void finish_step(StepState& state, StepRule const& rule, double square_sum,
                                            double loss_sum, std::int64_t valid_tokens) {
  ++state.attempted;
  if (state.stopped_at > 0) return;
  state.valid_tokens = valid_tokens;
  double const counted = static_cast<double>(valid_tokens);
  state.loss = valid_tokens > 0 ? loss_sum / counted : 0.0;
  double const exact = valid_tokens > 0 ? static_cast<double>(rule.tokens) / counted / state.used_scale : 0.0;
  state.norm = std::sqrt(square_sum) * exact;
  bool const finite = std::isfinite(square_sum);
  double const limit = rule.clip / (state.norm + 1e-6);
  state.gradient_factor = rule.clip > 0.0 && finite && limit < 1.0 ? exact * limit : exact;

  state.skipped = !finite;
  if (state.skipped) {
    ++state.skips_in_row;
    if (rule.loss_scale == LossScaleKind::none || state.skips_in_row > rule.skips_allowed)
      state.stopped_at = state.attempted;
    state.good_steps = 0;
    double const lower = state.loss_scale / 2.0;
    if (changes(rule.loss_scale) && ++state.forgiven >= rule.scale.hysteresis) {
      state.loss_scale = lower > rule.scale.minimum ? lower : rule.scale.minimum;
      state.forgiven = rule.scale.hysteresis - 1;  // the next overflow halves the scale, too
    }
    return;
  }
  state.skipped = valid_tokens == 0;
  if (state.skipped) return;
  state.skips_in_row = 0;
  ++state.applied;
  state.beta1_power *= rule.adamw.beta1;
  state.beta2_power *= rule.adamw.beta2;
  for (int group : {0, 1}) {
    state.factors[group] = adamw_factors<float>(rule.adamw, state.learning_rate, state.beta1_power,
                                                state.beta2_power, state.gradient_factor, group == 0);
    state.factors_double[group] = adamw_factors<double>(rule.adamw, state.learning_rate, state.beta1_power,
                                                        state.beta2_power, state.gradient_factor, group == 0);
  }
  if (rule.scale.consecutive_hysteresis) state.forgiven = 0;
  if (changes(rule.loss_scale) &&
      ++state.good_steps >= rule.scale.growth_delay + rule.scale.growth_interval) {
    state.good_steps = rule.scale.growth_delay;
    state.forgiven = 0;
    double const higher = state.loss_scale * 2.0;
    state.loss_scale = higher < rule.scale.maximum ? higher : rule.scale.maximum;
  }
}

}  // namespace v0
}  // namespace tessera
