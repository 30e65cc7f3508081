// SPDX-License-Identifier: Apache-2.0
// Provides tiles of a head's fp32 rows in shared memory as operands of tensor cores, and a warp's products
// with them. Each value is rounded to tf32 or split into pieces of bfloat16 (pieces.hpp).
//
// A value is rounded or split once, when it enters shared memory. Products of pieces keep two sums: one for
// the products of the largest pieces, and one for all smaller products. With only one sum, tensor cores would
// add small products to a large sum and would cut off the last bits of the small products.
#pragma once

#include <cstdint>

#include "tessera/backend/cuda/attention/attention_rows.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/products/pieces.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Rows of D values, stored as operands of products in the format `Product`.
template <DType Product, int D>
struct OperandRows;

template <int D>
struct OperandRows<DType::tf32, D> {
  using Value = unsigned;               // the bits of a tf32 value
  static constexpr int stride = D + 4;  // rows are aligned to 16 bytes, and 8 of them are in different banks

  static __device__ void put(Value* row, int channel, float4 of) {
    *reinterpret_cast<uint4*>(row + channel) =
        uint4{round_to_tf32(of.x), round_to_tf32(of.y), round_to_tf32(of.z), round_to_tf32(of.w)};
  }

  /// Computes sums (16 M, 8 N) = left right^T over all channels.
  template <int M, int N>
  static __device__ void scores(Value const* left, Value const* right, float (&sums)[M][N][4]) {
    int const lane = threadIdx.x % 32;
    clear(sums);
#pragma unroll
    for (int k = 0; k < D; k += 8) {
      unsigned a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m)
        load_matrices(a[m], left + (16 * m + lane % 16) * stride + k + lane / 16 * 4);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        unsigned b[4];
        load_matrices(b, right + (8 * n + lane % 8 + lane / 16 * 8) * stride + k + lane / 8 % 2 * 4);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          multiply_tf32_tile(sums[m][n], a[m], b[0], b[1]);
          multiply_tf32_tile(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Adds the product of values (16 M, 8 N) and right (8 N, D) to sums (16 M, D). `values` are in registers.
  /// With t = lane % 4, a thread holds columns 2t and 2t + 1 of `values`. The instruction multiplies these
  /// columns by rows t and t + 4 of its right operand. So the thread passes rows 2t and 2t + 1 of `right` as
  /// rows t and t + 4 of this operand.
  template <int M, int N>
  static __device__ void multiply_rows(float const (&values)[M][N][4], Value const* right,
                                       float (&sums)[M][D / 8][4]) {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      unsigned a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = round_to_tf32(values[m][k][i % 2 * 2 + i / 2]);
      Value const* const from = right + (8 * k + lane % 4 * 2) * stride + lane / 4;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        unsigned const b0 = from[8 * n], b1 = from[8 * n + stride];
#pragma unroll
        for (int m = 0; m < M; ++m) multiply_tf32_tile(sums[m][n], a[m], b0, b1);
      }
    }
  }

  /// The number of values of a matrix with 16 rows and K columns, in the layout that `multiply_columns` reads
  /// from shared memory. Each warp stores 16 of the columns from its registers with `store_transposed`.
  template <int K>
  static constexpr int transposed_values = 16 * (K + 4);

  /// Stores a warp's values (16, 16), transposed, as columns `first` to `first` + 15 of the matrix for
  /// `multiply_columns`.
  template <int K>
  static __device__ void store_transposed(float const (&values)[1][2][4], Value* to, int first) {
    int const lane = threadIdx.x % 32, column = first + lane / 8 + lane / 4 % 2 * 4;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[(8 * n + lane % 4 * 2 + i % 2) * (K + 4) + column + i / 2 * 8] = round_to_tf32(values[0][n][i]);
  }

  /// Computes sums (16, 8), the product of the first 16 * `steps` columns of `transposed` and the first 16 *
  /// `steps` rows of `right`.
  template <int K>
  static __device__ void multiply_columns(Value const* transposed, Value const* right, int steps,
                                          float (&sums)[1][1][4]) {
    int const lane = threadIdx.x % 32;
    float odd[4] = {};
    clear(sums);
#pragma unroll 4
    for (int k = 0; k < 16 * steps; k += 16) {
      unsigned a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_matrices(a[i], transposed + lane % 16 * (K + 4) + k + 8 * i + lane / 16 * 4);
      Value const* const from = right + (k + lane % 4 * 2) * stride + lane / 4;
      multiply_tf32_tile(sums[0][0], a[0], from[0], from[stride]);
      multiply_tf32_tile(odd, a[1], from[8 * stride], from[9 * stride]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][0][i] += odd[i];
  }
};

/// Splits two values into pieces of bfloat16. pieces[i] holds piece i of both, that of `low` in the lower 16
/// bits. Piece 0 is the largest.
template <int Pieces>
__device__ __forceinline__ void cut_into_pieces(float low, float high, unsigned (&pieces)[Pieces]) {
#pragma unroll
  for (int i = 0; i < Pieces; ++i) {
    pieces[i] = pack<bfloat16>(low, high);
    low -= __uint_as_float(pieces[i] << 16);
    high -= __uint_as_float(pieces[i] & 0xffff0000u);
  }
}

/// Rows of fp32 values that are split into pieces, with the functions of OperandRows. A row stores the
/// largest pieces of all its values, then the second pieces, and so on.
template <int Terms, int D>
struct PieceRows {
  using Value = bfloat16;
  static constexpr int pieces = Terms == 6 ? 3 : 2;
  static constexpr int stride =
      pieces * D + 8;  // rows are aligned to 16 bytes, and 8 of them are in different banks
  // the number of tiles of the result that are computed at once
  static constexpr int across = Terms == 6 && D <= 64 ? 4 : 2;

  static __device__ void put(Value* row, int channel, float4 of) {
    unsigned low[pieces], high[pieces];
    cut_into_pieces(of.x, of.y, low);
    cut_into_pieces(of.z, of.w, high);
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      *reinterpret_cast<uint2*>(row + i * D + channel) = uint2{low[i], high[i]};
  }

  template <int M, int N>
  static __device__ void scores(Value const* left, Value const* right, float (&sums)[M][N][4]) {
    constexpr int W = N < 4 ? N : 4;
    int const lane = threadIdx.x % 32;
    float rest[M][N][4];
    clear(sums);
    clear(rest);
#pragma unroll(D <= 64 ? D / 16 : 2)
    for (int k = 0; k < D; k += 16) {
      unsigned a[pieces][M][4];
#pragma unroll
      for (int i = 0; i < pieces; ++i)
#pragma unroll
        for (int m = 0; m < M; ++m)
          load_matrices(a[i][m], left + (16 * m + lane % 16) * stride + i * D + k + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < N; n += W) {
        unsigned b[pieces][W / 2][4];
#pragma unroll
        for (int i = 0; i < pieces; ++i)
#pragma unroll
          for (int w = 0; w < W / 2; ++w)
            load_matrices(b[i][w], right + (8 * n + 16 * w + lane % 8 + lane / 16 * 8) * stride + i * D + k +
                                       lane / 8 % 2 * 8);
        multiply_pieces<W>(a, b, n, rest, sums);
      }
    }
    add(rest, 0, sums);
  }

  template <int M, int N>
  static __device__ void multiply_rows(float const (&values)[M][N][4], Value const* right,
                                       float (&sums)[M][D / 8][4]) {
    constexpr int W = across;
    int const lane = threadIdx.x % 32;
    unsigned a[N / 2][pieces][M][4];
#pragma unroll
    for (int k = 0; k < N / 2; ++k)
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          unsigned cut[pieces];
          float const* const two = values[m][2 * k + i / 2] + i % 2 * 2;
          cut_into_pieces(two[0], two[1], cut);
#pragma unroll
          for (int piece = 0; piece < pieces; ++piece) a[k][piece][m][i] = cut[piece];
        }
#pragma unroll
    for (int n = 0; n < D / 8; n += W) {
      float most[M][W][4], rest[M][W][4];
      clear(most);
      clear(rest);
#pragma unroll
      for (int k = 0; k < N / 2; ++k) {
        unsigned b[pieces][W / 2][4];
#pragma unroll
        for (int i = 0; i < pieces; ++i)
#pragma unroll
          for (int w = 0; w < W / 2; ++w)
            load_transposed_matrices(
                b[i][w], right + (16 * k + lane % 16) * stride + i * D + 8 * n + 16 * w + lane / 16 * 8);
        multiply_pieces<W>(a[k], b, 0, rest, most);
      }
      add(rest, 0, most);
      add(most, n, sums);
    }
  }

  template <int K>
  static constexpr int transposed_values = (pieces * 16 + 8) * K;

  template <int K>
  static __device__ void store_transposed(float const (&values)[1][2][4], Value* to, int first) {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        unsigned cut[pieces];
        cut_into_pieces(values[0][n][2 * side], values[0][n][2 * side + 1], cut);
        Value* const row = to + (first + 8 * side + lane / 4) * (pieces * 16 + 8) + 8 * n + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < pieces; ++i) *reinterpret_cast<unsigned*>(row + 16 * i) = cut[i];
      }
  }

  template <int K>
  static __device__ void multiply_columns(Value const* transposed, Value const* right, int steps,
                                          float (&sums)[1][1][4]) {
    static_assert(pieces == 2);
    int const lane = threadIdx.x % 32;
    float rest[1][1][4];
    clear(sums);
    clear(rest);
#pragma unroll 4
    for (int k = 0; k < 16 * steps; k += 16) {
      unsigned a[2][4], b[4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_transposed_matrices(a[i], transposed + (k + lane % 8 + lane / 16 * 8) * (pieces * 16 + 8) +
                                           16 * i + lane / 8 % 2 * 8);
      load_transposed_matrices(b, right + (k + lane % 16) * stride + lane / 16 * D);
      multiply_tile<bfloat16>(rest[0][0], a[1], b[0], b[1]);
      multiply_tile<bfloat16>(sums[0][0], a[0], b[0], b[1]);
      multiply_tile<bfloat16>(rest[0][0], a[0], b[2], b[3]);
    }
    add(rest, 0, sums);
  }

 private:
  /// Adds the product of `a` and `b` to W tiles of the result, from tile n on. a[i] and b[i] have piece i of
  /// the operands. The product is a sum of terms, and a term is the product of one piece of `a` and one piece
  /// of `b`. The smallest terms are added first. The last and largest term is added to `most`, all other
  /// terms to `rest`.
  template <int W, int M, int N>
  static __device__ void multiply_pieces(unsigned const (&a)[pieces][M][4],
                                         unsigned const (&b)[pieces][W / 2][4], int n, float (&rest)[M][N][4],
                                         float (&most)[M][N][4]) {
#pragma unroll
    for (int term = 0; term < Terms; ++term) {
      constexpr int last = Terms - 1;
      int const left = piece_of(Terms, true, term), right = piece_of(Terms, false, term);
#pragma unroll
      for (int w = 0; w < W; ++w)
#pragma unroll
        for (int m = 0; m < M; ++m)
          multiply_tile<bfloat16>(term == last ? most[m][n + w] : rest[m][n + w], a[left][m],
                                  b[right][w / 2][w % 2 * 2], b[right][w / 2][w % 2 * 2 + 1]);
    }
  }

  template <int M, int W, int N>
  static __device__ void add(float const (&part)[M][W][4], int n, float (&sums)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int w = 0; w < W; ++w)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n + w][i] += part[m][w][i];
  }
};

template <int D>
struct OperandRows<DType::bf16x6, D> : PieceRows<6, D> {};
template <int D>
struct OperandRows<DType::bf16x3, D> : PieceRows<3, D> {};

/// Copies fp32 rows from global to shared memory, and then converts them into operands. Uses `Threads`
/// threads of a block, 4 channels per thread. Rows have D channels, of which only the first `head` exist. A
/// part is a group of rows that are copied together, such as a tile of keys.
template <class Rows, int D, int Threads>
struct RowLoader {
  using Value = typename Rows::Value;
  static constexpr int lanes = D / 4;           // the number of threads per row
  static constexpr int step = Threads / lanes;  // the number of rows that are copied at once
  float* const waiting;
  int const first = threadIdx.x / lanes, channel = threadIdx.x % lanes * 4;
  bool const inside;

  /// `shared` is memory for the copied, unconverted rows of all parts.
  __device__ RowLoader(float* shared, std::int64_t head) : waiting(shared), inside(channel < head) {}

  /// Starts to copy Count rows as part number `Part`. Only the first `existing` rows exist; the rest become
  /// zeros.
  template <int Count, int Part>
  __device__ void start(float const* from, std::int64_t stride, std::int64_t existing) const {
    static_assert(Count % step == 0);
    int const rows = inside ? static_cast<int>(min(existing, std::int64_t{Count})) : 0;
    float* const to = waiting + (Part * Count + first) * D + channel;
    float const* const source = from + first * stride + channel;
#pragma unroll
    for (int row = 0; row < Count; row += step)
      copy_16_bytes(to + row * D, source + row * stride, first + row < rows);
  }

  /// Converts this thread's copied values of part number `Part` into operands, and stores the operands at
  /// `to`. The copies of the part must have completed.
  template <int Count, int Part>
  __device__ void arrive(Value* to) const {
    float const* const from = waiting + (Part * Count + first) * D + channel;
#pragma unroll
    for (int row = 0; row < Count; row += step)
      Rows::put(to + (first + row) * Rows::stride, channel, *reinterpret_cast<float4 const*>(from + row * D));
  }

  /// Returns the dot product of two rows. `left` and `right` are this thread's 4 channels of the rows. Each
  /// thread sums its channels in order, then a fixed tree adds the sums of the threads that share the rows.
  /// Each of these threads gets the result.
  static __device__ float dot(float4 left, float4 right) {
    float sum =
        __fmaf_rn(left.w, right.w, __fmaf_rn(left.z, right.z, __fmaf_rn(left.y, right.y, left.x * right.x)));
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  }
  /// Returns the dot product of row number first + `row` of two parts, `Left` and `Right`, that were copied
  /// but not converted.
  template <int Count, int Left, int Right>
  __device__ float dot_of_waiting(int row) const {
    float const* const from = waiting + (first + row) * D + channel;
    return dot(*reinterpret_cast<float4 const*>(from + Left * Count * D),
               *reinterpret_cast<float4 const*>(from + Right * Count * D));
  }

  /// Returns this thread's channels of row number `first + row`, or zeros if they do not exist. `first` is
  /// the number of the first row that this thread copies.
  __device__ float4 read(int row, float const* from, std::int64_t stride, std::int64_t existing) const {
    return inside && first + row < existing
               ? *reinterpret_cast<float4 const*>(from + (first + row) * stride + channel)
               : float4{};
  }
  template <int Count>
  __device__ void read_all(Value* to, float const* from, std::int64_t stride, std::int64_t existing) const {
#pragma unroll
    for (int row = 0; row < Count; row += step)
      Rows::put(to + (first + row) * Rows::stride, channel, read(row, from, stride, existing));
  }
};

/// Multiplies each row of a warp's sums by its factor and stores it at `to`. Stores only the first `existing`
/// rows and `head` channels.
template <int M, int N>
__device__ void store_sums(float const (&sums)[M][N][4], float const (&factors)[M][2], float* to,
                           std::int64_t stride, std::int64_t existing, std::int64_t head) {
  int const lane = threadIdx.x % 32, channel = lane % 4 * 2, width = static_cast<int>(head);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      int const row = 16 * m + 8 * side + lane / 4;
      if (row >= existing) continue;
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (channel + 8 * n < width)
          *reinterpret_cast<float2*>(to + row * stride + channel + 8 * n) =
              float2{sums[m][n][2 * side] * factors[m][side], sums[m][n][2 * side + 1] * factors[m][side]};
    }
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
