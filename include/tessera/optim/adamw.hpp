// SPDX-License-Identifier: Apache-2.0
// AdamW, one formula for every place, format and instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/operation.hpp"

namespace tessera::inline v0 {

/// The numbers of AdamW. `weight_decay` applies to parameters of two dims (matrices and embeddings).
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// The factors of one step in the type S that the update computes in, formed once from doubles.
template <class S>
struct AdamWFactors {
  S gradient;  ///< factor of every gradient: loss scale, token count and clipping together
  S keep;      ///< 1 - learning rate x weight decay
  S beta1, one_minus_beta1;
  S beta2, one_minus_beta2;
  S root_correction;  ///< 1 / sqrt(1 - beta2^t)
  S epsilon;
  S minus_step;  ///< -learning rate / (1 - beta1^t)
};

/// beta1_power and beta2_power are beta^t of this update, t from 1.
template <class S>
AdamWFactors<S> adamw_factors(AdamWOptions const& options, double learning_rate, double beta1_power,
                              double beta2_power, double gradient_factor, bool decayed) {
  return {static_cast<S>(gradient_factor),
          static_cast<S>(decayed ? 1.0 - learning_rate * options.weight_decay : 1.0),
          static_cast<S>(options.beta1),
          static_cast<S>(1.0 - options.beta1),
          static_cast<S>(options.beta2),
          static_cast<S>(1.0 - options.beta2),
          static_cast<S>(1.0 / std::sqrt(1.0 - beta2_power)),
          static_cast<S>(options.epsilon),
          static_cast<S>(-learning_rate / (1.0 - beta1_power))};
}

namespace detail {

// The scalar forms of what cpu::Packet has; found by the formula below when V is float or double.
TESSERA_HOST_DEVICE inline float zero_below(float x, float bound) { return std::fabs(x) < bound ? 0.0f : x; }
TESSERA_HOST_DEVICE inline double zero_below(double x, double bound) {
  return std::fabs(x) < bound ? 0.0 : x;
}

/// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with PyTorch's order: decay first, then the step.
/// Every a*b + c is an explicit fma, so contraction by a compiler changes nothing; moments below 2^-100
/// become 0, so that denormals neither cost time nor differ between devices. V is float, double or a packet
/// of them.
template <class V, class S>
TESSERA_HOST_DEVICE inline void adamw_formula(V gradient, V& weight, V& first, V& second,
                                              AdamWFactors<S> const& by) {
  using std::fma;
  using std::sqrt;
  constexpr S tiny = static_cast<S>(0x1p-100);
  V const g = gradient * V(by.gradient);
  V const share = V(by.one_minus_beta1) * g;
  V const square = V(by.one_minus_beta2) * g * g;
  first = zero_below(fma(V(by.beta1), first, share), V(tiny));
  second = zero_below(fma(V(by.beta2), second, square), V(tiny));
  V const bound = fma(sqrt(second), V(by.root_correction), V(by.epsilon));
  V const kept = weight * V(by.keep);
  weight = fma(V(by.minus_step), first / bound, kept);
}

}  // namespace detail

namespace ops {

/// One AdamW update of n elements: reads the gradient (type G), updates master and both moments (type S), and
/// stores the new weights as `weights` (type T) when that is not the master itself. Moves 28 bytes an element
/// in fp32, 30 with separate 16-bit weights. While `*skip` is not 0 it changes nothing: separate weights are
/// stored from the master as it is, so that they are always valid. Factors are read when it runs.
template <class G, class S, class T>
void adamw(Context<Cpu>& context, std::int64_t elements, G const* gradient, S* master, S* first, S* second,
           T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
  double const n = static_cast<double>(elements);
  bool const separate = static_cast<void*>(weights) != static_cast<void*>(master) && weights != nullptr;
  double const bytes = n * (sizeof(G) + 6.0 * sizeof(S) + (separate ? sizeof(T) : 0.0));
  context.enqueue({"adamw", 14.0 * n, bytes}, [&] {
    if (*skip) {
      if (separate)
        cpu::transform<S>(
            context.pool(), elements, [](auto p, auto& w) { w = p; }, static_cast<S const*>(master), weights);
      return;
    }
    AdamWFactors<S> const by = *factors;
    if (separate) {
      cpu::transform<S>(
          context.pool(), elements,
          [&by](auto g, auto& p, auto& m, auto& v, auto& w) {
            v0::detail::adamw_formula(g, p, m, v, by);
            w = p;
          },
          gradient, master, first, second, weights);
    } else {
      cpu::transform<S>(
          context.pool(), elements,
          [&by](auto g, auto& p, auto& m, auto& v) { v0::detail::adamw_formula(g, p, m, v, by); }, gradient,
          master, first, second);
    }
  });
}

}  // namespace ops

}  // namespace tessera::inline v0
