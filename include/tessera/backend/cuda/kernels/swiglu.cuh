// SPDX-License-Identifier: Apache-2.0
// Implements SwiGLU on the GPU. The contract is in ops/swiglu.hpp.
#pragma once

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns 1 / (1 + e^-x). If e^-x overflows to infinity, the result is 0.
template <class S>
__device__ __forceinline__ S sigmoid(S x) {
  return S(1) / detail::add(S(1), detail::exponential(-x));
}

struct AssignSwiGlu {
  template <class S>
  __device__ __forceinline__ void operator()(S gate, S up, S& y) const {
    y = detail::multiply(detail::multiply(gate, sigmoid(gate)), up);
  }
};
struct AssignSwiGluGradients {
  template <class S>
  __device__ __forceinline__ void operator()(S gate, S up, S dy, S& dgate, S& dup) const {
    S const s = sigmoid(gate), silu = detail::multiply(gate, s);
    dgate = detail::multiply(detail::multiply(dy, up), detail::multiply_add(silu, detail::add(S(1), -s), s));
    dup = detail::multiply(dy, silu);
  }
};

struct SwiGlu {
  template <class T>
  static void forward(Context<Cuda>& context, Tensor<T const, Cuda> gate, Tensor<T const, Cuda> up,
                      Tensor<T, Cuda> y) {
    run_transform<compute_t<T>>(context.stream(), y.elements(), AssignSwiGlu{}, gate.data(), up.data(),
                                y.data());
  }

  template <class T>
  static void backward(Context<Cuda>& context, Tensor<T const, Cuda> gate, Tensor<T const, Cuda> up,
                       Tensor<T const, Cuda> dy, Tensor<T, Cuda> dgate, Tensor<T, Cuda> dup) {
    run_transform<compute_t<T>, 1>(context.stream(), dgate.elements(), AssignSwiGluGradients{}, gate.data(),
                                   up.data(), dy.data(), dgate.data(), dup.data());
  }
};

}  // namespace cuda

template <>
struct backend::SwiGlu<Cuda> : cuda::SwiGlu {};

}  // namespace v0
}  // namespace tessera
