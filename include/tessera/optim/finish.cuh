// SPDX-License-Identifier: Apache-2.0
// The two ends of a step on the GPU. The contracts are in optim/finish.hpp.
#pragma once

#include <type_traits>

#include "tessera/backend/cuda/context.cuh"
#include "tessera/backend/cuda/kernel.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/optim/finish.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

template <class Rule>  // a template, as kernels in headers must be
__global__ void begin_step_kernel(StepState* state, BadElement* own, Rule rule, double learning_rate) {
  *own = {};
  begin_step(*state, rule, learning_rate);
}

/// One block of norm_lanes threads.
template <class Rule>
__global__ void finish_step_kernel(StepShares shares, StepState* state, Rule rule) {
  __shared__ double lanes[v0::detail::norm_lanes];
  int const lane = static_cast<int>(threadIdx.x);
  lanes[lane] = v0::detail::square_sum_of_lane(shares, lane);
  for (int half = v0::detail::norm_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] += lanes[lane + half];
  }
  if (lane == 0) v0::detail::finish_from(shares, *state, rule, lanes[0]);
}

/// One block. Finds the first partial that is not finite, then the first such value of its 4096.
template <class T>
__global__ void find_bad_kernel(T const* values, std::int64_t elements, float const* partials,
                                std::int64_t unit, std::int64_t begin, BadElement* bad) {
  constexpr unsigned long long none = ~0ull;
  __shared__ unsigned long long first_block, first_value;
  if (threadIdx.x == 0) first_block = first_value = none;
  __syncthreads();
  std::int64_t const blocks = (elements + 4095) / 4096;
  for (std::int64_t block = threadIdx.x; block < blocks; block += blockDim.x)
    if (!isfinite(partials[block])) {
      atomicMin(&first_block, static_cast<unsigned long long>(block));
      break;
    }
  __syncthreads();
  if (first_block == none) return;
  std::int64_t const first = static_cast<std::int64_t>(first_block) * 4096;
  for (std::int64_t index = first + threadIdx.x; index < first + 4096 && index < elements;
       index += blockDim.x)
    if (!isfinite(get<compute_t<T>>(values[index]))) {
      atomicMin(&first_value, static_cast<unsigned long long>(index));
      break;
    }
  __syncthreads();
  if (threadIdx.x == 0 && unit >= bad->unit)
    *bad = {unit, begin + (first_value == none ? first : static_cast<std::int64_t>(first_value))};
}

struct StepEnds {
  static void begin(Context<Cuda>& context, StepState* state, BadElement* own, StepRule const& rule,
                    double learning_rate) {
    begin_step_kernel<<<1, 1, 0, context.stream()>>>(state, own, rule, learning_rate);
  }

  template <class T>
  static void find_bad(Context<Cuda>& context, Tensor<T, Cuda> values, Tensor<float, Cuda> partials,
                       std::int64_t unit, std::int64_t begin, BadElement* bad) {
    find_bad_kernel<<<1, 1024, 0, context.stream()>>>(
        static_cast<std::remove_const_t<T> const*>(values.data()), values.elements(), partials.data(), unit,
        begin, bad);
  }

  static void finish(Context<Cuda>& context, StepShares const& shares, StepState* state,
                     StepRule const& rule) {
    finish_step_kernel<<<1, v0::detail::norm_lanes, 0, context.stream()>>>(shares, state, rule);
  }
};

}  // namespace cuda

template <>
struct backend::StepEnds<Cuda> : cuda::StepEnds {};

}  // namespace v0
}  // namespace tessera
