// SPDX-License-Identifier: Apache-2.0
// Implements layer normalisation and RMS normalisation on the CPU. RMS normalisation uses 0 for the mean and
// has no beta. ops/layer_norm.hpp and ops/rms_norm.hpp document the operations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// Returns the sum of n terms. term(i, full, count) returns the packet of the terms from index i on (see
/// for_packets); lanes beyond n must be 0. The function adds the packets in four running sums.
template <class S, class Term>
EIGEN_STRONG_INLINE S sum_terms(std::int64_t n, Term const& term) {
  constexpr std::int64_t width = Packet<S>::size;
  Packet<S> sums[4] = {Packet<S>(S(0)), Packet<S>(S(0)), Packet<S>(S(0)), Packet<S>(S(0))};
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width)
    for (int part = 0; part < 4; ++part)
      sums[part] = sums[part] + term(i + part * width, std::true_type{}, width);
  for_packets<S>(i, n, [&](std::int64_t at, auto full, std::int64_t count) {
    sums[0] = sums[0] + term(at, full, count);
  });
  return lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// Writes the gradients of gamma and beta to `sums` (2,C). If `Centered` is false, there is no beta, and it
/// writes only the gradient of gamma to `sums` (1,C). Workers process different columns. Each worker sums the
/// rows of a block of 64 rows, and then adds the block's sum to its total, in order.
template <bool Centered, class T>
void norm_backward_scale(Context<Cpu>& context, ConstTensor<T> const& dy, ConstTensor<T> const& x,
                         ConstTensor<compute_t<T>> const& mean, ConstTensor<compute_t<T>> const& rstd,
                         compute_t<T>* sums) {
  using S = compute_t<T>;
  constexpr std::int64_t row_block = 64;
  constexpr std::int64_t width = Packet<S>::size;
  std::int64_t const rows = x.shape().rows(), n = x.shape().columns();
  context.pool().parallel_for((n + width - 1) / width, [&](std::int64_t stripe, int) {
    std::int64_t const begin = stripe * width;
    for_packets<S>(begin, std::min(begin + width, n), [&](std::int64_t i, auto full, std::int64_t count) {
      Packet<S> gammas(S(0)), betas(S(0));
      for (std::int64_t block = 0; block < rows; block += row_block) {
        Packet<S> block_gammas(S(0)), block_betas(S(0));
        for (std::int64_t row = block; row < std::min(block + row_block, rows); ++row) {
          Packet<S> const slope = get<S>(dy.data() + row * n + i, full, count);
          Packet<S> const normal =
              (get<S>(x.data() + row * n + i, full, count) - Packet<S>(Centered ? mean.data()[row] : S(0))) *
              Packet<S>(rstd.data()[row]);
          block_gammas = multiply_add(slope, normal, block_gammas);
          block_betas = block_betas + slope;
        }
        gammas = gammas + block_gammas;
        betas = betas + block_betas;
      }
      put(sums + i, gammas, full, count);
      if constexpr (Centered) put(sums + n + i, betas, full, count);
    });
  });
}

/// Implements layer normalisation if `Centered` is true, otherwise RMS normalisation. For RMS normalisation,
/// mean, beta and dbeta are empty.
template <bool Centered>
struct RowNorm {
  template <class T>
  static void forward(Context<Cpu>& context, ConstTensor<T> const& x, ConstTensor<T> const& gamma,
                      ConstTensor<T> const& beta, double epsilon, Tensor<T> const& y,
                      Tensor<compute_t<T>> const& mean, Tensor<compute_t<T>> const& rstd) {
    using S = compute_t<T>;
    std::int64_t const n = x.shape().columns();
    context.pool().parallel_for(x.shape().rows(), [&](std::int64_t row, int) {
      T const* const from = x.data() + row * n;
      S average(0);
      if constexpr (Centered)
        average =
            sum_terms<S>(n, [&](auto i, auto full, auto count) { return get<S>(from + i, full, count); }) /
            S(n);
      Packet<S> const center(average);
      S const squares = sum_terms<S>(n, [&](auto i, auto full, auto count) {
        Packet<S> const off = get<S>(from + i, full, count, average) - center;
        return off * off;
      });
      S const scale = S(1) / std::sqrt(squares / S(n) + S(epsilon));
      if constexpr (Centered) mean.data()[row] = average;
      rstd.data()[row] = scale;
      for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
        Packet<S> const normal = (get<S>(from + i, full, count) - center) * Packet<S>(scale);
        Packet<S> shift(S(0));
        if constexpr (Centered) shift = get<S>(beta.data() + i, full, count);
        put(y.data() + row * n + i, fma(normal, get<S>(gamma.data() + i, full, count), shift), full, count);
      });
    });
  }

  template <class T>
  static void backward_input(Context<Cpu>& context, ConstTensor<T> const& dy, ConstTensor<T> const& x,
                             ConstTensor<T> const& gamma, ConstTensor<compute_t<T>> const& mean,
                             ConstTensor<compute_t<T>> const& rstd, ConstTensor<T> const& residual_gradient,
                             Tensor<T> const& dx, Tensor<compute_t<T>> const& partials,
                             ops::NormSums<compute_t<T>, Cpu> const& = {}) {
    using S = compute_t<T>;
    std::int64_t const n = x.shape().columns();
    if (partials) norm_backward_scale<Centered>(context, dy, x, mean, rstd, partials.data());
    if (!dx) return;
    context.pool().parallel_for(x.shape().rows(), [&](std::int64_t row, int) {
      T const* const slopes = dy.data() + row * n;
      T const* const from = x.data() + row * n;
      T const* const base = residual_gradient ? residual_gradient.data() + row * n : nullptr;
      Packet<S> const center(Centered ? mean.data()[row] : S(0)), scale(rstd.data()[row]);
      auto const scaled = [&](std::int64_t i, auto full, std::int64_t count) {
        return get<S>(slopes + i, full, count) * get<S>(gamma.data() + i, full, count);
      };
      auto const normal = [&](std::int64_t i, auto full, std::int64_t count) {
        return (get<S>(from + i, full, count) - center) * scale;
      };
      S sum(0);
      if constexpr (Centered) sum = sum_terms<S>(n, scaled);
      S const dot = sum_terms<S>(n, [&](std::int64_t i, auto full, std::int64_t count) {
        return scaled(i, full, count) * normal(i, full, count);
      });
      Packet<S> const sum_mean(sum / S(n)), minus_dot_mean(-dot / S(n));
      for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
        Packet<S> const off = scaled(i, full, count) - sum_mean;
        Packet<S> result = fma(normal(i, full, count), minus_dot_mean, off) * scale;
        if (base) result = result + get<S>(base + i, full, count);
        put(dx.data() + row * n + i, result, full, count);
      });
    });
  }

  /// Writes dgamma and dbeta: rounds `partials` to T. On the CPU, `partials` already holds the complete sums
  /// over all rows.
  template <class T>
  static void backward_weight(Context<Cpu>& context, ConstTensor<compute_t<T>> const& partials,
                              std::int64_t /*rows*/, Tensor<T> const& dgamma, Tensor<T> const& dbeta) {
    using S = compute_t<T>;
    std::int64_t const n = partials.shape().columns();
    for (auto const& [sums, to] :
         {std::pair(partials.data(), dgamma.data()), std::pair(partials.data() + n, dbeta.data())})
      if (to)
        transform<S>(
            context.pool(), n, [](Packet<S> from, Packet<S>& rounded) { rounded = from; }, sums, to);
  }
};

}  // namespace cpu

template <>
struct backend::LayerNorm<Cpu> : cpu::RowNorm<true> {};
template <>
struct backend::RmsNorm<Cpu> : cpu::RowNorm<false> {};
}  // namespace v0
}  // namespace tessera
