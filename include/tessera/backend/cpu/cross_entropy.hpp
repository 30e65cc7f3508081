// SPDX-License-Identifier: Apache-2.0
// Implements the cross-entropy loss of a classifier and its gradient on the CPU. ops/cross_entropy.hpp
// documents the operations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// Returns log(sum(e^x)) over the n values of a row. Reads each value from memory once: a block of 2048
/// values is in the L1 cache while the function computes the maximum of the block and then its sum.
template <class S, class T>
S log_sum_exp(T const* row, std::int64_t n) {
  constexpr std::int64_t block = 2048;
  S const lowest = -std::numeric_limits<S>::infinity();
  // `top` is the maximum so far. It starts with the lowest finite number. If it started with -infinity and
  // all values of a block were -infinity, the difference value - `next` below would be NaN.
  S top = std::numeric_limits<S>::lowest(), total = S(0);
  for (std::int64_t begin = 0; begin < n; begin += block) {
    std::int64_t const end = std::min(begin + block, n);
    Packet<S> most(lowest);
    for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t count) {
      most = max(most, get<S>(row + i, full, count, lowest));
    });
    S const next = std::max(top, lane_max(most));
    Packet<S> sums(S(0)), offset(next);
    for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t count) {
      if constexpr (full)
        sums = sums + exp(load<S>(row + i) - offset);
      else {
        alignas(64) S values[Packet<S>::size];
        store(values, exp(load_partial<S>(row + i, count) - offset));
        sums = sums + load_partial<S>(static_cast<S const*>(values), count);
      }
    });
    total = total * (begin == 0 ? S(0) : std::exp(top - next)) + lane_sum(sums);
    top = next;
  }
  return top + std::log(total);
}

struct CrossEntropy {
  template <class T>
  static void forward(Context<Cpu>& context, Tensor<T> const& logits, std::int64_t n,
                      ConstTensor<std::int32_t> const& targets, Tensor<compute_t<T>> const& losses,
                      bool gradient, compute_t<T> const* gradient_scale) {
    using S = compute_t<T>;
    std::int64_t const pitch = logits.shape().columns();
    S const scale = gradient ? *gradient_scale : S(0);
    context.pool().parallel_for(logits.shape().rows(), [&](std::int64_t row, int) {
      T* const values = logits.data() + row * pitch;
      std::int64_t const target = targets.data()[row];
      if (gradient) std::fill(values + n, values + pitch, T(S(0)));
      if (target < 0) {
        losses.data()[row] = S(0);
        if (gradient) std::fill_n(values, n, T(S(0)));
        return;
      }
      S const normalizer = log_sum_exp<S>(static_cast<T const*>(values), n);
      S const chosen = static_cast<S>(values[target]);
      losses.data()[row] = normalizer - chosen;
      if (!gradient) return;
      Packet<S> const offset(normalizer), factor(scale);
      for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
        put(values + i, exp(get<S>(static_cast<T const*>(values) + i, full, count) - offset) * factor, full,
            count);
      });
      values[target] = T((std::exp(chosen - normalizer) - S(1)) * scale);
    });
  }

  /// Sums the losses in row order, and counts the rows with a valid target (0 or more).
  template <class S>
  static void sum_losses(Context<Cpu>&, ConstTensor<S> const& losses,
                         ConstTensor<std::int32_t> const& targets, double* loss, std::int64_t* valid_tokens) {
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < losses.elements(); ++row) {
      sum += static_cast<double>(losses.data()[row]);
      count += targets.data()[row] >= 0;
    }
    *loss = sum;
    *valid_tokens = count;
  }
};

}  // namespace cpu

template <>
struct backend::CrossEntropy<Cpu> : cpu::CrossEntropy {};
}  // namespace v0
}  // namespace tessera
