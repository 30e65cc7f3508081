// SPDX-License-Identifier: Apache-2.0
// Computes sums over rows on the GPU, in an order that depends only on the shape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/row_sums.hpp"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Divides the rows of a matrix into at most 512 blocks, for sums over the rows. A block has `rows_each`
/// rows, at least 64; the last block is possibly shorter. The blocks depend only on the number of rows.
struct RowBlocks {
  static constexpr std::int64_t most = 512;
  std::int64_t rows_each, count;

  explicit RowBlocks(std::int64_t rows)
      : rows_each(std::max<std::int64_t>(64, (rows + most - 1) / most)),
        count((rows + rows_each - 1) / rows_each) {}
};

/// Writes partial[block][column - first] = the sum of a column of x over the rows of a block, for the columns
/// from `first` to `end`. Each of 8 warps adds every 8th row of the block in order; the sums of the warps are
/// added in order. A thread processes N columns.
template <int N, class T>
__global__ __launch_bounds__(256) void sum_row_blocks(T const* x, std::int64_t rows, std::int64_t columns,
                                                      std::int64_t rows_each, std::int64_t first,
                                                      std::int64_t end, compute_t<T>* partial) {
  using S = compute_t<T>;
  constexpr int warps = 8, strip = 32 * N;
  __shared__ S shared[warps][strip];
  std::int64_t const strips = (end - first + strip - 1) / strip;
  std::int64_t const block = blockIdx.x / strips, left = first + blockIdx.x % strips * strip;
  int const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::int64_t const column = left + lane * N, last = min(rows, (block + 1) * rows_each);
  S sums[N] = {};
  if (column < end) {
#pragma unroll 4
    for (std::int64_t row = block * rows_each + warp; row < last; row += warps) {
      auto const in = *reinterpret_cast<Pack<T, N> const*>(x + row * columns + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += get<S>(in.value[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) shared[warp][lane * N + i] = sums[i];
  __syncthreads();
  for (int i = threadIdx.x; i < strip && left + i < end; i += 256) {
    S sum(0);
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += shared[w][i];
    partial[block * (end - first) + left - first + i] = sum;
  }
}

/// Computes the sum number blockIdx.y of the list. Its rows are partial sums of type compute_t<T>, and the
/// result is rounded once, to T. The threads with one threadIdx.y add every 32nd row in order; the results of
/// the 32 values of threadIdx.y are then added in order.
template <class T>
__global__ __launch_bounds__(1024) void sum_partials_kernel(RowSums sums) {
  using S = compute_t<T>;
  __shared__ S shared[32][33];
  RowSum const& own = sums.each[blockIdx.y];
  std::int64_t const column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  if (column - threadIdx.x >= own.columns) return;
  S const* const from = static_cast<S const*>(own.from) + column;
  S sum(0);
  if (column < own.columns)
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < own.count; row += 32) sum += from[row * own.columns];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= own.columns) return;
  sum = S(0);
#pragma unroll
  for (int row = 0; row < 32; ++row) sum += shared[row][threadIdx.x];
  static_cast<T*>(own.to)[column] = put<T>(sum);
}

template <class T>
void run_sum_partials(cudaStream_t stream, RowSums const& sums) {
  std::int64_t columns = 0;
  for (int i = 0; i < sums.size; ++i) columns = std::max(columns, sums.each[i].columns);
  sum_partials_kernel<T>
      <<<dim3(blocks_for(columns, 32), static_cast<unsigned>(sums.size)), dim3(32, 32), 0, stream>>>(sums);
}

/// Launches one kernel for all collected sums, and empties the list.
inline void launch(Context<Cuda>& context, RowSums& sums) noexcept {
  if (sums.size == 0) return;
  sums.run(context.stream(), sums);
  sums.size = 0;
  context.check(cudaGetLastError(), "sums over rows");
}

/// Computes to (columns) = the sum of the rows of partial (count, columns). If a batch of row sums is open
/// (ops::RowSumBatch), the kernel for this sum is launched at the latest when the batch ends. If no batch is
/// open, this function launches the kernel.
template <class T>
void sum_partials(Context<Cuda>& context, compute_t<T> const* partial, std::int64_t count,
                  std::int64_t columns, T* to) {
  if (columns == 0) return;
  RowSums& sums = context.row_sums();
  if (sums.size == RowSums::most || sums.run != &run_sum_partials<T>) launch(context, sums);
  sums.run = &run_sum_partials<T>;
  sums.each[sums.size++] = {partial, count, columns, to};
  if (!context.collects_row_sums()) launch(context, sums);
}

/// Enqueues the kernel that sets partial (count, end - first) to the sums of x over `count` blocks of
/// `rows_each` rows, for the columns from `first` to `end`.
template <class T>
void run_row_block_sums(cudaStream_t stream, T const* x, std::int64_t rows, std::int64_t columns,
                        std::int64_t rows_each, std::int64_t count, std::int64_t first, std::int64_t end,
                        compute_t<T>* partial) {
  constexpr int wide = pack_width<T>;
  bool const aligned = takes_packs<wide>(x) && columns % wide == 0;
  unsigned const blocks = static_cast<unsigned>(count) * blocks_for(end - first, aligned ? 32 * wide : 32);
  if (blocks == 0) return;
  auto* const kernel = aligned ? &sum_row_blocks<wide, T> : &sum_row_blocks<1, T>;
  kernel<<<blocks, 256, 0, stream>>>(x, rows, columns, rows_each, first, end, partial);
}

/// Enqueues the computation of sums (columns), the sum of the rows of x (rows, columns). The workspace holds
/// one number for each block of rows and each column. If more than `capacity` numbers are necessary, groups
/// of columns are processed one after another. The groups do not change the sums.
template <class T>
void run_column_sums(Context<Cuda>& context, T const* x, std::int64_t rows, std::int64_t columns, T* sums,
                     std::int64_t capacity = std::int64_t{Context<Cuda>::blas_bytes} /
                                             std::int64_t{sizeof(compute_t<T>)}) {
  using S = compute_t<T>;
  RowBlocks const blocks(rows);
  constexpr int wide = pack_width<T>;
  std::int64_t const piece = capacity / std::max<std::int64_t>(1, blocks.count) / (32 * wide) * (32 * wide);
  S* const partial = reinterpret_cast<S*>(context.workspace().data());
  for (std::int64_t first = 0; first < columns; first += piece) {
    std::int64_t const end = std::min(columns, first + piece);
    run_row_block_sums(context.stream(), x, rows, columns, blocks.rows_each, blocks.count, first, end,
                       partial);
    RowSums const of_piece{.each = {{partial, blocks.count, end - first, sums + first}}, .size = 1};
    // does not wait for the end of a batch, because the next group of columns overwrites the workspace
    run_sum_partials<T>(context.stream(), of_piece);
  }
}

}  // namespace cuda

/// Begins and ends a batch of row sums (ops::RowSumBatch). The sums of a batch are collected, and one launch
/// computes up to 8 sums of the same type.
template <>
struct backend::RowSums<Cuda> {
  static void begin(Context<Cuda>& context) noexcept { context.open_row_sums(); }
  static void end(Context<Cuda>& context) noexcept {
    if (context.close_row_sums()) cuda::launch(context, context.row_sums());
  }
};

}  // namespace v0
}  // namespace tessera
