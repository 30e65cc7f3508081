// SPDX-License-Identifier: Apache-2.0
// Multiplies bfloat16 matrices with Intel's tiles (AMX). A tile is a register for a block of a matrix. The
// instruction tdpbf16ps works on a tile of 16 x 16 float sums: it adds 32 products of bfloat16 values to each
// sum.
//
// The instruction has its own summation order (Intel's manual, TDPBF16PS). For each float sum, it sums the 16
// products with even index by fma, and the 16 products with odd index by fma. Then it adds these two results,
// and adds their sum to the tile. Subnormal operands and sums count as zeros. So the bits differ from the
// bits of other instructions. The depth of a product is divided at multiples of 32 for every shape, and zeros
// pad its end. So the bits do not depend on the number of threads or on the tile size.
//
// A process must request the tile registers from the kernel once. If the kernel refuses, the code multiplies
// with vdpbf16ps instead, on operands that are packed in the same way. The product then has the bits that
// vdpbf16ps gives.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/backend/cpu/pairs.hpp"
#include "tessera/backend/cpu/tile_grant.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

#if defined(TESSERA_AMX_BF16) && defined(EIGEN_VECTORIZE_AVX512)

namespace detail {

/// The operand of the instruction ldtilecfg, which sets the shapes of tiles: all eight tiles have 16 rows of
/// 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);
inline constexpr TileShapes tile_shapes;

}  // namespace detail

template <>
struct Microtile<Pair> {
  static constexpr int rows = 32, packets = 2, width = 16;
  static constexpr int cols = packets * width;
  static constexpr int row_panel = rows;
  static constexpr int right_cost = 64, left_cost = 24;
};

/// The constructor sets the tile shapes of this thread. The destructor releases the tiles, so that a context
/// switch need not save them.
template <>
struct KernelScope<Pair> {
  KernelScope() {
    if (tiles_granted()) _tile_loadconfig(&detail::tile_shapes);
  }
  ~KernelScope() {
    if (tiles_granted()) _tile_release();
  }
  KernelScope(KernelScope const&) = delete;
  KernelScope& operator=(KernelScope const&) = delete;
};

/// Overload of pack_left in microkernel.hpp for pairs. The packed pairs of a row are contiguous, also if `a`
/// is transposed.
inline PackedLeft<Pair> pack_left(Matrix<bfloat16> a, std::int64_t rows, std::int64_t depth, Pair* to) {
  if (!a.transposed) return pack_left<Pair, bfloat16>(a, rows, depth, to);
  std::int64_t const padded = packed_depth<Pair>(depth);
  std::int64_t row = 0;
  for (; row < rows; row += 16)
    for (std::int64_t k = 0; k < depth; k += 32) {
      bfloat16 const* from = a.data + k * a.stride + row;
      Packet<float> block[16];
      for (std::int64_t pair = 0; pair < 16; ++pair) {
        std::int64_t const left = depth - k - 2 * pair;
        bfloat16 const* const first = left > 0 ? from + 2 * pair * a.stride : from;
        block[pair].raw = _mm512_castsi512_ps(
            detail::load_pairs_across(first, left > 1 ? first + a.stride : first, left, rows - row));
      }
      transpose_packets<float>(block);
      for (int each = 0; each < 16; ++each)
        _mm512_storeu_ps(to + (row + each) * padded + k / 2, block[each].raw);
    }
  for (; row % Microtile<Pair>::rows != 0; row += 16) std::fill_n(to + row * padded, 16 * padded, Pair{});
  return {to, padded, 1, 0};
}

/// Computes c = a b over `depth` pairs of each row, plus the old c unless `first`. c is (32, Packets*16), b
/// is packed by pack_right. The rows of a are a_stride pairs apart, the rows of c are c_stride floats apart.
template <int Packets>
EIGEN_DONT_INLINE void multiply_tiles(std::int64_t depth, Pair const* a, std::int64_t a_stride, Pair const* b,
                                      float* c, std::int64_t c_stride, bool first) {
  static_assert(Packets == 1 || Packets == 2);
  asm volatile("" ::: "memory");  // finish all stores first: the compiler does not know what tile loads read
  constexpr std::int64_t b_bytes = Packets * 64;
  std::int64_t const a_bytes = a_stride * 4, c_bytes = c_stride * 4;
  Pair const* const lower = a + 16 * a_stride;
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (Packets == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  } else {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16 * c_stride, c_bytes);
    if constexpr (Packets == 2) {
      _tile_loadd(2, c + 16, c_bytes);
      _tile_loadd(3, c + 16 * c_stride + 16, c_bytes);
    }
  }
  for (std::int64_t k = 0; k < depth; k += 16) {
    _tile_loadd(4, b, b_bytes);
    _tile_loadd(6, a + k, a_bytes);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(7, lower + k, a_bytes);
    _tile_dpbf16ps(1, 7, 4);
    if constexpr (Packets == 2) {
      _tile_loadd(5, b + 16, b_bytes);
      _tile_dpbf16ps(2, 6, 5);
      _tile_dpbf16ps(3, 7, 5);
    }
    b += 16 * Packets * 16;
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16 * c_stride, c_bytes);
  if constexpr (Packets == 2) {
    _tile_stored(2, c + 16, c_bytes);
    _tile_stored(3, c + 16 * c_stride + 16, c_bytes);
  }
}

/// Computes one register tile of the product (32 rows): with AMX tiles if this process may use them,
/// otherwise with vdpbf16ps.
EIGEN_STRONG_INLINE void multiply_panel(int packets, std::int64_t depth, Pair const* a,
                                        PackedLeft<Pair> const& left, Pair const* b, float* c,
                                        std::int64_t c_stride, bool first) {
  if (tiles_granted()) {
    if (packets == 1)
      multiply_tiles<1>(depth, a, left.row_stride, b, c, c_stride, first);
    else
      multiply_tiles<2>(depth, a, left.row_stride, b, c, c_stride, first);
    return;
  }
  constexpr int rows = Microtile<float>::rows;
  for (int row = 0; row < Microtile<Pair>::rows; row += rows) {
    Pair const* const from = a + row * left.row_stride;
    float* const to = c + row * c_stride;
    if (packets == 1)
      multiply_micro<1>(depth, from, left.row_stride, 1, b, to, c_stride, first);
    else
      multiply_micro<2>(depth, from, left.row_stride, 1, b, to, c_stride, first);
  }
}

#endif

}  // namespace cpu
}  // namespace v0
}  // namespace tessera
