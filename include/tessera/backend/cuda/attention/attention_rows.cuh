// SPDX-License-Identifier: Apache-2.0
// Provides tiles of a head's 16-bit rows in shared memory, a warp's products with them on tensor cores,
// masks, and the softmax over tiles.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

constexpr float log2_of_e = 1.44269504f;

template <int M, int N>
__device__ __forceinline__ void clear(float (&sums)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
}

/// Rows of D values of T in shared memory, and a warp's products with them.
template <class T, int D>
struct HeadRows {
  static constexpr int stride = D + 8;  // keeps rows aligned to 16 bytes and puts 8 rows in different banks
  static constexpr int threads = 128;

  /// Starts to copy Count rows from global to shared memory. Only the first `existing` rows exist; the rest
  /// become zeros.
  template <int Count>
  static __device__ void copy(T* shared, T const* from, std::int64_t from_stride, std::int64_t existing) {
    constexpr int step = threads / (D / 8);  // rows at once
    static_assert(Count % step == 0);
    int const first = threadIdx.x / (D / 8), channel = threadIdx.x % (D / 8) * 8;
    int const rows = static_cast<int>(min(existing, std::int64_t{Count}));
    T* const to = shared + first * stride + channel;
    T const* const source = from + first * from_stride + channel;
#pragma unroll
    for (int row = 0; row < Count; row += step)
      copy_16_bytes(to + row * stride, source + row * from_stride, first + row < rows);
  }

  /// Loads channels 16 k to 16 k + 15 of M tiles of 16 rows into registers, as the left operand of a product.
  template <int M>
  static __device__ void load_left(T const* rows, int k, unsigned (&left)[M][4]) {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_matrices(left[m], rows + (16 * m + lane % 16) * stride + 16 * k + lane / 16 * 8);
  }

  /// Adds the product left right^T over channels 16 k to 16 k + 15 to sums (16 M, 8 N).
  template <int M, int N>
  static __device__ void multiply_channels(unsigned const (&left)[M][4], T const* right, int k,
                                           float (&sums)[M][N][4]) {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      unsigned b[4];
      load_matrices(b, right + (8 * n + lane % 8 + lane / 16 * 8) * stride + 16 * k + lane / 8 % 2 * 8);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_tile<T>(sums[m][n], left[m], b[0], b[1]);
        multiply_tile<T>(sums[m][n + 1], left[m], b[2], b[3]);
      }
    }
  }

  /// Computes sums (16 M, 8 N) = left right^T over all channels. Both operands are in shared memory.
  template <int M, int N>
  static __device__ void scores(T const* left, T const* right, float (&sums)[M][N][4]) {
    clear(sums);
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      unsigned a[M][4];
      load_left(left, k, a);
      multiply_channels(a, right, k, sums);
    }
  }
  /// Computes the scores of a left operand in registers and a right operand in shared memory.
  template <int M, int N>
  static __device__ void scores(unsigned const (&left)[D / 16][M][4], T const* right,
                                float (&sums)[M][N][4]) {
    clear(sums);
#pragma unroll
    for (int k = 0; k < D / 16; ++k) multiply_channels(left[k], right, k, sums);
  }

  /// Adds the product of values (16 M, 8 N) and right (8 N, D) to sums (16 M, D). `values` are in registers
  /// and are rounded to T.
  template <int M, int N>
  static __device__ void multiply_rows(float const (&values)[M][N][4], T const* right,
                                       float (&sums)[M][D / 8][4]) {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      unsigned a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m) {
        a[m][0] = pack<T>(values[m][2 * k][0], values[m][2 * k][1]);
        a[m][1] = pack<T>(values[m][2 * k][2], values[m][2 * k][3]);
        a[m][2] = pack<T>(values[m][2 * k + 1][0], values[m][2 * k + 1][1]);
        a[m][3] = pack<T>(values[m][2 * k + 1][2], values[m][2 * k + 1][3]);
      }
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned b[4];
        load_transposed_matrices(b, right + (16 * k + lane % 16) * stride + 8 * n + lane / 16 * 8);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          multiply_tile<T>(sums[m][n], a[m], b[0], b[1]);
          multiply_tile<T>(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Multiplies each row of a warp's sums by its factor, rounds to T and stores the first `existing` rows to
  /// global memory. The values go through `shared`, a buffer of 16 M rows that no other warp uses.
  template <int M>
  static __device__ void store(float const (&sums)[M][D / 8][4], float const (&factors)[M][2], T* shared,
                               T* to, std::int64_t to_stride, std::int64_t existing) {
    int const lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side)
          *reinterpret_cast<unsigned*>(shared + (16 * m + 8 * side + lane / 4) * stride + 8 * n +
                                       lane % 4 * 2) =
              pack<T>(sums[m][n][2 * side] * factors[m][side], sums[m][n][2 * side + 1] * factors[m][side]);
    __syncwarp();
    constexpr int step = 32 / (D / 8);  // rows at once
    int const first = lane / (D / 8), channel = lane % (D / 8) * 8;
    int const rows = static_cast<int>(min(existing, std::int64_t{16 * M}));
#pragma unroll
    for (int row = 0; row < 16 * M; row += step)
      if (first + row < rows)
        *reinterpret_cast<uint4*>(to + (first + row) * to_stride + channel) =
            *reinterpret_cast<uint4 const*>(shared + (first + row) * stride + channel);
  }
};

/// Applies the causal mask to a tile of scores or gradients of scores. `last` is the index in the tile of the
/// last key to which query 0 of the tile attends. Query q attends to the keys up to index q + last. The value
/// of a query and a later key becomes `masked`. The rows of the tile are queries and its columns are keys; if
/// Down is true, the rows are keys and the columns are queries.
template <bool Down, int M, int N>
__device__ void mask_tile(float (&values)[M][N][4], std::int64_t last, float masked) {
  int const lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2, shift = static_cast<int>(last);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const down = row + 16 * m + i / 2 * 8, across = column + 8 * n + i % 2;
        if (Down ? down > across + shift : across > down + shift) values[m][n][i] = masked;
      }
}

/// largest_of_4 returns the maximum, and sum_of_4 the sum, of a value over the 4 threads that share rows of a
/// tile. The order of the operations is fixed. All 4 threads get the result.
__device__ __forceinline__ float largest_of_4(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float sum_of_4(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

/// Computes the softmax of a warp's 16 M rows of scores, tile by tile. Keeps for each row the largest score
/// so far and the total of the exponentials.
template <int M>
struct RunningSoftmax {
  float largest[M][2], total[M][2];

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        largest[m][side] = -INFINITY;
        total[m][side] = 0;
      }
  }

  /// Adds a tile of scores. Replaces each score by e^(scale (score - largest)), where `largest` is the row's
  /// largest score so far and scale_of_2 = scale log2(e). If the tile increases `largest`, the results of
  /// earlier tiles in `sums` have the wrong exponent. So this function multiplies each row of `sums` by
  /// e^(scale (largest before this tile - largest)).
  template <int N, int W>
  __device__ void add_scores(float (&scores)[M][N][4], float scale_of_2, float (&sums)[M][W][4]) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float top = largest[m][side], sum = 0;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) top = fmaxf(top, scores[m][n][2 * side + i]);
        top = largest_of_4(top);
        float const keep = exponential_of_2((largest[m][side] - top) * scale_of_2), shift = top * scale_of_2;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * side + i];
            score = exponential_of_2(__fmaf_rn(score, scale_of_2, -shift));
            sum += score;
          }
        total[m][side] = __fmaf_rn(total[m][side], keep, sum);
        largest[m][side] = top;
#pragma unroll
        for (int n = 0; n < W; ++n) {
          sums[m][n][2 * side] *= keep;
          sums[m][n][2 * side + 1] *= keep;
        }
      }
  }

  /// Writes the factors that normalise the rows of the sums to `factors`, and stores logsumexp of the rows
  /// that exist.
  __device__ void finish(float scale, float* logsumexp, std::int64_t existing, float (&factors)[M][2]) const {
    int const lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float const sum = sum_of_4(total[m][side]);
        factors[m][side] = 1.0f / sum;
        int const row = 16 * m + 8 * side + lane / 4;
        if (lane % 4 == 0 && row < existing) logsumexp[row] = __fmaf_rn(largest[m][side], scale, logf(sum));
      }
  }
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
