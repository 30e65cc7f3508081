// SPDX-License-Identifier: Apache-2.0
// Defines the scalars that change from step to step, such as the loss scale. They are stored on the device,
// so that a step can be recorded once as a CUDA graph and replayed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/config.hpp"
#include "tessera/optim/adamw_formula.hpp"

namespace tessera {
inline namespace v0 {

/// The scalars of a training step. The operations begin_step and finish_step write them on the device. The
/// host writes them only between steps.
struct StepState {
  std::int64_t attempted = 0;  ///< number of steps that ended, skipped ones included
  std::int64_t applied = 0;    ///< number of updates that were applied
  double beta1_power = 1.0;    ///< beta1^applied, the running product
  double beta2_power = 1.0;
  double learning_rate = 0.0;  ///< the rate of this step

  double loss_scale = 1.0;      ///< a power of two
  std::int64_t good_steps = 0;  ///< steps without overflow that count for the next growth of the scale
  std::int64_t forgiven = 0;    ///< overflows that did not halve the scale; see LossScaleOptions::hysteresis
  std::int64_t skips_in_row = 0;  ///< overflows since the last applied update
  /// The number of the step after which the run cannot continue; 0: there is no such step. Later steps may
  /// already be enqueued; they change only `attempted`.
  std::int64_t stopped_at = 0;

  // Results of the last step.
  double loss = 0.0;              ///< mean over the valid tokens of the global batch
  double norm = 0.0;              ///< norm of the whole gradient, without loss scale
  std::int64_t valid_tokens = 0;  ///< targets in the global batch that are not masked
  std::int64_t skipped = 0;    ///< 1: the gradient was not finite, or no token counted; nothing was updated
  std::int64_t bad_unit = -1;  ///< unit of the first gradient value that is not finite; -1: none
  std::int64_t bad_element = -1;  ///< index of that value in the unit's flat buffer
  std::int64_t stop_votes = 0;    ///< number of ranks that requested the end of the training in this step
  double used_scale = 1.0;        ///< the loss scale of this step's gradients

  // Factors for the loss's gradient and the update. They are computed once, so that every rank and device
  // uses the same bits.
  float backward_scale = 1.0f;  ///< loss scale / tokens of the global batch: factor of the loss's gradient
  double backward_scale_double = 1.0;
  /// The factor of every gradient in the update: tokens / valid tokens / loss scale x clip coefficient.
  double gradient_factor = 1.0;
  AdamWFactors<float> factors[2] = {};  ///< [0] with weight decay, [1] without
  AdamWFactors<double> factors_double[2] = {};
};

/// Returns the address of backward_scale, the factor of the loss's gradient, in the type S in which the step
/// computes.
template <class S>
TESSERA_HOST_DEVICE inline S* backward_scale_of(StepState* state) {
  if constexpr (std::is_same_v<S, double>)
    return &state->backward_scale_double;
  else
    return &state->backward_scale;
}

/// Returns the address of the two AdamWFactors, with weight decay and without, in the type S in which the
/// optimizer computes.
template <class S>
TESSERA_HOST_DEVICE inline AdamWFactors<S>* factors_of(StepState* state) {
  if constexpr (std::is_same_v<S, double>)
    return state->factors_double;
  else
    return state->factors;
}

}  // namespace v0
}  // namespace tessera
