// SPDX-License-Identifier: Apache-2.0
// Provides the gradients of causal fp32 attention on tensor cores, for heads whose keys all fit in one thread
// block. One kernel computes them with five matrix products. Longer sequences need two kernels with seven
// products (attention_fp32.cuh). The contract is in ops/attention.hpp.
//
// A warp computes dk and dv of 16 keys, and iterates over the queries in order, 16 at a time. For each tile
// of queries, the warps store the slopes (gradients of scores) in shared memory. From all slopes of the tile,
// each warp computes 8 channels of the tile's dq.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/attention/attention_fp32.cuh"
#include "tessera/backend/cuda/attention/attention_operands.cuh"
#include "tessera/backend/cuda/attention/attention_rows.cuh"
#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The tile sizes of the kernel, and the product formats and head widths for which the kernel exists.
template <DType Product, int D>
struct ShortGradientCut {
  static constexpr bool exists = Product != DType::bf16x6 && D == 64;  // otherwise shared memory is too small
  static constexpr int threads = 256, keys = threads / 2, queries = 16;
  static constexpr std::size_t shared_bytes() {
    using Rows = OperandRows<Product, D>;
    return bytes_of_rows<Product, D>(2 * keys + 2 * queries, 3 * queries) +
           Rows::template transposed_values<keys> * sizeof(typename Rows::Value) +
           3 * queries * sizeof(float);
  }
};

/// Computes dq, dk and dv. dq is a sum over keys. dk and dv are sums over the heads that share a key and over
/// the queries that attend to the key. The summands are added in order.
template <DType Product, int D>
__global__ __launch_bounds__(256, 2) void attention_short_gradient(AttentionGradient<float> g) {
  using Cut = ShortGradientCut<Product, D>;
  using Rows = OperandRows<Product, D>;
  using Value = typename Rows::Value;
  using Loader = RowLoader<Rows, D, Cut::threads>;
  constexpr int N = Cut::queries / 8;
  static_assert(Cut::threads / 32 == D / 8);
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Value* const keys = reinterpret_cast<Value*>(shared_bytes);
  Value* const values = keys + Cut::keys * Rows::stride;
  Value* const queries = values + Cut::keys * Rows::stride;
  Value* const douts = queries + Cut::queries * Rows::stride;
  Value* const transposed = douts + Cut::queries * Rows::stride;
  float* const waiting = reinterpret_cast<float*>(transposed + Rows::template transposed_values<Cut::keys>);
  float* const lse = waiting + 3 * Cut::queries * D;
  float* const dots = lse + Cut::queries;
  float* const waiting_lse = dots + Cut::queries;
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp * 16;  // the warp's first key
  std::int64_t const pair = g.first_pair + blockIdx.x * at.group, stride = g.x.kv_stride;

  Loader const loader(waiting, at.head);
  std::int64_t const first_query = at.first(pair, g.x.q_stride), first_out = at.out(pair);
  auto const start_queries = [&](int member, std::int64_t query) {
    std::int64_t const existing = at.sequence - query, column = member * at.head;
    std::int64_t const out_at = first_out + column + query * at.channels;
    loader.template start<Cut::queries, 0>(g.x.q + first_query + column + query * g.x.q_stride, g.x.q_stride,
                                           existing);
    loader.template start<Cut::queries, 1>(g.dout + out_at, at.channels, existing);
    loader.template start<Cut::queries, 2>(g.out + out_at, at.channels, existing);
    // A query past the end of the sequence is copied as zeros. Its score and its logsumexp are 0, so its
    // probability is e^0 = 1. Its output gradient is 0, so it adds 1 * 0 to the sums.
    if (threadIdx.x < Cut::queries)
      copy_4_bytes(waiting_lse + threadIdx.x, g.logsumexp + at.rows(pair + member) + query + threadIdx.x,
                   threadIdx.x < existing);
    commit_copies();
  };
  start_queries(0, 0);
  std::int64_t const keys_at = at.first_key(pair, stride);
  loader.template read_all<Cut::keys>(keys, g.x.k + keys_at, stride, at.keys);
  loader.template read_all<Cut::keys>(values, g.x.v + keys_at, stride, at.keys);

  float const scale_of_2 = g.scale * log2_of_e;
  float dkeys[1][D / 8][4] = {}, dvalues[1][D / 8][4] = {};
  float const ones[1][2] = {{1, 1}}, factors[1][2] = {{g.scale, g.scale}};
  for (int member = 0; member < at.group; ++member)
    for (std::int64_t query = 0; query < at.sequence; query += Cut::queries) {
      wait_for_copies<0>();
      loader.template arrive<Cut::queries, 0>(queries);
      loader.template arrive<Cut::queries, 1>(douts);
#pragma unroll
      for (int i = 0; i < Cut::queries; i += Loader::step) {
        float const dot = loader.template dot_of_waiting<Cut::queries, 1, 2>(i);
        if (loader.channel == 0) dots[loader.first + i] = dot;
      }
      if (threadIdx.x < Cut::queries) lse[threadIdx.x] = waiting_lse[threadIdx.x] * log2_of_e;
      if (query + Cut::queries < at.sequence)
        start_queries(member, query + Cut::queries);
      else if (member + 1 < at.group)
        start_queries(member + 1, 0);
      __syncthreads();
      std::int64_t const seen = at.offset + query;
      if (row < seen + Cut::queries) {
        float scores[1][N][4], slopes[1][N][4];
        bool const diagonal = seen + 1 < row + 16;
        Rows::scores(keys + row * Rows::stride, queries, scores);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            scores[0][n][i] =
                exponential_of_2(__fmaf_rn(scores[0][n][i], scale_of_2, -lse[8 * n + lane % 4 * 2 + i % 2]));
        if (diagonal) mask_tile<true>(scores, seen - row, 0);
        Rows::multiply_rows(scores, douts, dvalues);
        Rows::scores(values + row * Rows::stride, douts, slopes);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            slopes[0][n][i] = scores[0][n][i] * (slopes[0][n][i] - dots[8 * n + lane % 4 * 2 + i % 2]);
        if (diagonal) mask_tile<true>(slopes, seen - row, 0);
        Rows::template store_transposed<Cut::keys>(slopes, transposed, row);
        Rows::multiply_rows(slopes, queries, dkeys);
      }
      __syncthreads();
      int const warps = static_cast<int>(min(std::int64_t{Cut::keys}, seen + Cut::queries + 15)) / 16;
      float sums[1][1][4];
      Rows::template multiply_columns<Cut::keys>(transposed, keys + 8 * warp, warps, sums);
      store_sums(sums, factors,
                 g.dx.q + at.first(pair + member, g.dx.q_stride) + query * g.dx.q_stride + 8 * warp,
                 g.dx.q_stride, at.sequence - query, at.head - 8 * warp);
    }
  std::int64_t const to_stride = g.dx.kv_stride, to = at.first_key(pair, to_stride) + row * to_stride;
  store_sums(dkeys, factors, g.dx.k + to, to_stride, at.keys - row, at.head);
  store_sums(dvalues, ones, g.dx.v + to, to_stride, at.keys - row, at.head);
}

template <DType Product, int D>
cudaError_t run_attention_short_gradient(cudaStream_t stream, AttentionGradient<float> const& g,
                                         std::int64_t pairs) {
  using Cut = ShortGradientCut<Product, D>;
  constexpr std::size_t bytes = Cut::shared_bytes();
  static_assert(bytes <= min_shared_bytes);
  cudaError_t const status = allow_shared(attention_short_gradient<Product, D>, bytes);
  attention_short_gradient<Product, D>
      <<<static_cast<unsigned>(pairs / g.at.group), Cut::threads, bytes, stream>>>(g);
  return status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
