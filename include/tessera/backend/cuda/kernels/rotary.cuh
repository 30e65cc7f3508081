// SPDX-License-Identifier: Apache-2.0
// Implements rotary position embeddings on the GPU. The contract is in ops/rotary.hpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

__device__ __forceinline__ void sine_and_cosine(float angle, float* sine, float* cosine) {
  sincosf(angle, sine, cosine);
}
__device__ __forceinline__ void sine_and_cosine(double angle, double* sine, double* cosine) {
  sincos(angle, sine, cosine);
}

inline constexpr int rotary_threads = 256;

/// Rotates the heads of one row (one token) per thread block. First computes the sines and cosines for the
/// token's position, and then uses them for all heads. A thread rotates N pairs of values at a time.
template <int N, class T>
__global__ __launch_bounds__(rotary_threads) void rotary_kernel(
    ops::Columns<T const, Cuda> from, ops::Columns<T, Cuda> to, std::int64_t sequence,
    __grid_constant__ ops::RotaryFrequencies const frequencies, ops::RotaryOptions with) {
  using S = compute_t<T>;
  __shared__ S cosines[ops::RotaryFrequencies::most], sines[ops::RotaryFrequencies::most];
  int const pairs = frequencies.pairs;
  std::int64_t const row = blockIdx.x;
  S const position = static_cast<S>(with.first + row % sequence);
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
    S sine, cosine;
    sine_and_cosine(detail::multiply(position, static_cast<S>(frequencies.inverse[i])), &sine, &cosine);
    cosines[i] = cosine;
    sines[i] = with.transposed ? -sine : sine;
  }
  __syncthreads();
  T const* const row_from = from.data + row * from.stride;
  T* const row_to = to.data + row * to.stride;
  int const packs = pairs / N, all = static_cast<int>(to.columns) / (2 * N);
  for (int at = static_cast<int>(threadIdx.x); at < all; at += static_cast<int>(blockDim.x)) {
    int const i = at % packs * N, low = at / packs * 2 * pairs + i, high = low + pairs;
    Pack<T, N> a = load<N, true>(row_from + low, N), b = load<N, true>(row_from + high, N);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      S const x = get<S>(a.value[k]), y = get<S>(b.value[k]), cosine = cosines[i + k], sine = sines[i + k];
      a.value[k] = put<T>(detail::multiply_add(x, cosine, -detail::multiply(y, sine)));
      b.value[k] = put<T>(detail::multiply_add(y, cosine, detail::multiply(x, sine)));
    }
    store<N, true>(row_to + low, a, N);
    store<N, true>(row_to + high, b, N);
  }
}

struct Rotary {
  template <class T>
  static void rotate(Context<Cuda>& context, ops::Columns<T const, Cuda> from, ops::Columns<T, Cuda> to,
                     std::int64_t sequence, ops::RotaryFrequencies const& frequencies,
                     ops::RotaryOptions const& with) {
    constexpr int n = pack_width<T>;
    if (to.rows == 0 || to.columns == 0) return;
    bool const packed = frequencies.pairs % n == 0 && from.stride % n == 0 && to.stride % n == 0 &&
                        takes_packs<n>(from.data, to.data);
    std::int64_t const work = to.columns / (2 * (packed ? n : 1));
    int const threads = static_cast<int>(std::min<std::int64_t>(rotary_threads, (work + 31) / 32 * 32));
    auto* const kernel = packed ? &rotary_kernel<n, T> : &rotary_kernel<1, T>;
    kernel<<<static_cast<unsigned>(to.rows), threads, 0, context.stream()>>>(from, to, sequence, frequencies,
                                                                             with);
  }
};

}  // namespace cuda

template <>
struct backend::Rotary<Cuda> : cuda::Rotary {};

}  // namespace v0
}  // namespace tessera
