// SPDX-License-Identifier: Apache-2.0
// AdamW as an operation on the GPU. The formula is that of every other place, and so are the bits.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "tessera/backend/cuda/context.cuh"
#include "tessera/backend/cuda/kernel.cuh"
#include "tessera/backend/cuda/put_off.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/optim/adamw.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

template <class S>
struct AdamWStep {
  AdamWFactors<S> by;
  __device__ __forceinline__ void operator()(S gradient, S& master, S& first, S& second) const {
    v0::detail::adamw_formula(gradient, master, first, second, by);
  }
  __device__ __forceinline__ void operator()(S gradient, S& master, S& first, S& second, S& weight) const {
    v0::detail::adamw_formula(gradient, master, first, second, by);
    weight = master;
  }
};

struct PublishMaster {
  template <class S>
  __device__ __forceinline__ void operator()(S master, S& weight) const {
    weight = master;
  }
};

/// The updates of one launch, and whether the arrays of each take packs.
struct AdamWLaunch {
  Updates updates;
  FirstBlocks<Updates> first_blocks;
  bool packed[Updates::most];
};
static_assert(sizeof(AdamWLaunch) <= 4096);  // what a kernel takes

/// A block of threads works on one update. T is void where the master is the weights.
template <class G, class S, class T, int N>
__global__ __launch_bounds__(elementwise_threads) void adamw_kernel(
    __grid_constant__ AdamWLaunch const launch) {
  int const number = launch.first_blocks.mine(launch.updates.size);
  Update const& update = launch.updates.each[number];
  // Arrays as if they began with the grid's first block.
  std::int64_t const shift =
      static_cast<std::int64_t>(launch.first_blocks.of[number]) * elementwise_threads * N;
  std::int64_t const elements = update.elements + shift;
  G const* const gradient = static_cast<G const*>(update.gradient) - shift;
  S* const master = static_cast<S*>(update.master) - shift;
  S* const first = static_cast<S*>(update.first) - shift;
  S* const second = static_cast<S*>(update.second) - shift;
  bool const packed = launch.packed[number];
  AdamWFactors<S> const* const factors = static_cast<AdamWFactors<S> const*>(update.factors);
  if constexpr (std::is_void_v<T>) {
    if (!*update.skip)
      transform_batch<S, N, 1>(elements, packed, AdamWStep<S>{*factors}, gradient, master, first, second);
  } else {
    T* const weights = static_cast<T*>(update.weights) - shift;
    if (*update.skip)
      transform_batch<S, N, 1>(elements, packed, PublishMaster{}, static_cast<S const*>(master), weights);
    else
      transform_batch<S, N, 1>(elements, packed, AdamWStep<S>{*factors}, gradient, master, first, second,
                               weights);
  }
}

template <class G, class S, class T>
void run_adamw(cudaStream_t stream, Updates const& updates) {
  constexpr int n = [] {
    if constexpr (std::is_void_v<T>)
      return pack_width<G, S>;
    else
      return pack_width<G, S, T>;
  }();
  AdamWLaunch launch{updates, {}, {}};
  unsigned blocks = 0;
  for (int number = 0; number < updates.size; ++number) {
    Update const& update = updates.each[number];
    launch.first_blocks.of[number] = blocks;
    launch.packed[number] =
        takes_packs<n>(static_cast<G const*>(update.gradient), static_cast<S*>(update.master),
                       static_cast<S*>(update.first), static_cast<S*>(update.second));
    if constexpr (!std::is_void_v<T>)
      launch.packed[number] = launch.packed[number] && takes_packs<n>(static_cast<T*>(update.weights));
    blocks += blocks_for(update.elements, elementwise_threads * n);
  }
  adamw_kernel<G, S, T, n><<<blocks, elementwise_threads, 0, stream>>>(launch);
}

struct AdamW {
  /// ops::adamw on the GPU, one launch with those that come right after it; `weights` is null where the
  /// master is the weights.
  template <class G, class S, class T>
  static void update(Context<Cuda>& context, std::int64_t elements, G const* gradient, S* master, S* first,
                     S* second, T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
    if (elements == 0) return;
    context.put_off(Update{elements, gradient, master, first, second, weights, factors, skip},
                    weights ? run_adamw<G, S, T> : run_adamw<G, S, void>);
  }
};

}  // namespace cuda

template <>
struct backend::AdamW<Cuda> : cuda::AdamW {};

}  // namespace v0
}  // namespace tessera
