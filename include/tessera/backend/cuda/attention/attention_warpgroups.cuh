// SPDX-License-Identifier: Apache-2.0
// Provides causal attention on Hopper's warpgroups, for 16-bit types and heads of up to 128 channels, after
// FlashAttention-3 (arXiv 2407.08608). The contract is in ops/attention.hpp.
//
// A warpgroup (four warps) computes 64 rows of the result. In the forward kernel and in the kernel for dq, a
// row belongs to a query, and the warpgroup iterates in order over blocks of 64 keys. In the kernel for dk
// and dv, a row belongs to a key, and the warpgroup iterates in order over blocks of 64 queries. The scores
// of a block stay in registers. They are rounded to T and become the left operand of the next product. While
// the warpgroup processes the scores of one block, products of the previous block and of other warpgroups
// run. Sums are in fp32, in an order that depends only on the shape. The separate kernels for dq and for dk
// and dv compute the scores twice, but each sum is computed by one warpgroup, without atomic additions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/attention/attention_rows.cuh"
#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/kernels/warpgroup.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The launch sizes of a kernel: `Groups` warpgroups per thread block, and `Blocks` thread blocks per
/// multiprocessor.
template <int Groups, int Blocks>
struct WarpgroupCut {
  static constexpr int groups = Groups, blocks = Blocks;
  static constexpr int threads = 128 * groups, rows = 64 * groups;
  /// The number of stages in shared memory. A stage holds two blocks of 64 rows, for example keys and their
  /// values. The last products still read one stage, one stage is in use, and one stage is being copied.
  static constexpr int stages = 3;

  /// Returns the bytes of shared memory for `own` blocks of 64 rows for each warpgroup, and for all stages.
  template <class Rows>
  static constexpr std::size_t shared_bytes(int own) {
    return static_cast<std::size_t>(own * groups + 2 * stages) * Rows::bytes;
  }
};

/// Applies mask_tile to the 64 rows of a warpgroup.
template <bool Down>
__device__ __forceinline__ void mask_rows(float (&values)[8][4], std::int64_t last, float masked) {
  int const first = threadIdx.x / 32 % 4 * 16;  // the first row of this warp
  mask_tile<Down>(reinterpret_cast<float(&)[1][8][4]>(values), Down ? last - first : last + first, masked);
}

/// Returns the index of this thread's warpgroup in its block.
template <class Cut>
__device__ __forceinline__ int own_warpgroup() {
  return Cut::groups == 1 ? 0 : __shfl_sync(~0u, threadIdx.x / 128, 0);
}

/// The position of a warpgroup's 64 queries. The first thread blocks get the last queries, which attend to
/// the most keys.
template <class Cut>
struct WarpgroupQueries {
  int group;
  std::int64_t of_grid;     // the pair (a sample and a head), counted from the grid's first pair
  std::int64_t first, row;  // the first query of the thread block, and the first query of the warpgroup
  // the number of 64-key blocks to which the thread block's queries attend, and the warpgroup's queries
  int all, blocks;

  __device__ __forceinline__ explicit WarpgroupQueries(HeadLayout const& at) : group(own_warpgroup<Cut>()) {
    std::int64_t const tiles = (at.sequence + Cut::rows - 1) / Cut::rows;
    of_grid = blockIdx.x / tiles;
    first = (tiles - 1 - blockIdx.x % tiles) * Cut::rows;
    row = first + 64 * group;
    auto const blocks_until = [&](std::int64_t query) {
      return static_cast<int>((at.offset + min(at.sequence, query) + 63) / 64);
    };
    all = blocks_until(first + Cut::rows);
    blocks = row < at.sequence ? blocks_until(row + 64) : 0;
  }
};

/// Copies the keys and values of a pair to shared memory, in blocks of 64 keys. The blocks use the stages in
/// turn.
template <class Rows, class Cut, class T>
struct KeyStages {
  unsigned char* stages;
  std::uint64_t described;  // the descriptor of the first stage
  T const *k, *v;
  std::int64_t stride, existing;
  int head, all;

  __device__ __forceinline__ KeyStages(unsigned char* shared, HeadLayout const& at, Heads<T const> const& x,
                                       std::int64_t pair, int blocks)
      : stages(shared),
        described(Rows::describe(shared)),
        k(x.k + at.first_key(pair, x.kv_stride)),
        v(x.v + at.first_key(pair, x.kv_stride)),
        stride(x.kv_stride),
        existing(at.keys),
        head(static_cast<int>(at.head)),
        all(blocks) {}

  static __device__ __forceinline__ unsigned stage(int block) {
    return static_cast<unsigned>(block) % Cut::stages * 2;
  }
  __device__ __forceinline__ std::uint64_t keys(int block) const {
    return Rows::further(described, stage(block));
  }
  __device__ __forceinline__ std::uint64_t values(int block) const {
    return Rows::further(described, stage(block) + 1);
  }
  __device__ __forceinline__ void copy(int block) const {
    std::int64_t const key = 64 * static_cast<std::int64_t>(block), from = key * stride;
    unsigned char* const to = stages + stage(block) * Rows::bytes;
    Rows::template copy<Cut::threads>(to, k + from, stride, existing - key, head);
    Rows::template copy<Cut::threads>(to + Rows::bytes, v + from, stride, existing - key, head);
  }
  /// Waits until block `block` is in shared memory, then starts to copy the next block into the stage of
  /// block `block` - 2.
  __device__ __forceinline__ void advance(int block) const {
    wait_for_copies<0>();
    show_to_products();
    __syncthreads();
    if (block + 1 < all) copy(block + 1);
    commit_copies();
  }
};

/// Computes out and logsumexp of each warpgroup's 64 queries.
template <class T, int D, class Cut>
__global__ __launch_bounds__(Cut::threads,
                             Cut::blocks) void attention_forward_warpgroups(HeadLayout at, float scale,
                                                                            Heads<T const> x, T* out,
                                                                            float* logsumexp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Rows = WarpgroupRows<T, D>;
  extern __shared__ __align__(1024) unsigned char shared_blocks[];
  unsigned char* const stages = shared_blocks + Cut::groups * Rows::bytes;
  WarpgroupQueries<Cut> const own(at);
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, head = static_cast<int>(at.head);
  std::int64_t const pair = own.of_grid, row = own.row, seen = at.offset + row;
  unsigned char* const queries = shared_blocks + own.group * Rows::bytes;
  KeyStages<Rows, Cut, T> const keys(stages, at, x, pair, own.all);
  std::uint64_t const own_queries = Rows::describe(queries);
  for (int i = 0; i < Cut::groups; ++i) {
    std::int64_t const query = own.first + 64 * i;
    Rows::template copy<Cut::threads>(shared_blocks + i * Rows::bytes,
                                      x.q + at.first(pair, x.q_stride) + query * x.q_stride, x.q_stride,
                                      at.sequence - query, head);
  }
  keys.copy(0);
  commit_copies();
  keys.advance(0);

  float const scale_of_2 = scale * log2_of_e;
  float sums[D / 8][4] = {}, scores[8][4], largest[2] = {-INFINITY, -INFINITY}, total[2] = {}, keep[2];
  unsigned left[4][4];
  auto const multiply = [&](int block) {
    Rows::scores(own_queries, keys.keys(block), scores);
    commit_products();
  };
  auto const add = [&](int block) {
    Rows::multiply_rows(left, keys.values(block), sums);
    commit_products();
  };
  auto const soften = [&](int block) {
    std::int64_t const key = 64 * static_cast<std::int64_t>(block);
    if (key + 63 > seen) mask_rows<false>(scores, seen - key, -INFINITY);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float top = largest[side], sum = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) top = fmaxf(top, scores[n][2 * side + i]);
      top = largest_of_4(top);
      keep[side] = exponential_of_2((largest[side] - top) * scale_of_2);
      float const shift = top * scale_of_2;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * side + i];
          score = exponential_of_2(__fmaf_rn(score, scale_of_2, -shift));
          sum += score;
        }
      total[side] = __fmaf_rn(total[side], keep[side], sum);
      largest[side] = top;
    }
  };
  if (own.blocks > 0) {
    begin_products();
    multiply(0);
    wait_for_products<0>(scores);
    soften(0);
    Rows::round(scores, left);
    for (int block = 1; block < own.blocks; ++block) {
      keys.advance(block);
      begin_products();
      multiply(block);
      add(block - 1);
      wait_for_products<1>(scores);
      soften(block);
      stay_before_wait(total[0] + total[1]);
      wait_for_products<0>(sums);
      Rows::round(scores, left);
      // if no row has a new largest score, all factors are 1 and the multiplication is skipped
      if (__any_sync(~0u, keep[0] != 1 || keep[1] != 1))
#pragma unroll
        for (int n = 0; n < D / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[n][i] *= keep[i / 2];
    }
    begin_products();
    add(own.blocks - 1);
    wait_for_products<0>(sums);
  }
  for (int block = max(own.blocks, 1); block < own.all; ++block) keys.advance(block);

  sync_warpgroup(own.group);
  float factors[2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float const sum = sum_of_4(total[side]);
    factors[side] = 1.0f / sum;
    std::int64_t const query = row + 16 * warp + 8 * side + lane / 4;
    if (lane % 4 == 0 && query < at.sequence)
      logsumexp[at.rows(pair) + query] = __fmaf_rn(largest[side], scale, logf(sum));
  }
  Rows::store(sums, factors, queries, out + at.out(pair) + row * at.channels, at.channels, at.sequence - row,
              head);
#endif
}

/// Computes g.dots = dout . out for each row, which the gradient of the softmax subtracts. Then computes dq =
/// scale * the sum over keys, in order, of p (dp - dot) k. For a query and a key k with value v, p is the
/// probability (softmax of the score), dp = dout . v is the gradient of p, and dot is the query's element of
/// g.dots.
template <class T, int D, class Cut>
__global__ __launch_bounds__(Cut::threads,
                             Cut::blocks) void attention_query_gradient_warpgroups(AttentionGradient<T> g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Rows = WarpgroupRows<T, D>;
  extern __shared__ __align__(1024) unsigned char shared_blocks[];
  unsigned char* const stages = shared_blocks + 2 * Cut::groups * Rows::bytes;
  HeadLayout const& at = g.at;
  WarpgroupQueries<Cut> const own(at);
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, head = static_cast<int>(at.head);
  std::int64_t const pair = g.first_pair + own.of_grid, row = own.row, seen = at.offset + row;
  unsigned char* const queries = shared_blocks + 2 * own.group * Rows::bytes;
  KeyStages<Rows, Cut, T> const keys(stages, at, g.x, pair, own.all);
  std::uint64_t const own_queries = Rows::describe(queries), own_douts = Rows::further(own_queries, 1);
  for (int i = 0; i < Cut::groups; ++i) {
    std::int64_t const query = own.first + 64 * i, existing = at.sequence - query;
    unsigned char* const to = shared_blocks + 2 * i * Rows::bytes;
    Rows::template copy<Cut::threads>(to, g.x.q + at.first(pair, g.x.q_stride) + query * g.x.q_stride,
                                      g.x.q_stride, existing, head);
    Rows::template copy<Cut::threads>(to + Rows::bytes, g.dout + at.out(pair) + query * at.channels,
                                      at.channels, existing, head);
  }
  keys.copy(0);
  commit_copies();

  float const scale_of_2 = g.scale * log2_of_e;
  float lse[2], dot[2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    std::int64_t const query = row + 16 * warp + 8 * side + lane / 4;
    bool const exists = query < at.sequence;
    std::int64_t const from = at.out(pair) + query * at.channels;
    float sum = 0;
#pragma unroll
    for (int chunk = lane % 4; chunk < D / 8; chunk += 4)
      if (exists && 8 * chunk < head) {
        auto const a = load<8, true>(g.dout + from + 8 * chunk, 8),
                   b = load<8, true>(g.out + from + 8 * chunk, 8);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = __fmaf_rn(get<float>(a.value[i]), get<float>(b.value[i]), sum);
      }
    dot[side] = sum_of_4(sum);
    lse[side] = exists ? g.logsumexp[at.rows(pair) + query] * log2_of_e : 0.0f;
    if (exists && lane % 4 == 0) g.dots[at.rows(own.of_grid) + query] = dot[side];
  }
  keys.advance(0);

  float sums[D / 8][4] = {}, scores[8][4], slopes[8][4];
  unsigned left[4][4];
  auto const slope = [&](int block) {
    std::int64_t const key = 64 * static_cast<std::int64_t>(block);
    wait_for_products<1>(scores);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = exponential_of_2(__fmaf_rn(scores[n][i], scale_of_2, -lse[i / 2]));
    stay_before_wait(scores[7][3]);
    wait_for_products<0>(slopes);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) slopes[n][i] = scores[n][i] * (slopes[n][i] - dot[i / 2]);
    if (key + 63 > seen) mask_rows<false>(slopes, seen - key, 0);
    Rows::round(slopes, left);
  };
  auto const multiply = [&](int block) {
    Rows::scores(own_queries, keys.keys(block), scores);
    commit_products();
    Rows::scores(own_douts, keys.values(block), slopes);
    commit_products();
  };
  auto const add = [&](int block) { Rows::multiply_rows(left, keys.keys(block), sums); };
  if (own.blocks > 0) {
    begin_products();
    multiply(0);
    slope(0);
    for (int block = 1; block < own.blocks; ++block) {
      keys.advance(block);
      begin_products();
      add(block - 1);
      multiply(block);
      slope(block);
    }
    begin_products();
    add(own.blocks - 1);
    commit_products();
    wait_for_products<0>(sums);
  }
  for (int block = max(own.blocks, 1); block < own.all; ++block) keys.advance(block);

  sync_warpgroup(own.group);
  float const factors[2] = {g.scale, g.scale};
  Rows::store(sums, factors, queries, g.dx.q + at.first(pair, g.dx.q_stride) + row * g.dx.q_stride,
              g.dx.q_stride, at.sequence - row, head);
  if (g.partials && row < at.sequence)
    Rows::sum_stored(queries, at.sequence - row, head, own.group, g.partials_of(pair, row, 0));
#endif
}

/// Computes dk and dv. They are sums over the heads that share a key and over the queries that attend to it,
/// in order. Blocks have keys as rows and queries as columns. So the probabilities need no transposition to
/// be the left operand of the product for dv.
template <class T, int D, class Cut>
__global__ __launch_bounds__(Cut::threads,
                             Cut::blocks) void attention_key_gradient_warpgroups(AttentionGradient<T> g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Rows = WarpgroupRows<T, D>;
  extern __shared__ __align__(1024) unsigned char shared_blocks[];
  unsigned char* const stages = shared_blocks + 2 * Cut::groups * Rows::bytes;
  float* const statistics = reinterpret_cast<float*>(stages + 2 * Cut::stages * Rows::bytes);
  HeadLayout const& at = g.at;
  int const lane = threadIdx.x % 32, group = own_warpgroup<Cut>();
  int const head = static_cast<int>(at.head);
  std::int64_t const tiles = (at.keys + Cut::rows - 1) / Cut::rows;
  std::int64_t const of_grid = blockIdx.x / tiles * at.group;  // the first pair that shares the keys
  std::int64_t const pair = g.first_pair + of_grid, stride = g.x.kv_stride;
  std::int64_t const first = blockIdx.x % tiles * Cut::rows, row = first + 64 * group;
  unsigned char* const keys = shared_blocks + 2 * group * Rows::bytes;
  unsigned char* const values = keys + Rows::bytes;

  // An iteration processes one block of 64 queries of one head. The iterations go over the blocks of a head,
  // head by head. No query in the first `hidden` blocks of a head attends to the warpgroup's keys.
  std::int64_t const start = at.sees(first);
  int const members = static_cast<int>(at.group);
  int const blocks = start < at.sequence ? static_cast<int>((at.sequence - start + 63) / 64) : 0;
  int const hidden =
      row >= at.keys ? blocks : static_cast<int>(min((at.sees(row) - start) / 64, std::int64_t{blocks}));
  std::int64_t const queries_at = at.first(pair, g.x.q_stride), outs_at = at.out(pair);
  std::uint64_t const own_keys = Rows::describe(keys), own_values = Rows::further(own_keys, 1);
  std::uint64_t const first_stage = Rows::describe(stages);
  auto const stage = [&](int iteration) { return static_cast<unsigned>(iteration) % Cut::stages * 2; };
  auto const statistics_of = [&](int iteration) { return statistics + 64 * stage(iteration); };
  auto const copy_queries = [&](int iteration) {
    int const member = iteration / blocks;
    std::int64_t const query = start + 64 * static_cast<std::int64_t>(iteration % blocks);
    std::int64_t const existing = at.sequence - query, column = member * at.head;
    unsigned char* const to = stages + stage(iteration) * Rows::bytes;
    Rows::template copy<Cut::threads>(to, g.x.q + queries_at + column + query * g.x.q_stride, g.x.q_stride,
                                      existing, head);
    Rows::template copy<Cut::threads>(to + Rows::bytes, g.dout + outs_at + column + query * at.channels,
                                      at.channels, existing, head);
    // A query past the end of the sequence is copied as zeros. Its score and its logsumexp are 0, so its
    // probability is e^0 = 1. Its output gradient is 0, so it adds 1 * 0 to the sums.
    if (threadIdx.x < 128) {
      int const i = threadIdx.x % 64;
      float const* const from =
          threadIdx.x < 64 ? g.logsumexp + at.rows(pair + member) : g.dots + at.rows(of_grid + member);
      copy_4_bytes(statistics_of(iteration) + threadIdx.x, from + query + i, i < existing);
    }
  };
  int const iterations = members * blocks;
  auto const advance = [&](int iteration) {
    wait_for_copies<0>();
    show_to_products();
    __syncthreads();
    if (iteration + 1 < iterations) copy_queries(iteration + 1);
    commit_copies();
  };
  for (int i = 0; i < Cut::groups; ++i) {
    std::int64_t const key = first + 64 * i, from = at.first_key(pair, stride) + key * stride;
    unsigned char* const to = shared_blocks + 2 * i * Rows::bytes;
    Rows::template copy<Cut::threads>(to, g.x.k + from, stride, at.keys - key, head);
    Rows::template copy<Cut::threads>(to + Rows::bytes, g.x.v + from, stride, at.keys - key, head);
  }
  if (iterations > 0) copy_queries(0);
  commit_copies();

  float const scale_of_2 = g.scale * log2_of_e;
  float dkeys[D / 8][4] = {}, dvalues[D / 8][4] = {}, scores[8][4], slopes[8][4];
  unsigned probabilities[4][4], gradients[4][4];
  auto const multiply = [&](int iteration) {
    begin_products();
    Rows::scores(own_keys, Rows::further(first_stage, stage(iteration)), scores);
    commit_products();
    wait_for_products<1>(dkeys);
    wait_for_products<1>(dvalues);  // the registers of their operands can now be reused
    begin_products();
    Rows::scores(own_values, Rows::further(first_stage, stage(iteration) + 1), slopes);
    commit_products();
  };
  // Starts the products for dv and dk of an iteration, and does not wait for their end.
  auto const add = [&](int iteration) {
    std::int64_t const seen = at.offset + start + 64 * static_cast<std::int64_t>(iteration % blocks);
    float const* const lse = statistics_of(iteration);
    wait_for_products<1>(scores);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 const two = *reinterpret_cast<float2 const*>(lse + 8 * n + lane % 4 * 2);
      float const shifts[2] = {two.x * log2_of_e, two.y * log2_of_e};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = exponential_of_2(__fmaf_rn(scores[n][i], scale_of_2, -shifts[i % 2]));
    }
    if (seen < row + 63) mask_rows<true>(scores, seen - row, 0);
    stay_before_wait(scores[7][3]);
    wait_for_products<0>(slopes);
    Rows::round(scores, probabilities);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 const two = *reinterpret_cast<float2 const*>(lse + 64 + 8 * n + lane % 4 * 2);
      float const dots[2] = {two.x, two.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) slopes[n][i] = scores[n][i] * (slopes[n][i] - dots[i % 2]);
    }
    Rows::round(slopes, gradients);
    begin_products();
    Rows::multiply_rows(probabilities, Rows::further(first_stage, stage(iteration) + 1), dvalues);
    Rows::multiply_rows(gradients, Rows::further(first_stage, stage(iteration)), dkeys);
    commit_products();
  };
  for (int iteration = 0; iteration < iterations; ++iteration) {
    advance(iteration);
    if (iteration % blocks < hidden) {
      wait_for_products<0>(dkeys);  // these products must end before their stage is overwritten
      continue;
    }
    multiply(iteration);
    add(iteration);
  }
  wait_for_products<0>(dkeys);
  wait_for_products<0>(dvalues);
  // if no query attends to these keys, the loop did not run and did not wait for the copies
  if (iterations == 0) {
    wait_for_copies<0>();
    __syncthreads();
  }
  sync_warpgroup(group);
  float const ones[2] = {1, 1}, factors[2] = {g.scale, g.scale};
  std::int64_t const existing = at.keys - row;
  std::int64_t const to_stride = g.dx.kv_stride, to = at.first_key(pair, to_stride) + row * to_stride;
  Rows::store(dkeys, factors, keys, g.dx.k + to, to_stride, existing, head);
  Rows::store(dvalues, ones, values, g.dx.v + to, to_stride, existing, head);
  if (g.partials && existing > 0) {
    Rows::sum_stored(keys, existing, head, group, g.partials_of(pair, row, 1));
    Rows::sum_stored(values, existing, head, group, g.partials_of(pair, row, 2));
  }
#endif
}

/// The launch sizes for D channels per head: the warpgroups of a thread block, and the thread blocks of a
/// multiprocessor. The second number is the largest that registers and shared memory allow. A thread block
/// has only one warpgroup if possible, because the threads of a block wait for each other.
template <int D>
using ForwardWarpgroups = WarpgroupCut<1, D <= 64 ? 4 : 2>;
template <int D>
using GradientWarpgroups = WarpgroupCut<D <= 64 ? 1 : 2, D <= 64 ? 3 : 1>;

template <int D, class T>
cudaError_t run_attention_forward_warpgroups(cudaStream_t stream, HeadLayout const& at, std::int64_t pairs,
                                             float scale, Heads<T const> const& x, T* out, float* logsumexp) {
  using Cut = ForwardWarpgroups<D>;
  constexpr std::size_t bytes = Cut::template shared_bytes<WarpgroupRows<T, D>>(1);
  std::int64_t const blocks = pairs * ((at.sequence + Cut::rows - 1) / Cut::rows);
  cudaError_t const status = allow_shared(attention_forward_warpgroups<T, D, Cut>, bytes);
  attention_forward_warpgroups<T, D, Cut>
      <<<static_cast<unsigned>(blocks), Cut::threads, bytes, stream>>>(at, scale, x, out, logsumexp);
  return status;
}

template <int D, class T>
cudaError_t run_attention_gradient_warpgroups(cudaStream_t stream, AttentionGradient<T> const& g,
                                              std::int64_t pairs) {
  using Cut = GradientWarpgroups<D>;
  constexpr std::size_t bytes = Cut::template shared_bytes<WarpgroupRows<T, D>>(2);
  constexpr std::size_t with_statistics = bytes + Cut::stages * 128 * sizeof(float);
  auto const query_blocks = static_cast<unsigned>(pairs * ((g.at.sequence + Cut::rows - 1) / Cut::rows));
  auto const key_blocks =
      static_cast<unsigned>(pairs / g.at.group * ((g.at.keys + Cut::rows - 1) / Cut::rows));
  cudaError_t const query_status = allow_shared(attention_query_gradient_warpgroups<T, D, Cut>, bytes);
  cudaError_t const key_status = allow_shared(attention_key_gradient_warpgroups<T, D, Cut>, with_statistics);
  attention_query_gradient_warpgroups<T, D, Cut><<<query_blocks, Cut::threads, bytes, stream>>>(g);
  attention_key_gradient_warpgroups<T, D, Cut><<<key_blocks, Cut::threads, with_statistics, stream>>>(g);
  return query_status != cudaSuccess ? query_status : key_status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
