// SPDX-License-Identifier: Apache-2.0
// Defines AdamW as a formula that gives the same bits on every device, instruction set and compiler.
#pragma once

#include <cmath>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// The settings of AdamW. `weight_decay` applies to parameters of two dimensions (matrices and embeddings).
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;  ///< false: Adam, where the decay is added to the gradient (L2)
};

/// The factors of one update. They are computed in double and rounded to S, the type in which the update
/// computes.
template <class S>
struct AdamWFactors {
  S gradient;  ///< factor of every gradient: loss scale, token count and clipping
  S keep;      ///< 1 - learning rate x weight decay; 1 in Adam
  S l2;        ///< weight decay in Adam, as a part of the gradient; 0 in AdamW
  S beta1, one_minus_beta1;
  S beta2, one_minus_beta2;
  S root_correction;  ///< 1 / sqrt(1 - beta2^t)
  S epsilon;
  S minus_step;  ///< -learning rate / (1 - beta1^t)
};

/// Returns the factors of one update. beta1_power and beta2_power are beta1^t and beta2^t, where t is the
/// number of this update and counts from 1. `decayed`: whether weight decay applies.
template <class S>
TESSERA_HOST_DEVICE AdamWFactors<S> adamw_factors(AdamWOptions const& options, double learning_rate,
                                                  double beta1_power, double beta2_power,
                                                  double gradient_factor, bool decayed) {
  double const decay = decayed ? options.weight_decay : 0.0;
  return {static_cast<S>(gradient_factor),
          static_cast<S>(options.decoupled ? std::fma(-learning_rate, decay, 1.0) : 1.0),
          static_cast<S>(options.decoupled ? 0.0 : decay),
          static_cast<S>(options.beta1),
          static_cast<S>(1.0 - options.beta1),
          static_cast<S>(options.beta2),
          static_cast<S>(1.0 - options.beta2),
          static_cast<S>(1.0 / std::sqrt(1.0 - beta2_power)),
          static_cast<S>(options.epsilon),
          static_cast<S>(-learning_rate / (1.0 - beta1_power))};
}

namespace detail {

// Returns 0 if |x| < bound, otherwise x. The formula below uses these scalar functions if V is float or
// double. For CPU vectors it uses zero_below of cpu::Packet.
TESSERA_HOST_DEVICE inline float zero_below(float x, float bound) { return std::fabs(x) < bound ? 0.0f : x; }
TESSERA_HOST_DEVICE inline double zero_below(double x, double bound) {
  return std::fabs(x) < bound ? 0.0 : x;
}

// The AdamW update (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), in PyTorch's order: decay first,
// then the step. Adam adds its decay to the gradient after clipping. AdamW adds 0 x weight at this point,
// which changes no bit. Every a*b + c is an explicit fma, so a compiler cannot choose another rounding.
// Moments below 2^-100 become 0, because denormals cost time and differ between devices.
//
// The formula is a macro because nvcc does not compile one function for GPU scalars and CPU vectors. V is
// float, double or a CPU vector of such values. The other names in the macro are the parameters of the
// functions below it; `first` and `second` are the moments.
#define TESSERA_ADAMW_FORMULA(V, S)                                        \
  using std::fma;                                                          \
  using std::sqrt;                                                         \
  constexpr S tiny = static_cast<S>(0x1p-100);                             \
  V const g = fma(V(by.l2), weight, gradient * V(by.gradient));            \
  V const share = V(by.one_minus_beta1) * g;                               \
  V const square = V(by.one_minus_beta2) * g * g;                          \
  first = zero_below(fma(V(by.beta1), first, share), V(tiny));             \
  second = zero_below(fma(V(by.beta2), second, square), V(tiny));          \
  V const bound = fma(sqrt(second), V(by.root_correction), V(by.epsilon)); \
  V const decayed = weight * V(by.keep);                                   \
  weight = fma(V(by.minus_step), first / bound, decayed);

/// Updates one element, on the CPU or a GPU.
template <class S>
TESSERA_HOST_DEVICE inline void adamw_formula(S gradient, S& weight, S& first, S& second,
                                              AdamWFactors<S> const& by) {
  TESSERA_ADAMW_FORMULA(S, S)
}

/// Updates as many elements as a vector register of the CPU has.
template <class V, class S>
inline void adamw_formula_of_packet(V gradient, V& weight, V& first, V& second, AdamWFactors<S> const& by) {
  TESSERA_ADAMW_FORMULA(V, S)
}

#undef TESSERA_ADAMW_FORMULA

}  // namespace detail

}  // namespace v0
}  // namespace tessera
