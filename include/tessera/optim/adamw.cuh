// SPDX-License-Identifier: Apache-2.0
// Implements AdamW on the GPU, with the formula of the CPU. So the results have the same bits as on the CPU.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/optim/adamw.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The minimum number of thread blocks of adamw_kernel that fit on a multiprocessor at once. The kernel is
/// limited by memory traffic, so it needs many thread blocks.
template <class S>
inline constexpr int adamw_blocks = sizeof(S) == 4 ? 6 : 3;

/// Returns a pointer to element `from` of an array, such as the gradient. A row of the table of updates
/// (ops::Rows) has the addresses of the arrays of one update. `array` is the field of a row with the address
/// of this array. The row is in shared memory. `array` is volatile, so that the address is read at each use
/// and does not stay in a register. Registers for all addresses would reduce the number of thread blocks per
/// multiprocessor.
template <class T, class Array>
__device__ __forceinline__ T* array_of(Array const volatile& array, std::int64_t from) {
  return static_cast<T*>(array) + from;
}

/// Runs the update `row` for the first `count` of N neighbouring elements, which start at element `from` of
/// the arrays. `Full` means that `count` is N and the addresses are aligned. If `skipped`, only writes the
/// weights.
template <class G, class S, class T, int N, bool Full>
__device__ __forceinline__ void update_pack(ops::UpdateRow const& row, std::int64_t from, int count,
                                            bool skipped) {
  auto master = load<N, Full>(array_of<S const>(row.master, from), count);
  auto const publish = [&] {
    if constexpr (!std::is_void_v<T>) {
      Pack<T, N> weights;
#pragma unroll
      for (int k = 0; k < N; ++k) weights.value[k] = put<T>(master.value[k]);
      store<N, Full>(array_of<T>(row.weights, from), weights, count);
    }
  };
  if (skipped) return publish();
  auto const gradient = load<N, Full>(array_of<G const>(row.gradient, from), count);
  auto first = load<N, Full>(array_of<S const>(row.states[0], from), count);
  auto second = load<N, Full>(array_of<S const>(row.states[1], from), count);
  AdamWFactors<S> const by = *static_cast<AdamWFactors<S> const*>(row.factors);
#pragma unroll
  for (int k = 0; k < N; ++k)
    v0::detail::adamw_formula(get<S>(gradient.value[k]), master.value[k], first.value[k], second.value[k],
                              by);
  store<N, Full>(array_of<S>(row.master, from), master, count);
  publish();
  store<N, Full>(array_of<S>(row.states[0], from), first, count);
  store<N, Full>(array_of<S>(row.states[1], from), second, count);
}

/// Updates the arrays of all rows. A row of the table (ops::Rows) has the addresses of the arrays of one
/// update. Each thread block updates a part of one block of ops::row_block elements of a row. T is the type
/// of the weights, or void if the optimizer updates the weights themselves. If `rows.first` is null, `one` is
/// the only row.
template <class G, class S, class T, int N>
__global__ __launch_bounds__(elementwise_threads,
                             adamw_blocks<S>) void adamw_kernel(ops::Rows<ops::UpdateRow> rows,
                                                                __grid_constant__ ops::UpdateRow const one,
                                                                std::int64_t const* skip) {
  constexpr int parts = static_cast<int>(ops::row_block) / (elementwise_threads * N);
  static_assert(parts * elementwise_threads * N == ops::row_block);
  using Word = std::uint64_t;
  __shared__ ops::UpdateRow row;
  bool const skipped = *skip != 0;
  if (std::is_void_v<T> && skipped) return;
  int const block = static_cast<int>(blockIdx.x / parts);
  ops::UpdateRow const* const own = rows.first ? rows.first + find_row(rows, block) : &one;
  if (threadIdx.x < sizeof row / sizeof(Word))
    reinterpret_cast<Word*>(&row)[threadIdx.x] = reinterpret_cast<Word const*>(own)[threadIdx.x];
  __syncthreads();
  std::int64_t const from = (block - row.block) * ops::row_block +
                            static_cast<int>(blockIdx.x % parts * elementwise_threads + threadIdx.x) * N;
  std::int64_t const left = row.elements - from;
  bool packed = takes_packs<N>(static_cast<G const*>(row.gradient), static_cast<S*>(row.master),
                               static_cast<S*>(row.states[0]), static_cast<S*>(row.states[1]));
  if constexpr (!std::is_void_v<T>) packed = packed && takes_packs<N>(static_cast<T*>(row.weights));
  if (packed && left >= N)
    update_pack<G, S, T, N, true>(row, from, N, skipped);
  else if (left > 0)
    update_pack<G, S, T, N, false>(row, from, left < N ? static_cast<int>(left) : N, skipped);
}

template <class G, class S, class T>
void run_adamw(cudaStream_t stream, ops::Rows<ops::UpdateRow> const& rows, ops::UpdateRow const& one,
               std::int64_t const* skip) {
  constexpr int n = [] {
    if constexpr (std::is_void_v<T>)
      return pack_width<G, S>;
    else
      return pack_width<G, S, T>;
  }();
  if (rows.blocks == 0) return;
  std::int64_t const blocks = rows.blocks * (ops::row_block / (elementwise_threads * n));
  adamw_kernel<G, S, T, n>
      <<<static_cast<unsigned>(blocks), elementwise_threads, 0, stream>>>(rows, one, skip);
}

/// Implements ops::adamw on the GPU.
struct AdamW {
  /// Runs the updates of all rows of the table `rows` with one kernel launch.
  template <class G, class S, class T>
  static void update(Context<Cuda>& context, ops::Rows<ops::UpdateRow> const& rows,
                     std::int64_t const* skip) {
    run_adamw<G, S, T>(context.stream(), rows, {}, skip);
  }

  /// Runs one AdamW update with one kernel launch. `weights` is null if `master` holds the weights
  /// themselves.
  template <class G, class S, class T>
  static void update(Context<Cuda>& context, std::int64_t elements, G const* gradient, S* master, S* first,
                     S* second, T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
    ops::UpdateRow one{elements, 0, gradient, master, {first, second}, weights, factors};
    auto const rows = ops::number_rows<ops::UpdateRow>({&one, 1}, nullptr);
    auto* const run = weights ? &run_adamw<G, S, T> : &run_adamw<G, S, void>;
    run(context.stream(), rows, one, skip);
  }
};

}  // namespace cuda

template <>
struct backend::AdamW<Cuda> : cuda::AdamW {};

}  // namespace v0
}  // namespace tessera
