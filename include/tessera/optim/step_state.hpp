// SPDX-License-Identifier: Apache-2.0
// Defines the scalars that change from step to step. They are stored with the model's state, on its device,
// so that a step can be recorded once and replayed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/config.hpp"
#include "tessera/optim/adamw_formula.hpp"

namespace tessera {
inline namespace v0 {

/// Written by the step's norm entry and by the host between steps; read by every other entry.
struct StepState {
  std::int64_t attempted = 0;  ///< steps begun, skipped ones included
  std::int64_t applied = 0;    ///< updates done
  double beta1_power = 1.0;    ///< beta1^applied, the running product
  double beta2_power = 1.0;
  double learning_rate = 0.0;  ///< of this attempt

  double loss_scale = 1.0;        ///< a power of two
  std::int64_t good_steps = 0;    ///< steps since the last overflow or growth
  std::int64_t forgiven = 0;      ///< overflows that left the scale as it was (LossScaleOptions::hysteresis)
  std::int64_t skips_in_row = 0;  ///< overflows since the last applied update
  /// The attempt after which the run cannot continue; 0: none. Later attempts, which may already be enqueued,
  /// change only `attempted`.
  std::int64_t stopped_at = 0;

  // Results of the last step.
  double loss = 0.0;           ///< mean over the unmasked tokens of the global batch
  double norm = 0.0;           ///< of the whole gradient, unscaled
  std::int64_t unmasked = 0;   ///< tokens that counted, over all ranks
  std::int64_t skipped = 0;    ///< 1: the gradient was not finite, or no token counted; nothing was updated
  std::int64_t bad_unit = -1;  ///< the first value that is not finite: its unit ...
  std::int64_t bad_element = -1;  ///< ... and its element in the unit's flat buffer
  std::int64_t stop_votes = 0;    ///< the number of ranks that requested in this step to end the training
  double used_scale = 1.0;        ///< the loss scale that this step's gradients carry

  // Inputs of the update, computed once so that every rank and device uses the same bits.
  float backward_scale = 1.0f;  ///< loss scale / (G T): the factor of every loss gradient
  double backward_scale_double = 1.0;
  double gradient_factor = 1.0;         ///< G T / unmasked / loss scale x clip coefficient
  AdamWFactors<float> factors[2] = {};  ///< for parameters that decay, and for the others
  AdamWFactors<double> factors_double[2] = {};
};

/// The factor of every loss gradient, in the type that the step computes in.
template <class S>
TESSERA_HOST_DEVICE inline S* backward_scale_of(StepState* state) {
  if constexpr (std::is_same_v<S, double>)
    return &state->backward_scale_double;
  else
    return &state->backward_scale;
}

/// The two AdamWFactors in the type of the optimizer.
template <class S>
TESSERA_HOST_DEVICE inline AdamWFactors<S>* factors_of(StepState* state) {
  if constexpr (std::is_same_v<S, double>)
    return state->factors_double;
  else
    return state->factors;
}

}  // namespace v0
}  // namespace tessera
