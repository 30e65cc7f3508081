// SPDX-License-Identifier: Apache-2.0
// Implements sums of arrays that several ranks have sent, on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The arrays of a sum, in order.
struct Summands {
  static constexpr int max_count = 16;
  std::byte const* at[max_count] = {};
  int count = 0;
};

template <class S, int N, int Groups, bool Full, class T>
__device__ __forceinline__ void rank_sum_groups(std::int64_t elements, Summands const& summands, T* to) {
  Batch<S, N, Groups> sums{};
  for (int which = 0; which < summands.count; ++which) {
    auto const more = load_batch<N, Groups, Full>(reinterpret_cast<T const*>(summands.at[which]), elements);
#pragma unroll
    for (int group = 0; group < Groups; ++group)
#pragma unroll
      for (int k = 0; k < N; ++k) {
        S const value = get<S>(more.pack[group].value[k]);
        S& sum = sums.pack[group].value[k];
        sum = which == 0 ? value : sum + value;
      }
  }
  Batch<T, N, Groups> result;
#pragma unroll
  for (int group = 0; group < Groups; ++group)
#pragma unroll
    for (int k = 0; k < N; ++k) result.pack[group].value[k] = put<T>(sums.pack[group].value[k]);
  store_batch<N, Groups, Full>(to, result, elements);
}
template <class S, int N, int Groups, class T>
__global__ __launch_bounds__(elementwise_threads) void rank_sum_kernel(
    std::int64_t elements, bool packed, __grid_constant__ Summands const summands, T* to) {
  if (packed && start_of_group<N, Groups>(Groups - 1) + N <= elements)
    rank_sum_groups<S, N, Groups, true>(elements, summands, to);
  else
    rank_sum_groups<S, N, Groups, false>(elements, summands, to);
}

/// Calls body(S, T) for a number format, with a value of the type of sums and one of the type of elements.
/// Returns false, and does not call `body`, if there are no sums of this format.
template <class Body>
bool with_sum_types(DType dtype, Body const& body) {
  switch (dtype) {
    case DType::f64:
      body(double{}, double{});
      return true;
    case DType::f32:
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
      body(float{}, float{});
      return true;
    case DType::f16:
      body(float{}, half{});
      return true;
    case DType::bf16:
      body(float{}, bfloat16{});
      return true;
    case DType::u8:
      break;
  }
  return false;
}

/// Returns whether run_rank_sum can add values of a number format.
inline bool has_rank_sum(DType dtype) {
  return with_sum_types(dtype, [](auto, auto) {});
}

/// Enqueues the computation of `to`, the sum of arrays of `bytes` bytes. The arrays are added in order, in
/// fp32 or, for doubles, in double, and the sum is rounded once. `to` may be one of the arrays. The format
/// must be one for which has_rank_sum returns true.
inline void run_rank_sum(cudaStream_t stream, DType dtype, std::int64_t bytes, Summands const& summands,
                         std::byte* to) {
  with_sum_types(dtype, [&]<class S, class T>(S, T) {
    constexpr int n = pack_width<T>, groups = 2;
    std::int64_t const elements = bytes / static_cast<std::int64_t>(sizeof(T));
    if (elements == 0) return;
    bool packed = takes_packs<n>(reinterpret_cast<T*>(to));
    for (int which = 0; which < summands.count; ++which)
      packed = packed && takes_packs<n>(reinterpret_cast<T const*>(summands.at[which]));
    rank_sum_kernel<S, n, groups>
        <<<blocks_for(elements, elementwise_threads * n * groups), elementwise_threads, 0, stream>>>(
            elements, packed, summands, reinterpret_cast<T*>(to));
    require(cudaGetLastError(), "a sum over ranks");
  });
}

/// Loads the kernels of run_rank_sum. The first call of a kernel can wait for streams that wait for other
/// ranks, so the kernels must be loaded before.
inline void load_rank_sums() {
  for (DType const dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    with_sum_types(dtype, []<class S, class T>(S, T) {
      cudaFuncAttributes attributes{};
      require(cudaFuncGetAttributes(&attributes, rank_sum_kernel<S, pack_width<T>, 2, T>),
              "cudaFuncGetAttributes");
    });
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
