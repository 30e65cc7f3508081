// SPDX-License-Identifier: Apache-2.0
// AdamW as an operation on the GPU. The formula is that of every other place, and so are the bits.
#pragma once

#include <cstdint>

#include "tessera/backend/cuda/context.cuh"
#include "tessera/backend/cuda/kernel.cuh"
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

/// `weights` is no pointer at all, or one to weights beside the master.
template <class S, int N, class G, class... T>
__global__ __launch_bounds__(elementwise_threads) void adamw_kernel(std::int64_t elements, bool packed,
                                                                    AdamWFactors<S> const* factors,
                                                                    std::int64_t const* skip,
                                                                    G const* gradient, S* master, S* first,
                                                                    S* second, T*... weights) {
  if (*skip) {
    if constexpr (sizeof...(T) > 0)
      transform_batch<S, N, 1>(elements, packed, PublishMaster{}, static_cast<S const*>(master), weights...);
    return;
  }
  transform_batch<S, N, 1>(elements, packed, AdamWStep<S>{*factors}, gradient, master, first, second,
                           weights...);
}

template <class G, class S, class... T>
void run_adamw(cudaStream_t stream, std::int64_t elements, AdamWFactors<S> const* factors,
               std::int64_t const* skip, G const* gradient, S* master, S* first, S* second, T*... weights) {
  constexpr int n = pack_width<G, S, T...>;
  if (elements == 0) return;
  adamw_kernel<S, n><<<blocks_for(elements, elementwise_threads * n), elementwise_threads, 0, stream>>>(
      elements, takes_packs<n>(gradient, master, first, second, weights...), factors, skip, gradient, master,
      first, second, weights...);
}

struct AdamW {
  /// ops::adamw on the GPU; `weights` is null where the master is the weights.
  template <class G, class S, class T>
  static void update(Context<Cuda>& context, std::int64_t elements, G const* gradient, S* master, S* first,
                     S* second, T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
    if (weights)
      run_adamw(context.stream(), elements, factors, skip, gradient, master, first, second, weights);
    else
      run_adamw(context.stream(), elements, factors, skip, gradient, master, first, second);
  }
};

}  // namespace cuda

template <>
struct backend::AdamW<Cuda> : cuda::AdamW {};

}  // namespace v0
}  // namespace tessera
