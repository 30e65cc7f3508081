// SPDX-License-Identifier: Apache-2.0
// Computes initial weights on a GPU, with the random numbers and formulas of the host. So the weights have
// the same bits as weights that the host computes.
#pragma once

#include <cstdint>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/nn/init.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Writes elements [first, first + count) of a parameter to `to`: the values of `draw` if `random`, otherwise
/// `constant`. Each thread writes up to four elements, because one call of the random-number generator gives
/// four words.
template <class U>
__global__ __launch_bounds__(256) void initial_values_kernel(v0::detail::InitialDraw draw, bool random,
                                                             float constant, std::int64_t first, U* to,
                                                             std::int64_t count) {
  std::int64_t const group = first / 4 + static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  PhiloxCounter drawn{};
  if (random) drawn = draw.words(static_cast<std::uint64_t>(group));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::int64_t const at = 4 * group + i - first;
    if (at < 0 || at >= count) continue;
    to[at] = put<U>(random ? draw.value(drawn.word[i]) : constant);
  }
}

}  // namespace cuda

template <>
struct backend::InitialValues<Cuda> {
  template <class U>
  static bool fill(Context<Cuda>& context, v0::detail::InitialDraw const& draw, Init::Kind kind,
                   std::int64_t first, U* to, std::int64_t count) {
    if (count == 0) return true;
    bool random = false;
    float constant = 0.0f;
    switch (kind) {
      case Init::Kind::zeros:
        break;
      case Init::Kind::ones:
        constant = 1.0f;
        break;
      case Init::Kind::normal:
      case Init::Kind::uniform:
        random = true;
        break;
    }
    std::int64_t const groups = (first + count + 3) / 4 - first / 4;
    cuda::initial_values_kernel<<<cuda::blocks_for(groups, 256), 256, 0, context.stream()>>>(
        draw, random, constant, first, to, count);
    context.synchronize();
    context.raise();
    return true;
  }
};

}  // namespace v0
}  // namespace tessera
