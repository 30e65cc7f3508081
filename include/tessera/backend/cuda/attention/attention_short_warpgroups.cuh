// SPDX-License-Identifier: Apache-2.0
// Provides the gradients of attention for short heads on Hopper, with one warpgroup (four warps) per head. It
// supports 16-bit types, sequences of up to 128 tokens and heads of up to 64 channels. The contract is in
// ops/attention.hpp.
//
// A whole head is in shared memory. The scores of a block of 64 keys and a block of 64 queries are computed
// once, and serve the gradients of the keys and of the queries. So this kernel needs five matrix products,
// and the two kernels of attention_warpgroups.cuh need seven. A head of more than 64 tokens has three pairs
// of blocks, in this order: later keys and later queries, earlier keys and earlier queries, earlier keys and
// later queries. The slopes (gradients of scores) of the first pair are kept until the last pair, because
// both pairs contribute to the gradients of the later queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "tessera/backend/cuda/attention/attention_warpgroups.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/warpgroup.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The launch sizes: one warpgroup per head, and three heads per multiprocessor at once.
struct ShortHead {
  static constexpr int threads = 128, blocks = 3, tokens = 128;

  /// The bytes of shared memory: for two blocks of queries, output gradients, keys and values, one block of
  /// slopes, and the statistics (logsumexp and dots of each query).
  template <class Rows>
  static constexpr std::size_t shared_bytes = 9 * std::size_t{Rows::bytes} + 2 * tokens * sizeof(float);
};

/// Whether the sequences and heads are small enough for this kernel, and each head has its own keys.
template <class T>
bool is_short(HeadLayout const& at) {
  return sizeof(T) == 2 && at.head <= 64 && at.sequence <= ShortHead::tokens && at.group == 1 &&
         at.offset == 0 && at.keys == at.sequence;
}

/// Computes dq, dk and dv of a head. The kernel keeps its dots (dout . out of each query) in shared memory,
/// and does not use g.dots.
template <class T>
__global__ __launch_bounds__(ShortHead::threads,
                             ShortHead::blocks) void attention_short_gradient(AttentionGradient<T> g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Rows = WarpgroupRows<T, 64>;
  constexpr int threads = ShortHead::threads;
  extern __shared__ __align__(1024) unsigned char shared_blocks[];
  // the blocks of shared memory: these four for tokens 0 to 63, then these four for tokens 64 to 127
  enum { queries, douts, keys, values };
  auto const block = [&](int number, int what) { return shared_blocks + (4 * number + what) * Rows::bytes; };
  unsigned char* const spare = block(2, 0);
  float* const logsumexps = reinterpret_cast<float*>(spare + Rows::bytes);
  float* const dots = logsumexps + ShortHead::tokens;
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, head = static_cast<int>(at.head);
  int const tokens = static_cast<int>(at.sequence), blocks = tokens > 64 ? 2 : 1;
  std::int64_t const pair = g.first_pair + blockIdx.x, outs_at = at.out(pair);
  std::int64_t const queries_at = at.first(pair, g.x.q_stride), keys_at = at.first(pair, g.x.kv_stride);

  for (int number = blocks - 1; number >= 0; --number) {  // the later block is used first
    std::int64_t const row = 64 * number, existing = at.sequence - row;
    auto const copy = [&](int what, T const* from, std::int64_t stride) {
      Rows::template copy<threads>(block(number, what), from + row * stride, stride, existing, head);
    };
    copy(queries, g.x.q + queries_at, g.x.q_stride);
    copy(keys, g.x.k + keys_at, g.x.kv_stride);
    copy(douts, g.dout + outs_at, at.channels);
    copy(values, g.x.v + keys_at, g.x.kv_stride);
    commit_copies();
  }
  // A query past the end of the sequence is copied as zeros. Its score and its logsumexp are 0, so its
  // probability is e^0 = 1. Its output gradient is 0, so it adds 1 * 0 to the sums.
  {
    int const query = threadIdx.x;
    logsumexps[query] = query < tokens ? g.logsumexp[at.rows(pair) + query] * log2_of_e : 0.0f;
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 4 lanes per row
      int const row = threadIdx.x / 4 + 32 * i;
      sums[i] = 0;
#pragma unroll
      for (int chunk = lane % 4; chunk < 8; chunk += 4)
        if (row < tokens && 8 * chunk < head) {
          std::int64_t const from = outs_at + row * at.channels + 8 * chunk;
          auto const a = load<8, true>(g.dout + from, 8), b = load<8, true>(g.out + from, 8);
#pragma unroll
          for (int j = 0; j < 8; ++j)
            sums[i] = __fmaf_rn(get<float>(a.value[j]), get<float>(b.value[j]), sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = sum_of_4(sums[i]);
      if (lane % 4 == 0) dots[threadIdx.x / 4 + 32 * i] = sums[i];
    }
  }

  float const scale_of_2 = g.scale * log2_of_e;
  float dkeys[8][4], dvalues[8][4], scores[8][4], slopes[8][4];
  unsigned probabilities[4][4], gradients[4][4];
  auto const clear_sums = [&] {
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) dkeys[n][i] = dvalues[n][i] = 0;
  };
  // Adds the contribution of a block of queries to the gradients of a block of keys. Stores the slopes
  // (gradients of the scores) in `left`, with keys as rows. `left` may be the block of the values, because
  // each warp reads and writes only its own rows of `left` and of the values.
  auto const add = [&](int of_keys, int of_queries, unsigned char* left) {
    std::uint64_t const rows = Rows::describe(block(of_queries, queries)),
                        own_keys = Rows::describe(block(of_keys, keys));
    begin_products();
    Rows::scores(own_keys, rows, scores);
    commit_products();
    Rows::scores(Rows::further(own_keys, 1), Rows::further(rows, 1), slopes);
    commit_products();
    float const* const lse = logsumexps + 64 * of_queries;
    wait_for_products<1>(scores);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 const two = *reinterpret_cast<float2 const*>(lse + 8 * n + lane % 4 * 2);
      float const shifts[2] = {two.x, two.y};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = exponential_of_2(__fmaf_rn(scores[n][i], scale_of_2, -shifts[i % 2]));
    }
    if (of_keys == of_queries) mask_rows<true>(scores, 0, 0);
    stay_before_wait(scores[7][3]);
    wait_for_products<0>(slopes);
    Rows::round(scores, probabilities);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 const two = *reinterpret_cast<float2 const*>(dots + 64 * of_queries + 8 * n + lane % 4 * 2);
      float const both[2] = {two.x, two.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) slopes[n][i] = scores[n][i] * (slopes[n][i] - both[i % 2]);
    }
    Rows::round(slopes, gradients);
    if (left != spare) __syncthreads();  // all products with the values, which `left` overwrites, have ended
    Rows::store_left(gradients, left);
    show_to_products();
    begin_products();
    Rows::multiply_rows(probabilities, Rows::further(rows, 1), dvalues);
    Rows::multiply_rows(gradients, rows, dkeys);
    commit_products();
  };
  auto const done = [&] {
    wait_for_products<0>(dkeys);
    wait_for_products<0>(dvalues);
  };
  float const ones[2] = {1, 1}, factors[2] = {g.scale, g.scale};
  // Stores 64 rows of a result to global memory through `scratch`, a block of shared memory that no thread
  // reads any more. `number` is the number of the block of rows. `which` is 0 for dq, 1 for dk and 2 for dv.
  // If g.partials is not null, also stores the sums of the rows.
  auto const store = [&](float(&sums)[8][4], float const(&by)[2], unsigned char* scratch, T* to,
                         std::int64_t to_at, std::int64_t stride, int number, int which) {
    std::int64_t const row = 64 * number, existing = at.sequence - row;
    Rows::store(sums, by, scratch, to + to_at + row * stride, stride, existing, head);
    if (g.partials) Rows::sum_stored(scratch, existing, head, 0, g.partials_of(pair, row, which));
  };
  std::int64_t const dq_at = at.first(pair, g.dx.q_stride), dk_at = at.first(pair, g.dx.kv_stride);

  if (blocks == 2) {
    wait_for_copies<1>();
    show_to_products();
    __syncthreads();
    clear_sums();
    add(1, 1, block(1, values));
    done();
    store(dkeys, factors, spare, g.dx.k, dk_at, g.dx.kv_stride, 1, 1);
    __syncthreads();
    store(dvalues, ones, spare, g.dx.v, dk_at, g.dx.kv_stride, 1, 2);
  }
  wait_for_copies<0>();
  show_to_products();
  __syncthreads();
  clear_sums();
  add(0, 0, spare);
  __syncthreads();  // all warps have stored their slopes
  begin_products();
  Rows::multiply_across(Rows::describe(spare), Rows::describe(block(0, keys)), slopes, false);
  commit_products();
  wait_for_products<0>(slopes);
  done();
  __syncthreads();
  store(slopes, factors, blocks == 2 ? spare : block(0, queries), g.dx.q, dq_at, g.dx.q_stride, 0, 0);
  if (blocks == 2) {
    add(0, 1, block(0, values));
    __syncthreads();
    begin_products();
    Rows::multiply_across(Rows::describe(block(1, values)), Rows::describe(block(1, keys)), slopes, false);
    Rows::multiply_across(Rows::describe(block(0, values)), Rows::describe(block(0, keys)), slopes, true);
    commit_products();
    wait_for_products<0>(slopes);
    done();
    __syncthreads();
    store(slopes, factors, block(1, queries), g.dx.q, dq_at, g.dx.q_stride, 1, 0);
  }
  store(dkeys, factors, block(1, keys), g.dx.k, dk_at, g.dx.kv_stride, 0, 1);
  store(dvalues, ones, block(0, keys), g.dx.v, dk_at, g.dx.kv_stride, 0, 2);
#endif
}

template <class T>
cudaError_t run_attention_short_warpgroups(cudaStream_t stream, AttentionGradient<T> const& g,
                                           std::int64_t pairs) {
  constexpr std::size_t bytes = ShortHead::shared_bytes<WarpgroupRows<T, 64>>;
  cudaError_t const status = allow_shared(attention_short_gradient<T>, bytes);
  attention_short_gradient<T><<<static_cast<unsigned>(pairs), ShortHead::threads, bytes, stream>>>(g);
  return status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
