// SPDX-License-Identifier: Apache-2.0
// Provides a stable radix sort of non-negative numbers that also returns the original index of each number.
// cub::DeviceRadixSort is not used for two reasons. A recipe compiles 7 % longer with it (81 s instead of 76
// s with nvcc 13.0 for sm_90a), and its headers define another namespace with the name cuda.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "tessera/backend/cuda/kernels/kernel.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

// The sort makes one pass for each digit of 8 bits, the least significant digit first. A pass runs three
// kernels. The first counts the digits in tiles of 2048 numbers. The second turns the counts into the first
// position of each digit in each tile. The third moves the numbers to their positions, in order.

inline constexpr int sort_digits = 256;
inline constexpr int sort_threads = 256;
inline constexpr int sort_warps = sort_threads / 32;
inline constexpr int sort_rounds = 8;  // a warp processes 32 adjacent numbers in each of its rounds
inline constexpr int sort_tile = sort_threads * sort_rounds;
static_assert(sort_digits == sort_threads);

/// Returns the index of the number that this lane processes in the given round of its warp.
__device__ __forceinline__ std::int64_t sort_index(int round) {
  return static_cast<std::int64_t>(blockIdx.x) * sort_tile +
         static_cast<int>(threadIdx.x) / 32 * (32 * sort_rounds) + round * 32 +
         static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int sort_digit(std::int32_t key, int shift) {
  return static_cast<int>(static_cast<std::uint32_t>(key) >> shift) & (sort_digits - 1);
}

/// Writes to positions (digits, tiles) how often each digit occurs in each tile. A key is a number to sort.
/// In this pass, its digit is its 8 bits from bit `shift` on.
template <class Key>
__global__ __launch_bounds__(sort_threads) void count_digits_kernel(std::int64_t count, Key const* keys,
                                                                    int shift, std::int32_t* positions) {
  __shared__ std::int32_t counts[sort_digits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int round = 0; round < sort_rounds; ++round)
    if (std::int64_t const i = sort_index(round); i < count)
      atomicAdd(&counts[sort_digit(keys[i], shift)], 1);
  __syncthreads();
  positions[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/// Replaces each of `count` numbers by the sum of the numbers before it. Uses one block of 1024 threads. Each
/// thread processes adjacent numbers.
template <class Number>
__global__ __launch_bounds__(1024) void sums_before_kernel(std::int64_t count, Number* numbers) {
  __shared__ Number sums[1024];
  int const thread = static_cast<int>(threadIdx.x);
  std::int64_t const each = (count + 1023) / 1024, begin = min(each * thread, count),
                     end = min(begin + each, count);
  Number sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += numbers[i];
  sums[thread] = sum;
  for (int distance = 1; distance < 1024; distance *= 2) {
    __syncthreads();
    Number const before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sums[thread] += before;
  }
  Number next = sums[thread] - sum;
  for (std::int64_t i = begin; i < end; ++i) {
    Number const own = numbers[i];
    numbers[i] = next;
    next += own;
  }
}

/// Moves each key and its row to the next free position for the key's digit. A key's row is its index before
/// the sort. In the first pass `rows` is null, because each key is still at that index. `positions` has the
/// first position of each digit in each tile.
template <class Key>
__global__ __launch_bounds__(sort_threads) void move_keys_kernel(std::int64_t count, Key const* keys,
                                                                 std::int32_t const* rows, int shift,
                                                                 std::int32_t const* positions, Key* to_keys,
                                                                 std::int32_t* to_rows) {
  __shared__ std::int32_t next[sort_warps][sort_digits];
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int w = 0; w < sort_warps; ++w) next[w][threadIdx.x] = 0;
  __syncthreads();
  int rank[sort_rounds];  // the number of earlier keys of this warp with the same digit
#pragma unroll
  for (int round = 0; round < sort_rounds; ++round) {
    std::int64_t const i = sort_index(round);
    int const digit = i < count ? sort_digit(keys[i], shift) : sort_digits;
    unsigned const peers = __match_any_sync(0xffffffffu, digit);
    int const before = __popc(peers & ((1u << lane) - 1u));
    rank[round] = digit < sort_digits ? next[warp][digit] + before : 0;
    __syncwarp();
    if (before == 0 && digit < sort_digits) next[warp][digit] += __popc(peers);
    __syncwarp();
  }
  __syncthreads();
  std::int32_t first = positions[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int w = 0; w < sort_warps; ++w) {
    std::int32_t const of_warp = next[w][threadIdx.x];
    next[w][threadIdx.x] = first;
    first += of_warp;
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < sort_rounds; ++round)
    if (std::int64_t const i = sort_index(round); i < count) {
      std::int32_t const to = next[warp][sort_digit(keys[i], shift)] + rank[round];
      to_keys[to] = keys[i];
      to_rows[to] = rows ? rows[i] : static_cast<std::int32_t>(i);
    }
}

/// Sorted numbers (`keys`), and the index of each before the sort (`rows`).
struct SortedKeys {
  std::int32_t* keys;
  std::int32_t* rows;
};

/// Returns the bytes of device memory that the sort of `count` numbers needs.
constexpr std::size_t sort_workspace_bytes(std::int64_t count) {
  std::size_t const tiles = static_cast<std::size_t>((count + sort_tile - 1) / sort_tile);
  return sizeof(std::int32_t) * (4 * tiles * sort_tile + tiles * sort_digits);
}

/// Enqueues the sort of `count` (below 2^31) numbers in [0, bound). Equal numbers keep their order. Returns
/// where the results are: in `workspace`, which has sort_workspace_bytes(count) bytes.
inline SortedKeys run_sort(cudaStream_t stream, std::int64_t count, std::int32_t const* numbers,
                           std::int64_t bound, void* workspace) {
  unsigned const tiles = blocks_for(count, sort_tile);
  std::int64_t const capacity = std::int64_t{tiles} * sort_tile;
  std::int32_t* const memory = static_cast<std::int32_t*>(workspace);
  std::int32_t* const positions = memory + 4 * capacity;
  SortedKeys from{nullptr, nullptr}, to{memory, memory + capacity},
      other{memory + 2 * capacity, memory + 3 * capacity};
  int const bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bound - 1))));
  for (int shift = 0; shift < bits; shift += 8) {
    std::int32_t const* const keys = from.keys ? from.keys : numbers;
    count_digits_kernel<<<tiles, sort_threads, 0, stream>>>(count, keys, shift, positions);
    sums_before_kernel<<<1, 1024, 0, stream>>>(std::int64_t{tiles} * sort_digits, positions);
    move_keys_kernel<<<tiles, sort_threads, 0, stream>>>(
        count, keys, static_cast<std::int32_t const*>(from.rows), shift,
        static_cast<std::int32_t const*>(positions), to.keys, to.rows);
    SortedKeys const sorted = to;
    to = shift == 0 ? other : from;
    from = sorted;
  }
  return from;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
