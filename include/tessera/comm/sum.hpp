// SPDX-License-Identifier: Apache-2.0
// Provides sums over ranks in a fixed order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Returns `left` if `first` is true, else `right`. Compilers generate no branch for this form.
constexpr std::uint32_t pick(bool first, std::uint32_t left, std::uint32_t right) {
  std::uint32_t const mask = 0u - static_cast<std::uint32_t>(first);
  return (left & mask) | (right & ~mask);
}

/// Converts an element to the type in which it is summed. For half, it gives the same values as the
/// conversion in core/dtype.hpp. It has no branches, so that compilers vectorise the loop of
/// sum_in_rank_order.
template <class T>
compute_t<T> widen(T value) {
  if constexpr (std::is_same_v<T, half>) {
    std::uint32_t const sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
    std::uint32_t const magnitude = value.bits & 0x7fffu;
    std::uint32_t const exponent = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;
    std::uint32_t const normal = (magnitude << 13) + exponent;
    auto const subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
    return std::bit_cast<float>(sign | pick(magnitude < 0x400u, subnormal, normal));
  } else {
    return static_cast<compute_t<T>>(value);
  }
}

/// Rounds a sum to the type of the elements, to nearest even.
template <class T>
T narrow(compute_t<T> value) {
  if constexpr (std::is_same_v<T, half>) {
    std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t const magnitude = bits & 0x7fffffffu;
    std::uint32_t const normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // Rounds to a subnormal half by adding 0.5. Floats from 0.5 to 1 have a spacing of 2^-24, like subnormal
    // halves.
    std::uint32_t const subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    std::uint32_t const special = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
    std::uint32_t const finite = pick(magnitude < 0x38800000u, subnormal, normal);
    half result;
    result.bits =
        static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | (magnitude >= 0x477ff000u ? special : finite));
    return result;
  } else {
    return static_cast<T>(value);
  }
}

/// For each i below `count`, stores in out[i] the sum over all ranks of from(rank)[i]. Adds in rank order,
/// from rank 0, in the type compute_t<T>, and rounds once. from(rank) returns the values of a rank. `out` may
/// be the same array as the values of one rank.
template <class T, class From>
void sum_in_rank_order(int world, From const& from, T* out, std::int64_t count) {
  using Sum = compute_t<T>;
  constexpr std::int64_t block = 1024;
  Sum sums[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::int64_t const length = std::min(block, count - begin);
    T const* first = from(0) + begin;
    for (std::int64_t i = 0; i < length; ++i) sums[i] = widen(first[i]);
    for (int rank = 1; rank < world; ++rank) {
      T const* next = from(rank) + begin;
      for (std::int64_t i = 0; i < length; ++i) sums[i] += widen(next[i]);
    }
    for (std::int64_t i = 0; i < length; ++i) out[begin + i] = narrow<T>(sums[i]);
  }
}

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
