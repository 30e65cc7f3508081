// SPDX-License-Identifier: Apache-2.0
// Multiplies bfloat16 matrices with the instruction vdpbf16ps (AVX512_BF16). This instruction adds two
// products to each float sum; an fma instruction adds only one product.
//
// The operands of the instruction have two bfloat16 values, a pair, for each float sum. The instruction adds
// two products to the sum, one after the other: first the product of the upper halves of the two pairs, then
// the product of the lower halves. Each addition is rounded to nearest (Intel's manual, VDPBF16PS). A product
// of two bfloat16 values is exact in float. The code stores the earlier of two values in the upper half of a
// pair. So the sums have the same bits as sums by fma of values that are converted to float. There is one
// exception: the instruction treats subnormal operands and sums (below 1.2e-38) as zeros.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/backend/cpu/microkernel.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// Returns sum + values, lane by lane. If each lane of `values` holds several values (a pair), adds them in
/// order.
template <class S>
EIGEN_STRONG_INLINE Packet<S> add_values(Packet<S> sum, Packet<S> values) {
  return sum + values;
}

// Under nvcc, Eigen defines EIGEN_VECTORIZE_AVX512 only if EIGEN_NO_CUDA is defined.
#if defined(TESSERA_AVX512_BF16) && defined(EIGEN_VECTORIZE_AVX512)

/// Two bfloat16 values that are adjacent along the depth of a product. The earlier one is in the upper half
/// of `bits`. A zero pads an odd depth.
struct Pair {
  std::uint32_t bits;
};
template <>
inline constexpr std::int64_t values_in<Pair> = 2;
#if defined(TESSERA_AMX_BF16)
template <>
inline constexpr std::int64_t depth_step<Pair> = 16;
#endif
template <>
struct PackedFor<float, bfloat16, bfloat16> {
  using type = Pair;
};

/// A register of 16 pairs, one for each lane of a packet of floats.
template <>
struct Packet<Pair> {
  static constexpr int size = 16;
  static_assert(size == Packet<float>::size);

  __m512i raw;

  Packet() = default;
  EIGEN_STRONG_INLINE Packet(Pair value) : raw(_mm512_set1_epi32(static_cast<int>(value.bits))) {}
  EIGEN_STRONG_INLINE explicit Packet(__m512i const& value, int) : raw(value) {}
};

template <class S>
EIGEN_STRONG_INLINE Packet<Pair> load(Pair const* from) {
  return Packet<Pair>(_mm512_loadu_si512(from), 0);
}

EIGEN_STRONG_INLINE Packet<float> multiply_add(Packet<Pair> a, Packet<Pair> b, Packet<float> sum) {
  return Packet<float>(
      _mm512_dpbf16_ps(sum.raw, std::bit_cast<__m512bh>(a.raw), std::bit_cast<__m512bh>(b.raw)), 0);
}

EIGEN_STRONG_INLINE Packet<float> add_values(Packet<float> sum, Packet<Pair> pairs) {
  __m512i const upper = _mm512_and_si512(pairs.raw, _mm512_set1_epi32(-0x10000));
  __m512i const lower = _mm512_maskz_slli_epi32(0xffff, pairs.raw, 16);
  return sum + Packet<float>(_mm512_castsi512_ps(upper), 0) + Packet<float>(_mm512_castsi512_ps(lower), 0);
}

namespace detail {

/// Loads the first `count` of 32 adjacent values as 16 pairs. The other values become zero. A rotation by 16
/// bits moves the earlier value of each pair to the upper half.
EIGEN_STRONG_INLINE __m512i load_pairs(bfloat16 const* from, std::int64_t count) {
  __mmask32 const mask = count < 32 ? (__mmask32{1} << count) - 1u : ~__mmask32{0};
  return _mm512_maskz_rol_epi32(0xffff, _mm512_maskz_loadu_epi16(mask, from), 16);
}

/// Loads the first `count` of 16 pairs. Pair i consists of value i of row `from` and value i of the row below
/// it, `next`. The other pairs become zero. `depth` is the number of rows that exist: values of rows beyond
/// it count as zero.
EIGEN_STRONG_INLINE __m512i load_pairs_across(bfloat16 const* from, bfloat16 const* next, std::int64_t depth,
                                              std::int64_t count) {
  constexpr __mmask16 all = 0xffff;
  unsigned const mask = count < 16 ? (1u << count) - 1u : 0xffffu;
  __m256i const upper = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(depth > 0 ? mask : 0u), from);
  __m256i const lower = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(depth > 1 ? mask : 0u), next);
  return _mm512_or_si512(_mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, upper), 16),
                         _mm512_maskz_cvtepu16_epi32(all, lower));
}

}  // namespace detail

/// Overloads of the functions in microkernel.hpp, which pack single values. Here pack_along forms pairs of
/// adjacent values of one row. pack_across forms pairs of a value and the value below it in the next row.
/// Values beyond the depth are zero.
EIGEN_STRONG_INLINE void pack_along(bfloat16 const* from, std::int64_t depth, Pair* to) {
  for (std::int64_t k = 0; k < depth; k += 32)
    _mm512_storeu_si512(to + k / 2, detail::load_pairs(from + k, depth - k));
}
EIGEN_STRONG_INLINE void pack_across(bfloat16 const* from, std::int64_t stride, std::int64_t depth,
                                     std::int64_t count, Pair* to) {
  bfloat16 const* const next = depth > 1 ? from + stride : from;
  for (std::int64_t i = 0; i < count; i += 16) {
    _mm512_storeu_si512(to + i, detail::load_pairs_across(from + i, next + i, depth, count - i));
  }
}

/// Overload of transpose_rows in microkernel.hpp, which transposes single values. Here the pair of values k
/// and k + 1 of row `row` goes to to[k/2*step + row].
EIGEN_STRONG_INLINE void transpose_rows(bfloat16 const* from, std::int64_t stride, std::int64_t rows,
                                        std::int64_t depth, Pair* to, std::int64_t step) {
  for (std::int64_t k = 0; k < depth; k += 32) {
    Packet<float> block[16];
    for (int row = 0; row < 16; ++row)
      block[row] =
          row < rows
              ? Packet<float>(_mm512_castsi512_ps(detail::load_pairs(from + row * stride + k, depth - k)), 0)
              : Packet<float>(0.0f);
    transpose_packets<float>(block);
    std::int64_t const count = std::min<std::int64_t>(16, packed_depth<Pair>(depth - k));
    for (std::int64_t pair = 0; pair < count; ++pair)
      _mm512_storeu_ps(to + (k / 2 + pair) * step, block[pair].raw);
  }
}

#endif

}  // namespace cpu
}  // namespace v0
}  // namespace tessera
