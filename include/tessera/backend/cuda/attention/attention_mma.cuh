// SPDX-License-Identifier: Apache-2.0
// Provides causal attention on tensor cores, for 16-bit types and heads of 32, 64 or 128 channels, after
// FlashAttention-2 (arXiv 2307.08691). The contract is in ops/attention.hpp.
//
// A warp computes 16 or 32 rows of the result. In the forward kernel and in the kernel for dq, a row belongs
// to a query, and the warp iterates in order over tiles of keys. In the kernel for dk and dv, a row belongs
// to a key, and the warp iterates in order over tiles of queries. The scores of a tile stay in registers.
// They are rounded to T and become the left operand of the next product. Sums are in fp32, in an order that
// depends only on the shape. The separate kernels for dq and for dk and dv compute the scores twice, but each
// sum is computed by one warp, without atomic additions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/attention/attention_rows.cuh"
#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The tile sizes of the forward kernel. A thread block computes 128 queries, 32 per warp, and iterates over
/// tiles of keys with their values. Shared memory has two tiles: one in use, and one that is being copied.
template <int D>
struct ForwardCut {
  static constexpr int tiles = 2;  // the number of 16-query tiles of a warp
  static constexpr int queries = 64 * tiles;
  static constexpr int keys = D <= 64 ? 64 : 32;
  static constexpr bool keeps_queries = D <= 64;  // whether the queries stay in registers
  static constexpr std::size_t shared_bytes = (queries + 4 * keys) * (D + 8) * 2;
  static_assert(shared_bytes <= min_shared_bytes);
};

template <class T, int D>
__global__ __launch_bounds__(128) void attention_forward_mma(HeadLayout at, float scale, Heads<T const> x,
                                                             T* out, float* logsumexp) {
  using Cut = ForwardCut<D>;
  using Rows = HeadRows<T, D>;
  constexpr int M = Cut::tiles, N = Cut::keys / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const queries = reinterpret_cast<T*>(shared_bytes);
  T* const stages = queries + Cut::queries * Rows::stride;
  int const warp = threadIdx.x / 32;
  std::int64_t const blocks = (at.sequence + Cut::queries - 1) / Cut::queries;
  std::int64_t const pair = blockIdx.x / blocks, stride = x.kv_stride;
  // the first thread blocks get the last queries, which attend to the most keys
  std::int64_t const first = (blocks - 1 - blockIdx.x % blocks) * Cut::queries;
  std::int64_t const row = first + warp * 16 * M;  // the warp's first query
  std::int64_t const seen = at.offset + row;       // the last key to which the query `row` attends
  std::int64_t const end = at.offset + min(at.sequence, first + Cut::queries);
  T* const own = queries + warp * 16 * M * Rows::stride;

  std::int64_t const first_key = at.first_key(pair, stride);
  auto const copy_keys = [&](std::int64_t key, int stage) {
    T* const to = stages + stage * 2 * Cut::keys * Rows::stride;
    std::int64_t const from = first_key + key * stride;
    Rows::template copy<Cut::keys>(to, x.k + from, stride, at.keys - key);
    Rows::template copy<Cut::keys>(to + Cut::keys * Rows::stride, x.v + from, stride, at.keys - key);
  };
  Rows::template copy<Cut::queries>(queries, x.q + at.first(pair, x.q_stride) + first * x.q_stride,
                                    x.q_stride, at.sequence - first);
  copy_keys(0, 0);
  commit_copies();

  float const scale_of_2 = scale * log2_of_e;
  float sums[M][D / 8][4] = {};
  RunningSoftmax<M> softmax;
  unsigned left[Cut::keeps_queries ? D / 16 : 1][M][4];
  int stage = 0;
  for (std::int64_t key = 0; key < end; key += Cut::keys, stage ^= 1) {
    if (key + Cut::keys < end) copy_keys(key + Cut::keys, stage ^ 1);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    if constexpr (Cut::keeps_queries)
      if (key == 0)
#pragma unroll
        for (int k = 0; k < D / 16; ++k) Rows::load_left(own, k, left[k]);
    if (key < seen + 16 * M) {
      T const* const keys = stages + stage * 2 * Cut::keys * Rows::stride;
      float scores[M][N][4];
      if constexpr (Cut::keeps_queries)
        Rows::scores(left, keys, scores);
      else
        Rows::scores(own, keys, scores);
      if (key + Cut::keys > seen + 1) mask_tile<false>(scores, seen - key, -INFINITY);
      softmax.add_scores(scores, scale_of_2, sums);
      Rows::multiply_rows(scores, keys + Cut::keys * Rows::stride, sums);
    }
    __syncthreads();
  }

  float factors[M][2];
  softmax.finish(scale, logsumexp + at.rows(pair) + row, at.sequence - row, factors);
  Rows::store(sums, factors, own, out + at.out(pair) + row * at.channels, at.channels, at.sequence - row);
}

/// Writes to g.dots the dot product of dout and out of each row, like attention_dots, but for heads of D
/// channels. D / 8 lanes share a row. Each lane sums 8 channels in order, then a fixed tree adds the sums of
/// the lanes.
template <class T, int D>
__global__ __launch_bounds__(256) void attention_dots_mma(AttentionGradient<T> g, std::int64_t rows) {
  constexpr int lanes = D / 8;
  HeadLayout const& at = g.at;
  std::int64_t const row = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) / lanes;
  float sum = 0;
  if (row < rows) {
    std::int64_t const from =
        at.out(g.first_pair + row / at.sequence) + row % at.sequence * at.channels + threadIdx.x % lanes * 8;
    auto const left = load<8, true>(g.dout + from, 8), right = load<8, true>(g.out + from, 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fmaf_rn(get<float>(left.value[i]), get<float>(right.value[i]), sum);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (row < rows && threadIdx.x % lanes == 0) g.dots[row] = sum;
}

/// The tile sizes of the gradient kernels. In the kernel for dq, a thread block computes the gradients of
/// `rows` queries and iterates over tiles of `others` keys. In the kernel for dk and dv, a thread block
/// computes the gradients of `rows` keys and iterates over tiles of `others` queries. Shared memory has two
/// tiles. A warp processes `chunk` rows of a tile at a time.
template <int D>
struct GradientCut {
  static constexpr int tiles = D <= 64 ? 2 : 1;  // the number of 16-row tiles of a warp
  static constexpr int rows = 64 * tiles;
  static constexpr int others = D <= 64 ? 64 : 32;
  static constexpr int chunk = 32;
  static constexpr std::size_t shared_bytes =
      (2 * rows + 4 * others) * (D + 8) * 2 + 4 * others * sizeof(float);
  static_assert(shared_bytes <= min_shared_bytes);
};

/// Computes dq = scale * the sum over keys, in order, of p (dp - dot) k. For a query and a key k with value
/// v, p is the probability (softmax of the score), dp = dout . v is the gradient of p, and dot is the query's
/// element of g.dots.
template <class T, int D>
__global__ __launch_bounds__(128) void attention_query_gradient_mma(AttentionGradient<T> g) {
  using Cut = GradientCut<D>;
  using Rows = HeadRows<T, D>;
  constexpr int M = Cut::tiles, N = Cut::chunk / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const queries = reinterpret_cast<T*>(shared_bytes);
  T* const douts = queries + Cut::rows * Rows::stride;
  T* const stages = douts + Cut::rows * Rows::stride;
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::int64_t const blocks = (at.sequence + Cut::rows - 1) / Cut::rows;
  std::int64_t const pair = g.first_pair + blockIdx.x / blocks, stride = g.x.kv_stride;
  std::int64_t const first = (blocks - 1 - blockIdx.x % blocks) * Cut::rows;
  std::int64_t const row = first + warp * 16 * M, seen = at.offset + row;
  std::int64_t const end = at.offset + min(at.sequence, first + Cut::rows);
  T* const own_queries = queries + warp * 16 * M * Rows::stride;
  T const* const own_douts = douts + warp * 16 * M * Rows::stride;

  std::int64_t const first_key = at.first_key(pair, stride);
  auto const copy_keys = [&](std::int64_t key, int stage) {
    T* const to = stages + stage * 2 * Cut::others * Rows::stride;
    std::int64_t const from = first_key + key * stride;
    Rows::template copy<Cut::others>(to, g.x.k + from, stride, at.keys - key);
    Rows::template copy<Cut::others>(to + Cut::others * Rows::stride, g.x.v + from, stride, at.keys - key);
  };
  Rows::template copy<Cut::rows>(queries, g.x.q + at.first(pair, g.x.q_stride) + first * g.x.q_stride,
                                 g.x.q_stride, at.sequence - first);
  Rows::template copy<Cut::rows>(douts, g.dout + at.out(pair) + first * at.channels, at.channels,
                                 at.sequence - first);
  copy_keys(0, 0);
  commit_copies();

  float const scale_of_2 = g.scale * log2_of_e;
  float lse[M][2], dot[M][2], factors[M][2], sums[M][D / 8][4] = {};
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      std::int64_t const query = row + 16 * m + 8 * side + lane / 4;
      bool const exists = query < at.sequence;
      lse[m][side] = exists ? g.logsumexp[at.rows(pair) + query] * log2_of_e : 0.0f;
      dot[m][side] = exists ? g.dots[at.rows(pair - g.first_pair) + query] : 0.0f;
      factors[m][side] = g.scale;
    }
  int stage = 0;
  for (std::int64_t tile = 0; tile < end; tile += Cut::others, stage ^= 1) {
    if (tile + Cut::others < end) copy_keys(tile + Cut::others, stage ^ 1);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    T const* const tile_keys = stages + stage * 2 * Cut::others * Rows::stride;
#pragma unroll 1
    for (int part = 0; part < Cut::others; part += Cut::chunk) {
      std::int64_t const key = tile + part;
      if (key >= seen + 16 * M) break;
      T const* const keys = tile_keys + part * Rows::stride;
      T const* const values = keys + Cut::others * Rows::stride;
      float scores[M][N][4], slopes[M][N][4];
      Rows::scores(own_queries, keys, scores);
      Rows::scores(own_douts, values, slopes);
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            slopes[m][n][i] = exponential_of_2(__fmaf_rn(scores[m][n][i], scale_of_2, -lse[m][i / 2])) *
                              (slopes[m][n][i] - dot[m][i / 2]);
      if (key + Cut::chunk > seen + 1) mask_tile<false>(slopes, seen - key, 0);
      Rows::multiply_rows(slopes, keys, sums);
    }
    __syncthreads();
  }
  Rows::store(sums, factors, own_queries, g.dx.q + at.first(pair, g.dx.q_stride) + row * g.dx.q_stride,
              g.dx.q_stride, at.sequence - row);
}

/// Computes dk and dv. They are sums over the heads that share a key and over the queries that attend to it,
/// in order. Tiles have keys as rows and queries as columns. So the probabilities need no transposition to be
/// the left operand of the product for dv.
template <class T, int D>
__global__ __launch_bounds__(128) void attention_key_gradient_mma(AttentionGradient<T> g) {
  using Cut = GradientCut<D>;
  using Rows = HeadRows<T, D>;
  constexpr int M = Cut::tiles, N = Cut::chunk / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const keys = reinterpret_cast<T*>(shared_bytes);
  T* const values = keys + Cut::rows * Rows::stride;
  T* const stages = values + Cut::rows * Rows::stride;
  float* const statistics = reinterpret_cast<float*>(stages + 4 * Cut::others * Rows::stride);
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::int64_t const blocks = (at.keys + Cut::rows - 1) / Cut::rows;
  std::int64_t const of_grid = blockIdx.x / blocks * at.group;  // the first pair that shares the keys
  std::int64_t const pair = g.first_pair + of_grid, stride = g.x.kv_stride;
  std::int64_t const first = blockIdx.x % blocks * Cut::rows, row = first + warp * 16 * M;
  T* const own_keys = keys + warp * 16 * M * Rows::stride;
  T* const own_values = values + warp * 16 * M * Rows::stride;

  std::int64_t const first_query = at.first(pair, g.x.q_stride), first_out = at.out(pair);
  auto const copy_queries = [&](int member, std::int64_t query, int stage) {
    T* const to = stages + stage * 2 * Cut::others * Rows::stride;
    std::int64_t const existing = at.sequence - query, column = member * at.head;
    Rows::template copy<Cut::others>(to, g.x.q + first_query + column + query * g.x.q_stride, g.x.q_stride,
                                     existing);
    Rows::template copy<Cut::others>(to + Cut::others * Rows::stride,
                                     g.dout + first_out + column + query * at.channels, at.channels,
                                     existing);
    // A query past the end of the sequence is copied as zeros. Its score and its logsumexp are 0, so its
    // probability is e^0 = 1. Its output gradient is 0, so it adds 1 * 0 to the sums.
    int const i = threadIdx.x % Cut::others;
    bool const is_dot = threadIdx.x >= Cut::others, exists = i < existing;
    float const* const from =
        is_dot ? g.dots + at.rows(of_grid + member) : g.logsumexp + at.rows(pair + member);
    if (threadIdx.x < 2 * Cut::others)
      copy_4_bytes(statistics + stage * 2 * Cut::others + threadIdx.x, from + query + i, exists);
  };
  Rows::template copy<Cut::rows>(keys, g.x.k + at.first_key(pair, stride) + first * stride, stride,
                                 at.keys - first);
  Rows::template copy<Cut::rows>(values, g.x.v + at.first_key(pair, stride) + first * stride, stride,
                                 at.keys - first);
  std::int64_t const start = at.sees(first);
  copy_queries(0, start, 0);
  commit_copies();

  float const scale_of_2 = g.scale * log2_of_e;
  float dkeys[M][D / 8][4] = {}, dvalues[M][D / 8][4] = {};
  int stage = 0;
  for (int member = 0; member < at.group; ++member)
    for (std::int64_t tile = start; tile < at.sequence; tile += Cut::others, stage ^= 1) {
      if (tile + Cut::others < at.sequence)
        copy_queries(member, tile + Cut::others, stage ^ 1);
      else if (member + 1 < at.group)
        copy_queries(member + 1, start, stage ^ 1);
      commit_copies();
      wait_for_copies<1>();
      __syncthreads();
#pragma unroll 1
      for (int part = 0; part < Cut::others; part += Cut::chunk) {
        std::int64_t const query = tile + part;
        std::int64_t const seen = at.offset + query;
        if (seen + Cut::chunk <= row) continue;
        T const* const queries = stages + (stage * 2 * Cut::others + part) * Rows::stride;
        T const* const douts = queries + Cut::others * Rows::stride;
        float const* const lse = statistics + stage * 2 * Cut::others + part;
        float const* const dots = lse + Cut::others;
        float scores[M][N][4], slopes[M][N][4];
        Rows::scores(own_keys, queries, scores);
        Rows::scores(own_values, douts, slopes);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            int const column = 8 * n + lane % 4 * 2 + i;
            float const shift = lse[column] * log2_of_e, dot = dots[column];
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
              for (int side = 0; side < 2; ++side) {
                float& score = scores[m][n][2 * side + i];
                float& slope = slopes[m][n][2 * side + i];
                score = exponential_of_2(__fmaf_rn(score, scale_of_2, -shift));
                slope = score * (slope - dot);
              }
          }
        if (seen + 1 < row + 16 * M) {
          mask_tile<true>(scores, seen - row, 0);
          mask_tile<true>(slopes, seen - row, 0);
        }
        Rows::multiply_rows(scores, douts, dvalues);
        Rows::multiply_rows(slopes, queries, dkeys);
      }
      __syncthreads();
    }
  float ones[M][2], factors[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      ones[m][side] = 1;
      factors[m][side] = g.scale;
    }
  // if no query attends to these keys, the loop did not run and did not wait for the copies
  if (start >= at.sequence) {
    wait_for_copies<0>();
    __syncthreads();
  }
  std::int64_t const existing = at.keys - row;
  std::int64_t const to_stride = g.dx.kv_stride, to = at.first_key(pair, to_stride) + row * to_stride;
  Rows::store(dkeys, factors, own_keys, g.dx.k + to, to_stride, existing);
  Rows::store(dvalues, ones, own_values, g.dx.v + to, to_stride, existing);
}

template <int D, class T>
cudaError_t run_attention_forward_mma(cudaStream_t stream, HeadLayout const& at, std::int64_t pairs,
                                      float scale, Heads<T const> const& x, T* out, float* logsumexp) {
  using Cut = ForwardCut<D>;
  std::int64_t const blocks = pairs * ((at.sequence + Cut::queries - 1) / Cut::queries);
  cudaError_t const status = allow_shared(attention_forward_mma<T, D>, Cut::shared_bytes);
  attention_forward_mma<T, D>
      <<<static_cast<unsigned>(blocks), 128, Cut::shared_bytes, stream>>>(at, scale, x, out, logsumexp);
  return status;
}

template <int D, class T>
cudaError_t run_attention_gradient_mma(cudaStream_t stream, AttentionGradient<T> const& g,
                                       std::int64_t pairs) {
  using Cut = GradientCut<D>;
  auto const query_blocks = static_cast<unsigned>(pairs * ((g.at.sequence + Cut::rows - 1) / Cut::rows));
  auto const key_blocks =
      static_cast<unsigned>(pairs / g.at.group * ((g.at.keys + Cut::rows - 1) / Cut::rows));
  cudaError_t const query_status = allow_shared(attention_query_gradient_mma<T, D>, Cut::shared_bytes);
  cudaError_t const key_status = allow_shared(attention_key_gradient_mma<T, D>, Cut::shared_bytes);
  std::int64_t const rows = pairs * g.at.sequence;
  attention_dots_mma<T, D><<<blocks_for(rows * (D / 8), 256), 256, 0, stream>>>(g, rows);
  attention_query_gradient_mma<T, D><<<query_blocks, 128, Cut::shared_bytes, stream>>>(g);
  attention_key_gradient_mma<T, D><<<key_blocks, 128, Cut::shared_bytes, stream>>>(g);
  return query_status != cudaSuccess ? query_status : key_status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
