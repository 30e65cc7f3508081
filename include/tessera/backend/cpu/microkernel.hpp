// SPDX-License-Identifier: Apache-2.0
// Provides the inner loops of matrix products: the computation of a register tile (a small part of the result
// in SIMD registers), and the packing of the operands.
//
// Eigen 3.4's own kernel (3 packets by 4 values) reached 184 to 193 GFLOP/s, and this kernel 231 to 253
// GFLOP/s. The peak of the instructions is 273 GFLOP/s. Measured on one Zen 5 core with AVX-512, best of many
// runs, at 512x3072x768, 512x768x3072, 1024x512x128 and 1024x384x384, with operands in cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tessera/backend/cpu/packet.hpp"

#ifdef __CUDACC__
#pragma nv_diag_push
#pragma nv_diag_suppress 1675  // nvcc does not know the GCC pragmas below and passes them to GCC
#endif

namespace tessera {
inline namespace v0 {
namespace cpu {

/// A strided view of a matrix operand. Element (i, j) is data[i*stride + j], or data[j*stride + i] if
/// `transposed`.
template <class T>
struct Matrix {
  T const* data;
  std::int64_t stride;
  bool transposed = false;

  Matrix at(std::int64_t i, std::int64_t j) const {
    return {data + (transposed ? j * stride + i : i * stride + j), stride, transposed};
  }
};

/// The size of a register tile, the part of the result that the kernel keeps in registers: `rows` rows of
/// `packets` SIMD packets of S. The depth of a product is divided into blocks of `depth` values. With AVX2, a
/// packed panel of such a block has 12 KiB, and the left operand of a register tile at most 4 KiB (float and
/// double). So the kernel hits a first-level cache of 32 KiB, and often the half of it that a thread has if
/// two share a core. With blocks of 256 floats, it had 1.1 to 2.2 times as many misses (simulated).
template <class S>
struct Microtile {
#if defined(EIGEN_VECTORIZE_AVX512) || defined(__aarch64__)
  static constexpr int rows = 8;
  static constexpr int packets = 3;
  static constexpr std::int64_t depth = 1024 / static_cast<std::int64_t>(sizeof(S));
#elif defined(__FMA__)
  static constexpr int rows = 4;
  static constexpr int packets = 3;
  static constexpr std::int64_t depth = 128;
#else
  static constexpr int rows = 4;
  static constexpr int packets = 2;
  static constexpr std::int64_t depth = 1024 / static_cast<std::int64_t>(sizeof(S));
#endif
  static constexpr int width = Packet<S>::size;
  static constexpr int cols = packets * width;
  /// The number of rows that are packed together if the left operand is transposed.
  static constexpr int row_panel = std::max(rows, width);
  /// The costs of packing one packet of the right and of the left operand, for the choice of the tile size.
  /// The unit is the cost of multiplying one packet.
  static constexpr int right_cost = 8, left_cost = 3;
  static_assert(row_panel % rows == 0);
};

/// Says whether values packed as P use pack_full_panel, and whether attention packs a head only once
/// (ForwardProducts). Both were measured with AVX2 only.
template <class P>
#if defined(__FMA__) && defined(EIGEN_VECTORIZE_AVX2) && !defined(EIGEN_VECTORIZE_AVX512)
inline constexpr bool packs_less = true;
#else
inline constexpr bool packs_less = false;
#endif

/// The type of packed values for operands of types A and B whose products are summed in S. It is S, unless a
/// special instruction needs another type.
template <class S, class A, class B>
struct PackedFor {
  using type = S;
};
template <class S, class A, class B>
using packed_for = typename PackedFor<S, A, B>::type;

/// The number of values that one packed value holds. These values are adjacent in k, the index along the
/// depth of the product.
template <class P>
inline constexpr std::int64_t values_in = 1;
/// The number of packed values, adjacent in k, that the kernel processes at once. Zeros pad the depth of a
/// product to a multiple of depth_step packed values. packed_depth returns the padded depth, in packed
/// values.
template <class P>
inline constexpr std::int64_t depth_step = 1;
template <class P>
constexpr std::int64_t packed_depth(std::int64_t depth) {
  constexpr std::int64_t values = values_in<P> * depth_step<P>;
  return (depth + values - 1) / values * depth_step<P>;
}

/// An object of this type exists while a thread multiplies operands packed as P. A specialisation sets up the
/// state that the instructions need (tiles.hpp). Most packed types need none.
template <class P>
struct KernelScope {};

/// Makes the compiler keep a loaded packet in a register. If GCC tunes for Zen 3 (-march=native or
/// -march=znver3 on such a machine), it otherwise loads each packet of the right operand again for each fma
/// of the kernel. A product then took 1.28 to 1.35 times as long (Zen 5, AVX2).
template <class P>
EIGEN_STRONG_INLINE void keep_in_register([[maybe_unused]] Packet<P>& packet) {
#if defined(__GNUC__) && defined(EIGEN_VECTORIZE_AVX512)
  asm("" : "+v"(packet.raw));
#elif defined(__GNUC__) && defined(EIGEN_VECTORIZE_SSE)
  asm("" : "+x"(packet.raw));
#endif
}

/// Computes one register tile: c = sum over k of a(., k) b(k, .), plus the old c unless `first`. The operands
/// are packed as P. Value (row, k) of the left operand is a[row*row_stride + k*k_stride]. b is a packed panel
/// with `Packets` packets per k. Rows of c are c_stride apart. Each sum is in the order of k, so a result
/// does not depend on its position in a tile.
template <int Packets, class S, class P>
EIGEN_DONT_INLINE void multiply_micro(std::int64_t depth, P const* a, std::int64_t row_stride,
                                      std::int64_t k_stride, P const* b, S* c, std::int64_t c_stride,
                                      bool first) {
  constexpr int rows = Microtile<S>::rows;
  constexpr int width = Packet<S>::size;
  Packet<S> sums[std::size_t{rows}][std::size_t{Packets}];
#pragma GCC unroll 32
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int part = 0; part < Packets; ++part) sums[row][part] = Packet<S>(S(0));
  for (std::int64_t k = 0; k < depth; ++k) {
    Packet<P> right[std::size_t{Packets}];
#pragma GCC unroll 8
    for (int part = 0; part < Packets; ++part) {
      right[part] = load<P>(b + part * width);
      keep_in_register(right[part]);
    }
#pragma GCC unroll 32
    for (int row = 0; row < rows; ++row) {
      Packet<P> const left(a[row * row_stride]);
#pragma GCC unroll 8
      for (int part = 0; part < Packets; ++part)
        sums[row][part] = multiply_add(left, right[part], sums[row][part]);
    }
    b += Packets * width;
    a += k_stride;
  }
#pragma GCC unroll 32
  for (int row = 0; row < rows; ++row)
#pragma GCC unroll 8
    for (int part = 0; part < Packets; ++part) {
      S* const to = c + row * c_stride + part * width;
      store(to, first ? sums[row][part] : load<S>(to) + sums[row][part]);
    }
}

/// Divides `cols` columns into panels of at most Microtile::packets packets. If the last panel would have one
/// packet, the panel before it gives one packet to it.
template <class S>
class Panels {
 public:
  explicit Panels(std::int64_t cols) : packets_((cols + Packet<S>::size - 1) / Packet<S>::size) {}

  std::int64_t count() const { return (packets_ + most - 1) / most; }
  /// Returns the index of the first packet of a panel. For panel `count()`, returns the total number of
  /// packets.
  std::int64_t start(std::int64_t panel) const {
    if (panel >= count()) return packets_;
    bool const thin = most > 2 && packets_ > most && packets_ % most == 1 && panel + 1 == count();
    return panel * most - (thin ? 1 : 0);
  }
  int packets(std::int64_t panel) const { return static_cast<int>(start(panel + 1) - start(panel)); }
  /// Returns the number of columns, padded to full packets.
  std::int64_t padded() const { return packets_ * Packet<S>::size; }

 private:
  static constexpr std::int64_t most = Microtile<S>::packets;
  std::int64_t packets_;
};

/// Converts `count` contiguous values to S, writes them to `to`, and pads them with zeros to full packets.
template <class S, class T>
EIGEN_STRONG_INLINE void convert_row(T const* from, std::int64_t count, S* to) {
  for_packets<S>(0, count, [&](std::int64_t i, auto full, std::int64_t rest) {
    store(to + i, get<S>(from + i, full, rest));
  });
}

/// `pack_along` packs one row, whose values are adjacent in k. `pack_across` packs `count` adjacent values
/// that have the same k. If a packed value holds the values of several k, pack_across also packs the values
/// of the next rows. The rows are `stride` values apart, and `depth` of them exist. Both functions convert
/// the values and pad them with zeros to full packets.
template <class S, class T>
EIGEN_STRONG_INLINE void pack_along(T const* from, std::int64_t depth, S* to) {
  convert_row(from, depth, to);
}
template <class S, class T>
EIGEN_STRONG_INLINE void pack_across(T const* from, std::int64_t /*stride*/, std::int64_t /*depth*/,
                                     std::int64_t count, S* to) {
  convert_row(from, count, to);
}

// GCC warns that a SIMD type loses its alignment attribute as a template argument. This is harmless here.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif

/// Transposes a square block of values in place: as many packets as a packet has lanes. Eigen's own function
/// for AVX-512 is not inlined, and GCC 12 warns about it.
template <class S>
EIGEN_STRONG_INLINE void transpose_packets(Packet<S> (&rows)[Packet<S>::size]) {
  constexpr int width = Packet<S>::size;
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float>) {
    __m512 pairs[16];
#pragma GCC unroll 4
    for (int quad = 0; quad < 16; quad += 4) {
      __m512 const a = _mm512_maskz_unpacklo_ps(0xffff, rows[quad].raw, rows[quad + 1].raw);
      __m512 const b = _mm512_maskz_unpackhi_ps(0xffff, rows[quad].raw, rows[quad + 1].raw);
      __m512 const c = _mm512_maskz_unpacklo_ps(0xffff, rows[quad + 2].raw, rows[quad + 3].raw);
      __m512 const d = _mm512_maskz_unpackhi_ps(0xffff, rows[quad + 2].raw, rows[quad + 3].raw);
      pairs[quad] = _mm512_maskz_shuffle_ps(0xffff, a, c, 0x44);
      pairs[quad + 1] = _mm512_maskz_shuffle_ps(0xffff, a, c, 0xee);
      pairs[quad + 2] = _mm512_maskz_shuffle_ps(0xffff, b, d, 0x44);
      pairs[quad + 3] = _mm512_maskz_shuffle_ps(0xffff, b, d, 0xee);
    }
    // 128-bit lane l of pairs[4q + c] holds four values of column 4l + c, from rows 4q to 4q + 3. The next
    // shuffles collect the lanes of each column.
#pragma GCC unroll 4
    for (int column = 0; column < 4; ++column) {
      __m512 const even = _mm512_maskz_shuffle_f32x4(0xffff, pairs[column], pairs[4 + column], 0x88);
      __m512 const odd = _mm512_maskz_shuffle_f32x4(0xffff, pairs[column], pairs[4 + column], 0xdd);
      __m512 const more_even =
          _mm512_maskz_shuffle_f32x4(0xffff, pairs[8 + column], pairs[12 + column], 0x88);
      __m512 const more_odd = _mm512_maskz_shuffle_f32x4(0xffff, pairs[8 + column], pairs[12 + column], 0xdd);
      rows[column].raw = _mm512_maskz_shuffle_f32x4(0xffff, even, more_even, 0x88);
      rows[4 + column].raw = _mm512_maskz_shuffle_f32x4(0xffff, odd, more_odd, 0x88);
      rows[8 + column].raw = _mm512_maskz_shuffle_f32x4(0xffff, even, more_even, 0xdd);
      rows[12 + column].raw = _mm512_maskz_shuffle_f32x4(0xffff, odd, more_odd, 0xdd);
    }
    return;
  }
  alignas(64) S values[std::size_t{width}][std::size_t{width}];
  for (int row = 0; row < width; ++row) store(values[row], rows[row]);
  for (int row = 0; row < width; ++row)
    for (int column = row + 1; column < width; ++column) std::swap(values[row][column], values[column][row]);
  for (int row = 0; row < width; ++row) rows[row] = load<S>(static_cast<S const*>(values[row]));
#else
  if constexpr (width > 1) {
    Eigen::internal::PacketBlock<typename Packet<S>::raw_type, width> block;
    for (int row = 0; row < width; ++row) block.packet[row] = rows[row].raw;
    Eigen::internal::ptranspose(block);
    for (int row = 0; row < width; ++row) rows[row].raw = block.packet[row];
  }
#endif
}

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/// Transposes `rows` rows of `from`, at most as many as a packet has lanes. Value (row, k) is at
/// from[row*stride + k] and goes to to[k*step + row]. Missing rows become zeros.
template <class S, class T>
EIGEN_STRONG_INLINE void transpose_rows(T const* from, std::int64_t stride, std::int64_t rows,
                                        std::int64_t depth, S* to, std::int64_t step) {
  constexpr int width = Packet<S>::size;
  for_packets<S>(0, depth, [&](std::int64_t k, auto full, std::int64_t count) {
    Packet<S> block[std::size_t{width}];
    if (rows == width)
      for (int row = 0; row < width; ++row) block[row] = get<S>(from + row * stride + k, full, count);
    else
      for (int row = 0; row < width; ++row)
        block[row] = row < rows ? get<S>(from + row * stride + k, full, count) : Packet<S>(S(0));
    transpose_packets<S>(block);
    if constexpr (full)
      for (int part = 0; part < width; ++part) store(to + (k + part) * step, block[part]);
    else
      for (int part = 0; part < count; ++part) store(to + (k + part) * step, block[part]);
  });
}

/// The number of steps (packed values along the depth) for which all panels are packed before the next steps
/// follow. The distance between panels is often a multiple of 4 KiB, so that their lines compete for few
/// places in the L1 cache. In blocks of steps, the rows of the operand stay in the cache, and one panel is
/// written at a time. With single steps, a product with a transposed left operand took 1.07 to 1.24 times as
/// long (Zen 5, AVX2).
inline constexpr std::int64_t packed_steps = 8;

/// Packs `steps` rows of a panel that has `Packets` full packets per row.
template <int Packets, class S, class T>
EIGEN_STRONG_INLINE void pack_full_panel(T const* from, std::int64_t stride, std::int64_t steps, S* to) {
  constexpr int width = Packet<S>::size;
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
    for (int part = 0; part < Packets; ++part) store(to + part * width, load<S>(from + part * width));
    from += stride;
    to += Packets * width;
  }
}

/// Packs a (depth, cols) block of the right operand, panel by panel. A panel has all packets of its columns
/// for the first k, then for the next k, and so on.
template <class P, class T>
void pack_right(Matrix<T> b, std::int64_t depth, std::int64_t cols, P* to) {
  constexpr int width = Packet<P>::size;
  Panels<P> const panels(cols);
  std::int64_t const steps = packed_depth<P>(depth);
  if (b.transposed) {
    for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
      std::int64_t const first = panels.start(panel);
      int const packets = panels.packets(panel);
      for (int part = 0; part < packets; ++part) {
        std::int64_t const col = (first + part) * width;
        transpose_rows(b.data + col * b.stride, b.stride, std::min<std::int64_t>(width, cols - col), depth,
                       to + first * width * steps + part * width, packets * width);
      }
    }
    return;
  }
  for (std::int64_t begin = 0; begin < steps; begin += packed_steps)
    for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
      std::int64_t const first = panels.start(panel), end = std::min(begin + packed_steps, steps);
      int const packets = panels.packets(panel);
      std::int64_t const col = first * width, count = std::min<std::int64_t>(packets * width, cols - col);
      if constexpr (packs_less<P>) {
        T const* const from = b.data + begin * b.stride + col;
        P* const at = to + col * steps + begin * packets * width;
        if (packets == 3 && count == 3 * width) {
          pack_full_panel<3>(from, b.stride, end - begin, at);
          continue;
        }
        if (packets == 2 && count == 2 * width) {
          pack_full_panel<2>(from, b.stride, end - begin, at);
          continue;
        }
      }
      for (std::int64_t step = begin; step < end; ++step) {
        std::int64_t const k = step * values_in<P>;
        pack_across(b.data + k * b.stride + col, b.stride, depth - k, count,
                    to + col * steps + step * packets * width);
      }
    }
}

/// The packed left operand of a tile. Value (group + row, k) is at(group)[row*row_stride + k*k_stride], where
/// `group` is the first row of a register tile.
template <class P>
struct PackedLeft {
  P const* data;
  std::int64_t row_stride;
  std::int64_t k_stride;
  std::int64_t panel_stride;  // distance between panels of rows; 0 if all rows are row_stride apart

  P const* at(std::int64_t group) const {
    constexpr std::int64_t panel = Microtile<P>::row_panel;
    return panel_stride == 0 ? data + group * row_stride
                             : data + group / panel * panel_stride + group % panel * row_stride;
  }
};

/// Packs a (rows, depth) block of the left operand. If no conversion or padding is needed, returns a view of
/// the original values. Otherwise converts the values to `to`, and pads the rows to full register tiles with
/// zeros.
template <class P, class T>
PackedLeft<P> pack_left(Matrix<T> a, std::int64_t rows, std::int64_t depth, P* to) {
  constexpr std::int64_t panel = Microtile<P>::row_panel, width = Packet<P>::size;
  std::int64_t const steps = packed_depth<P>(depth);
  if (a.transposed) {
    for (std::int64_t begin = 0; begin < steps; begin += packed_steps)
      for (std::int64_t row = 0; row < rows; row += panel) {
        std::int64_t const count = std::min(panel, rows - row), end = std::min(begin + packed_steps, steps);
        if constexpr (packs_less<P> && panel == width) {
          if (count == panel) {
            pack_full_panel<1>(a.data + begin * a.stride + row, a.stride, end - begin,
                               to + row * steps + begin * panel);
            continue;
          }
        }
        for (std::int64_t step = begin; step < end; ++step) {
          std::int64_t const k = step * values_in<P>;
          pack_across(a.data + k * a.stride + row, a.stride, depth - k, count,
                      to + row * steps + step * panel);
        }
      }
    return {to, 1, panel, panel * steps};
  }
  if constexpr (std::is_same_v<P, T>) {
    if (rows % Microtile<P>::rows == 0) return {a.data, a.stride, 1, 0};
  }
  std::int64_t const padded = (steps + width - 1) / width * width;
  for (std::int64_t row = 0; row < rows; ++row) pack_along(a.data + row * a.stride, depth, to + row * padded);
  for (std::int64_t row = rows; row % Microtile<P>::rows != 0; ++row)
    std::fill_n(to + row * padded, padded, P{});
  return {to, padded, 1, 0};
}

}  // namespace cpu
}  // namespace v0
}  // namespace tessera

#ifdef __CUDACC__
#pragma nv_diag_pop
#endif
