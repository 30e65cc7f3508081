// SPDX-License-Identifier: Apache-2.0
// Provides causal attention of fp32 values on tensor cores, for heads of up to 128 channels. Products are in
// tf32, or in bfloat16 with each value split into pieces (pieces.hpp). The contract is in ops/attention.hpp.
//
// A warp computes 16 or 32 rows of the result. In the forward kernel and in the kernel for dq, a row belongs
// to a query, and the warp iterates in order over tiles of keys. In the kernel for dk and dv, a row belongs
// to a key, and the warp iterates in order over tiles of queries. Scores stay in registers. Sums are in fp32,
// in an order that depends only on the shape. While one tile is in use, the next tile is copied to shared
// memory as fp32.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/attention/attention_operands.cuh"
#include "tessera/backend/cuda/attention/attention_rows.cuh"
#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns the bytes of shared memory for `formed` rows that are converted to operands of tensor cores, and
/// for `waiting` fp32 rows whose copy is in flight.
template <DType Product, int D>
constexpr std::size_t bytes_of_rows(int formed, int waiting) {
  using Rows = OperandRows<Product, D>;
  return formed * Rows::stride * sizeof(typename Rows::Value) + waiting * D * sizeof(float);
}

/// The tile sizes of the forward kernel. A thread block computes `queries` queries, and iterates over tiles
/// of `keys` keys.
template <DType Product, int D>
struct Fp32ForwardCut {
  static constexpr int threads = 128;
  // the number of 16-query tiles of a warp
  static constexpr int tiles = Product == DType::tf32 && D <= 64 ? 2 : 1;
  static constexpr int queries = threads / 2 * tiles;
  static constexpr int keys = D <= 64 ? 32 : 16;
  static constexpr int blocks = D <= 64 ? 3 : 2;  // per multiprocessor at once
  static constexpr std::size_t shared_bytes = bytes_of_rows<Product, D>(queries + 2 * keys, 2 * keys);
  static_assert(shared_bytes <= min_shared_bytes);
};

template <DType Product, int D>
__global__ __launch_bounds__(
    Fp32ForwardCut<Product, D>::threads,
    Fp32ForwardCut<Product, D>::blocks) void attention_forward_fp32(HeadLayout at, float scale,
                                                                    Heads<float const> x, float* out,
                                                                    float* logsumexp) {
  using Cut = Fp32ForwardCut<Product, D>;
  using Rows = OperandRows<Product, D>;
  using Value = typename Rows::Value;
  constexpr int M = Cut::tiles, N = Cut::keys / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Value* const queries = reinterpret_cast<Value*>(shared_bytes);
  Value* const keys = queries + Cut::queries * Rows::stride;
  Value* const values = keys + Cut::keys * Rows::stride;
  float* const waiting = reinterpret_cast<float*>(values + Cut::keys * Rows::stride);
  int const warp = threadIdx.x / 32;
  std::int64_t const blocks = (at.sequence + Cut::queries - 1) / Cut::queries;
  std::int64_t const pair = blockIdx.x / blocks, stride = x.kv_stride;
  // the first thread blocks get the last queries, which attend to the most keys
  std::int64_t const first = (blocks - 1 - blockIdx.x % blocks) * Cut::queries;
  std::int64_t const row = first + warp * 16 * M;  // the warp's first query
  std::int64_t const seen = at.offset + row;       // the last key to which the query `row` attends
  std::int64_t const end = at.offset + min(at.sequence, first + Cut::queries);

  RowLoader<Rows, D, Cut::threads> const loader(waiting, at.head);
  std::int64_t const first_key = at.first_key(pair, stride);
  auto const start_keys = [&](std::int64_t key) {
    std::int64_t const from = first_key + key * stride;
    loader.template start<Cut::keys, 0>(x.k + from, stride, at.keys - key);
    loader.template start<Cut::keys, 1>(x.v + from, stride, at.keys - key);
    commit_copies();
  };
  start_keys(0);
  loader.template read_all<Cut::queries>(queries, x.q + at.first(pair, x.q_stride) + first * x.q_stride,
                                         x.q_stride, at.sequence - first);

  float const scale_of_2 = scale * log2_of_e;
  float sums[M][D / 8][4] = {};
  RunningSoftmax<M> softmax;
  for (std::int64_t key = 0; key < end; key += Cut::keys) {
    wait_for_copies<0>();
    loader.template arrive<Cut::keys, 0>(keys);
    loader.template arrive<Cut::keys, 1>(values);
    if (key + Cut::keys < end) start_keys(key + Cut::keys);
    __syncthreads();
    if (key < seen + 16 * M) {
      float scores[M][N][4];
      Rows::scores(queries + warp * 16 * M * Rows::stride, keys, scores);
      if (key + Cut::keys > seen + 1) mask_tile<false>(scores, seen - key, -INFINITY);
      softmax.add_scores(scores, scale_of_2, sums);
      Rows::multiply_rows(scores, values, sums);
    }
    __syncthreads();
  }
  float factors[M][2];
  std::int64_t const existing = at.sequence - row;
  softmax.finish(scale, logsumexp + at.rows(pair) + row, existing, factors);
  store_sums(sums, factors, out + at.out(pair) + row * at.channels, at.channels, existing, at.head);
}

/// The tile sizes of the gradient kernels. In the kernel for dq, a thread block computes the gradients of
/// `rows` queries, 16 per warp, and iterates over tiles of `others` keys. In the kernel for dk and dv, a
/// thread block computes the gradients of `rows` keys and iterates over tiles of `others` queries.
template <DType Product, int D>
struct Fp32GradientCut {
  static constexpr int threads = Product == DType::bf16x6 && D > 64 ? 64 : 128;
  static constexpr int rows = threads / 2;
  static constexpr int others = D <= 64 ? 32 : 16;
  // the size of the arrays of logsumexp and dots
  static constexpr int numbers = 4 * others > rows ? 4 * others : rows;
  static constexpr std::size_t shared_bytes =
      bytes_of_rows<Product, D>(2 * rows + 2 * others, 2 * others) + numbers * sizeof(float);
  static_assert(shared_bytes <= min_shared_bytes);
};

/// Computes dq = scale * the sum over keys, in order, of p (dp - dot) k. For a query and a key k with value
/// v, p is the probability (softmax of the score), dp = dout . v is the gradient of p, and dot is the query's
/// dout . out. Also writes `dot` of each query to g.dots.
template <DType Product, int D>
__global__ __launch_bounds__(Fp32GradientCut<Product, D>::threads) void attention_query_gradient_fp32(
    AttentionGradient<float> g) {
  using Cut = Fp32GradientCut<Product, D>;
  using Rows = OperandRows<Product, D>;
  using Value = typename Rows::Value;
  using Loader = RowLoader<Rows, D, Cut::threads>;
  constexpr int N = Cut::others / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Value* const queries = reinterpret_cast<Value*>(shared_bytes);
  Value* const douts = queries + Cut::rows * Rows::stride;
  Value* const keys = douts + Cut::rows * Rows::stride;
  Value* const values = keys + Cut::others * Rows::stride;
  float* const waiting = reinterpret_cast<float*>(values + Cut::others * Rows::stride);
  float* const dots = waiting + 2 * Cut::others * D;
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;  // the warp's first row of the block
  std::int64_t const blocks = (at.sequence + Cut::rows - 1) / Cut::rows;
  std::int64_t const of_grid = blockIdx.x / blocks, pair = g.first_pair + of_grid, stride = g.x.kv_stride;
  std::int64_t const first = (blocks - 1 - blockIdx.x % blocks) * Cut::rows, existing = at.sequence - first;
  std::int64_t const seen = at.offset + first + own, end = at.offset + min(at.sequence, first + Cut::rows);

  Loader const loader(waiting, at.head);
  std::int64_t const first_key = at.first_key(pair, stride);
  auto const start_keys = [&](std::int64_t key) {
    std::int64_t const from = first_key + key * stride;
    loader.template start<Cut::others, 0>(g.x.k + from, stride, at.keys - key);
    loader.template start<Cut::others, 1>(g.x.v + from, stride, at.keys - key);
    commit_copies();
  };
  start_keys(0);
  loader.template read_all<Cut::rows>(queries, g.x.q + at.first(pair, g.x.q_stride) + first * g.x.q_stride,
                                      g.x.q_stride, existing);
  std::int64_t const out_at = at.out(pair) + first * at.channels;
#pragma unroll
  for (int i = 0; i < Cut::rows; i += Loader::step) {
    int const row = loader.first + i;
    float4 const dout = loader.read(i, g.dout + out_at, at.channels, existing),
                 out = loader.read(i, g.out + out_at, at.channels, existing);
    Rows::put(douts + row * Rows::stride, loader.channel, dout);
    float const dot = Loader::dot(dout, out);
    if (loader.channel == 0) {
      dots[row] = dot;
      if (row < existing) g.dots[at.rows(of_grid) + first + row] = dot;
    }
  }
  __syncthreads();

  float const scale_of_2 = g.scale * log2_of_e;
  float lse[2], dot[2], sums[1][D / 8][4] = {};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    int const row = own + 8 * side + lane / 4;
    lse[side] = row < existing ? g.logsumexp[at.rows(pair) + first + row] * log2_of_e : 0.0f;
    dot[side] = dots[row];
  }
  for (std::int64_t key = 0; key < end; key += Cut::others) {
    wait_for_copies<0>();
    loader.template arrive<Cut::others, 0>(keys);
    loader.template arrive<Cut::others, 1>(values);
    if (key + Cut::others < end) start_keys(key + Cut::others);
    __syncthreads();
    if (key < seen + 16) {
      float scores[1][N][4], slopes[1][N][4];
      Rows::scores(queries + own * Rows::stride, keys, scores);
      Rows::scores(douts + own * Rows::stride, values, slopes);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          slopes[0][n][i] = exponential_of_2(__fmaf_rn(scores[0][n][i], scale_of_2, -lse[i / 2])) *
                            (slopes[0][n][i] - dot[i / 2]);
      if (key + Cut::others > seen + 1) mask_tile<false>(slopes, seen - key, 0);
      Rows::multiply_rows(slopes, keys, sums);
    }
    __syncthreads();
  }
  float const factors[1][2] = {{g.scale, g.scale}};
  store_sums(sums, factors, g.dx.q + at.first(pair, g.dx.q_stride) + (first + own) * g.dx.q_stride,
             g.dx.q_stride, existing - own, at.head);
}

/// Computes dk and dv. They are sums over the heads that share a key and over the queries that attend to it,
/// in order. Tiles have keys as rows and queries as columns.
template <DType Product, int D>
__global__ __launch_bounds__(Fp32GradientCut<Product, D>::threads) void attention_key_gradient_fp32(
    AttentionGradient<float> g) {
  using Cut = Fp32GradientCut<Product, D>;
  using Rows = OperandRows<Product, D>;
  using Value = typename Rows::Value;
  constexpr int N = Cut::others / 8;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Value* const keys = reinterpret_cast<Value*>(shared_bytes);
  Value* const values = keys + Cut::rows * Rows::stride;
  Value* const queries = values + Cut::rows * Rows::stride;
  Value* const douts = queries + Cut::others * Rows::stride;
  float* const waiting = reinterpret_cast<float*>(douts + Cut::others * Rows::stride);
  float* const waiting_numbers = waiting + 2 * Cut::others * D;  // logsumexp of the queries, then their dots
  float* const numbers = waiting_numbers + 2 * Cut::others;
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;
  std::int64_t const blocks = (at.keys + Cut::rows - 1) / Cut::rows;
  std::int64_t const of_grid = blockIdx.x / blocks * at.group;  // the first pair that shares the keys
  std::int64_t const pair = g.first_pair + of_grid, stride = g.x.kv_stride;
  std::int64_t const first = blockIdx.x % blocks * Cut::rows, row = first + own;
  std::int64_t const start = at.sees(first);

  RowLoader<Rows, D, Cut::threads> const loader(waiting, at.head);
  std::int64_t const first_query = at.first(pair, g.x.q_stride), first_out = at.out(pair);
  auto const start_queries = [&](int member, std::int64_t query) {
    std::int64_t const existing = at.sequence - query, column = member * at.head;
    loader.template start<Cut::others, 0>(g.x.q + first_query + column + query * g.x.q_stride, g.x.q_stride,
                                          existing);
    loader.template start<Cut::others, 1>(g.dout + first_out + column + query * at.channels, at.channels,
                                          existing);
    // A query past the end of the sequence is copied as zeros. Its score and its logsumexp are 0, so its
    // probability is e^0 = 1. Its output gradient is 0, so it adds 1 * 0 to the sums.
    int const i = threadIdx.x % Cut::others;
    float const* const from =
        threadIdx.x < Cut::others ? g.logsumexp + at.rows(pair + member) : g.dots + at.rows(of_grid + member);
    if (threadIdx.x < 2 * Cut::others)
      copy_4_bytes(waiting_numbers + threadIdx.x, from + query + i, i < existing);
    commit_copies();
  };
  if (start < at.sequence) start_queries(0, start);
  std::int64_t const keys_at = at.first_key(pair, stride) + first * stride;
  loader.template read_all<Cut::rows>(keys, g.x.k + keys_at, stride, at.keys - first);
  loader.template read_all<Cut::rows>(values, g.x.v + keys_at, stride, at.keys - first);

  float const scale_of_2 = g.scale * log2_of_e;
  float dkeys[1][D / 8][4] = {}, dvalues[1][D / 8][4] = {};
  for (int member = 0; member < at.group; ++member)
    for (std::int64_t query = start; query < at.sequence; query += Cut::others) {
      wait_for_copies<0>();
      loader.template arrive<Cut::others, 0>(queries);
      loader.template arrive<Cut::others, 1>(douts);
      if (threadIdx.x < 2 * Cut::others)
        numbers[threadIdx.x] = waiting_numbers[threadIdx.x] * (threadIdx.x < Cut::others ? log2_of_e : 1.0f);
      if (query + Cut::others < at.sequence)
        start_queries(member, query + Cut::others);
      else if (member + 1 < at.group)
        start_queries(member + 1, start);
      __syncthreads();
      std::int64_t const seen = at.offset + query;
      if (row < seen + Cut::others) {
        float scores[1][N][4], slopes[1][N][4];
        bool const diagonal = seen + 1 < row + 16;
        Rows::scores(keys + own * Rows::stride, queries, scores);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            scores[0][n][i] = exponential_of_2(
                __fmaf_rn(scores[0][n][i], scale_of_2, -numbers[8 * n + lane % 4 * 2 + i % 2]));
        if (diagonal) mask_tile<true>(scores, seen - row, 0);
        Rows::multiply_rows(scores, douts, dvalues);
        Rows::scores(values + own * Rows::stride, douts, slopes);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            slopes[0][n][i] =
                scores[0][n][i] * (slopes[0][n][i] - numbers[Cut::others + 8 * n + lane % 4 * 2 + i % 2]);
        if (diagonal) mask_tile<true>(slopes, seen - row, 0);
        Rows::multiply_rows(slopes, queries, dkeys);
      }
      __syncthreads();
    }
  float const ones[1][2] = {{1, 1}}, factors[1][2] = {{g.scale, g.scale}};
  std::int64_t const to_stride = g.dx.kv_stride, to = at.first_key(pair, to_stride) + row * to_stride;
  store_sums(dkeys, factors, g.dx.k + to, to_stride, at.keys - row, at.head);
  store_sums(dvalues, ones, g.dx.v + to, to_stride, at.keys - row, at.head);
}

template <DType Product, int D>
cudaError_t run_attention_forward_fp32(cudaStream_t stream, HeadLayout const& at, std::int64_t pairs,
                                       float scale, Heads<float const> const& x, float* out,
                                       float* logsumexp) {
  using Cut = Fp32ForwardCut<Product, D>;
  std::int64_t const blocks = pairs * ((at.sequence + Cut::queries - 1) / Cut::queries);
  cudaError_t const status = allow_shared(attention_forward_fp32<Product, D>, Cut::shared_bytes);
  attention_forward_fp32<Product, D>
      <<<static_cast<unsigned>(blocks), Cut::threads, Cut::shared_bytes, stream>>>(at, scale, x, out,
                                                                                   logsumexp);
  return status;
}

/// Enqueues the computation of g.dots and of the gradients of `pairs` pairs. A pair is a sample and a head.
template <DType Product, int D>
cudaError_t run_attention_gradient_fp32(cudaStream_t stream, AttentionGradient<float> const& g,
                                        std::int64_t pairs) {
  using Cut = Fp32GradientCut<Product, D>;
  auto const blocks = [](std::int64_t of, std::int64_t rows) {
    return static_cast<unsigned>(of * ((rows + Cut::rows - 1) / Cut::rows));
  };
  cudaError_t const query_status = allow_shared(attention_query_gradient_fp32<Product, D>, Cut::shared_bytes);
  cudaError_t const key_status = allow_shared(attention_key_gradient_fp32<Product, D>, Cut::shared_bytes);
  attention_query_gradient_fp32<Product, D>
      <<<blocks(pairs, g.at.sequence), Cut::threads, Cut::shared_bytes, stream>>>(g);
  attention_key_gradient_fp32<Product, D>
      <<<blocks(pairs / g.at.group, g.at.keys), Cut::threads, Cut::shared_bytes, stream>>>(g);
  return query_status != cudaSuccess ? query_status : key_status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
