// SPDX-License-Identifier: Apache-2.0
// Implements operations on flat arrays on the CPU: accumulate (sums of several arrays), axpy, sums, norms,
// conversion, activations, and the search for non-finite values. The headers of ops/ document the operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/backend/cpu/activation.hpp"
#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/lane_sum.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// Returns a sum over n values, where n is at most block_elements. Value i goes to the running sum number i
/// modulo 16: add(value, sum) returns the new running sum. At the end the 16 running sums are added pairwise.
/// The number of running sums does not depend on the width of the SIMD registers, so every instruction set
/// gives the same bits.
template <class S, class T, class Add>
S sum_of_block(T const* values, std::int64_t n, Add const& add) {
  constexpr std::int64_t lanes = 16;
  constexpr std::int64_t width = Packet<S>::size;
  constexpr std::int64_t parts = lanes / width;
  static_assert(parts * width == lanes);
  Packet<S> sums[std::size_t{parts}];
  for (Packet<S>& sum : sums) sum = Packet<S>(S(0));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::int64_t part = 0; part < parts; ++part)
      sums[part] = add(load<S>(values + i + part * width), sums[part]);
  for (std::int64_t part = 0; i < n; i += width, ++part)
    sums[part] = add(load_partial<S>(values + i, std::min(width, n - i)), sums[part]);
  alignas(64) S total[lanes];
  for (std::int64_t part = 0; part < parts; ++part) store(total + part * width, sums[part]);
  for (std::int64_t half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2)
    for (std::int64_t lane = 0; lane < half_lanes; ++lane)
      total[lane] = total[lane] + total[lane + half_lanes];
  return total[0];
}

/// Returns the sum of the squares of n values, where n is at most block_elements. A square is added by an
/// fma, which rounds once.
template <class S, class T>
S sum_of_squares(T const* values, std::int64_t n) {
  return sum_of_block<S>(values, n, [](Packet<S> value, Packet<S> sum) { return fma(value, value, sum); });
}

/// Finds the first block whose partial sum is not finite, and records the first non-finite value of the block
/// in *note.bad. If all values of the block are finite and only the sum of squares overflowed, records the
/// first value of the block. Does nothing if all partial sums are finite, if note.bad is null, or if
/// *note.bad already names a later unit or an earlier value of this unit.
template <class T, class Q>
void note_bad(T const* values, std::int64_t n, Q const* partials, ops::BadNote const& note) {
  if (!note.bad || note.unit < note.bad->unit) return;
  for (std::int64_t first = 0; first < n; first += block_elements) {
    if (std::isfinite(partials[first / block_elements])) continue;
    std::int64_t const end = std::min(first + block_elements, n);
    std::int64_t index = first;
    while (index < end && std::isfinite(static_cast<compute_t<T>>(values[index]))) ++index;
    std::int64_t const element = note.begin + (index < end ? index : first);
    if (note.unit > note.bad->unit || element < note.bad->element) *note.bad = {note.unit, element};
    return;
  }
}

struct Elementwise {
  template <class S, class D>
  static void convert(Context<Cpu>& context, ConstTensor<S> const& from, Tensor<D> const& to) {
    using C = std::conditional_t<std::is_same_v<S, double> || std::is_same_v<D, double>, double, float>;
    transform<C>(
        context.pool(), to.elements(), [](Packet<C> source, Packet<C>& target) { target = source; },
        from.data(), to.data());
  }

  template <class T>
  static void fill(Context<Cpu>& context, Tensor<T> const& to, compute_t<T> value) {
    for_blocks(context.pool(), to.elements(), [&](std::int64_t begin, std::int64_t end, int) {
      std::fill(to.data() + begin, to.data() + end, static_cast<T>(value));
    });
  }

  template <class T>
  static void copy(Context<Cpu>& context, ConstTensor<T> const& from, Tensor<T> const& to) {
    for_blocks(context.pool(), to.elements(), [&](std::int64_t begin, std::int64_t end, int) {
      std::memmove(static_cast<void*>(to.data() + begin), from.data() + begin,
                   static_cast<std::size_t>(end - begin) * sizeof(T));
    });
  }

  template <class T>
  static void accumulate(Context<Cpu>& context, Tensor<compute_t<T>> const& accumulator, T const* pieces,
                         int count, std::int64_t stride, bool first, Tensor<float> const& partials,
                         ops::BadNote const& note) {
    using S = compute_t<T>;
    S* const to = accumulator.data();
    for_blocks(context.pool(), accumulator.elements(), [&](std::int64_t begin, std::int64_t end, int) {
      for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t some) {
        Packet<S> sum = get<S>(pieces + i, full, some);
        if (!first) sum = get<S>(static_cast<S const*>(to) + i, full, some) + sum;
        for (int piece = 1; piece < count; ++piece)
          sum = sum + get<S>(pieces + piece * stride + i, full, some);
        put(to + i, sum, full, some);
      });
      if (partials.data())
        partials.data()[begin / block_elements] =
            static_cast<float>(sum_of_squares<S>(static_cast<S const*>(to) + begin, end - begin));
    });
    if (partials.data()) note_bad(to, accumulator.elements(), partials.data(), note);
  }

  template <class T, class Q>
  static void norm_partials(Context<Cpu>& context, ConstTensor<T> const& values, Tensor<Q> const& partials,
                            ops::BadNote const& note) {
    using S = compute_t<T>;
    for_blocks(context.pool(), values.elements(), [&](std::int64_t begin, std::int64_t end, int) {
      partials.data()[begin / block_elements] =
          static_cast<Q>(sum_of_squares<S>(values.data() + begin, end - begin));
    });
    note_bad(values.data(), values.elements(), partials.data(), note);
  }

  template <class T, class Q>
  static void norm_partials(Context<Cpu>& context, ops::Rows<ops::NormRow> const& rows) {
    for (int number = 0; number < rows.count; ++number) {
      ops::NormRow const& row = rows.first[number];
      norm_partials(context, ConstTensor<T>(static_cast<T const*>(row.values), {row.elements}),
                    Tensor<Q>(static_cast<Q*>(row.partials), {blocks_of(row.elements)}), row.note);
    }
  }

  template <class T>
  static void axpy(Context<Cpu>& context, compute_t<T> a, ConstTensor<T> const& x, Tensor<T> const& y) {
    using S = compute_t<T>;
    transform<S>(
        context.pool(), y.elements(),
        [a](Packet<S> value, Packet<S>& sum) { sum = fma(Packet<S>(a), value, sum); }, x.data(), y.data());
  }

  /// Computes the sum of each block of 4096 values.
  template <class T, class Q>
  static void sum_partials(Context<Cpu>& context, ConstTensor<T> const& values, Tensor<Q> const& partials) {
    using S = compute_t<T>;
    for_blocks(context.pool(), values.elements(), [&](std::int64_t begin, std::int64_t end, int) {
      partials.data()[begin / block_elements] = static_cast<Q>(sum_of_block<S>(
          values.data() + begin, end - begin, [](Packet<S> value, Packet<S> sum) { return sum + value; }));
    });
  }

  /// Adds the sums of blocks in double, and stores the total or, if `root` is true, its square root.
  template <class Q>
  static void add_partials(Context<Cpu>&, ConstTensor<Q> const& partials, Tensor<double> const& result,
                           bool root) {
    double const total = v0::detail::add_lanes(
        [&](int lane) { return v0::detail::add_lane(0.0, partials.data(), partials.elements(), lane); });
    *result.data() = root ? std::sqrt(total) : total;
  }

  template <class T>
  static void first_non_finite(Context<Cpu>& context, ConstTensor<T> const& values, std::int64_t* index) {
    std::int64_t const none = values.elements();
    std::atomic<std::int64_t> first{none};
    for_blocks(context.pool(), none, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (std::isfinite(static_cast<compute_t<T>>(values.data()[i]))) continue;
        std::int64_t known = first.load(std::memory_order_relaxed);
        while (i < known && !first.compare_exchange_weak(known, i, std::memory_order_relaxed)) {
        }
        return;
      }
    });
    *index = first.load() == none ? -1 : first.load();
  }

  template <class T>
  static void activate(Context<Cpu>& context, Activation activation, ConstTensor<T> const& pre,
                       Tensor<T> const& y) {
    using S = compute_t<T>;
    with_activation(activation, [&](auto form) {
      transform<S>(
          context.pool(), y.elements(),
          [form](Packet<S> before, Packet<S>& after) { after = form.value(before); }, pre.data(), y.data());
    });
  }
};

}  // namespace cpu

template <>
struct backend::Elementwise<Cpu> : cpu::Elementwise {};
}  // namespace v0
}  // namespace tessera
