// SPDX-License-Identifier: Apache-2.0
// Implements the operations begin_step and finish_step on the GPU. optim/finish.hpp documents them.
#pragma once

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/lane_sum.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/optim/finish.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

template <class Rule>  // a template, so that several source files can include the kernel
__global__ void begin_step_kernel(StepState* state, RankNotes* own, Rule rule, double learning_rate,
                                  bool stop) {
  *own = {{}, stop};
  begin_step(*state, rule, learning_rate);
}

/// Computes the gradient norm and decides whether the update is skipped. Runs as one thread block of
/// sum_lanes threads. Thread i computes the partial sum i of the norm.
template <class Rule>
__global__ void finish_step_kernel(StepShares shares, StepState* state, Rule rule) {
  // `memory` holds a copy of shares.units, the list with one NormRange per trained flat group. `most` is the
  // largest number of ranges that fit in `memory`. A longer list is read from global memory.
  constexpr int most = v0::detail::sum_lanes;
  __shared__ double lanes[v0::detail::sum_lanes];
  __shared__ alignas(NormRange) unsigned char memory[most * sizeof(NormRange)];
  int const lane = static_cast<int>(threadIdx.x);
  if (shares.unit_count <= most) {
    NormRange* const ranges = reinterpret_cast<NormRange*>(memory);
    if (lane < shares.unit_count) ranges[lane] = shares.units[lane];
    shares.units = ranges;
    __syncthreads();
  }
  add_lanes_of_block(v0::detail::square_sum_of_lane(shares, lane), lanes);
  if (lane == 0) v0::detail::finish_from(shares, *state, rule, lanes[0]);
}

struct StepEnds {
  static void begin(Context<Cuda>& context, StepState* state, RankNotes* own, StepRule const& rule,
                    double learning_rate, bool stop) {
    begin_step_kernel<<<1, 1, 0, context.stream()>>>(state, own, rule, learning_rate, stop);
  }

  static void finish(Context<Cuda>& context, StepShares const& shares, StepState* state,
                     StepRule const& rule) {
    finish_step_kernel<<<1, v0::detail::sum_lanes, 0, context.stream()>>>(shares, state, rule);
  }
};

}  // namespace cuda

template <>
struct backend::StepEnds<Cuda> : cuda::StepEnds {};

}  // namespace v0
}  // namespace tessera
