// SPDX-License-Identifier: Apache-2.0
// Provides GELU of one value, in its tanh form, and its derivative. The formula is gelu(x) = x s with s = 1 /
// (1 + e^(-2u)) and u = sqrt(2/pi) (x + 0.044715 x^3).
#pragma once

#include "tessera/backend/cpu/activation.hpp"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

namespace detail {

// Arithmetic that the compiler must not fuse into other instructions, so that a value gets the same bits in
// every kernel.
__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

/// Returns s of the formula at the top of this file. e^(-2u) possibly overflows to infinity; s is then 0.
template <class S>
__device__ __forceinline__ S gelu_sigmoid(S x) {
  constexpr S root = cpu::detail::gelu_twice_root<S>, bend = root * cpu::detail::gelu_cubic<S>;
  S const twice = multiply(x, multiply_add(multiply(x, x), bend, root));
  return S(1) / add(S(1), exponential(-twice));
}

/// The next three functions return approximations of e^(-2u), 1 / x and s, with a relative error of up to
/// 2^-21. They are used for results that are stored in 16 bits. Rounding such a result adds a relative error
/// of up to 2^-8 in bfloat16 and 2^-11 in half.
__device__ __forceinline__ float gelu_power_for_16_bits(float x) {
  constexpr float log2_e = 1.4426950408889634f, root = -log2_e * cpu::detail::gelu_twice_root<float>,
                  bend = root * cpu::detail::gelu_cubic<float>;
  return exponential_of_2(multiply(x, multiply_add(multiply(x, x), bend, root)));
}
__device__ __forceinline__ float reciprocal_for_16_bits(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float gelu_sigmoid_for_16_bits(float x) {
  return reciprocal_for_16_bits(add(1.0f, gelu_power_for_16_bits(x)));
}
template <class T, class S>
__device__ __forceinline__ S gelu_sigmoid_for(S x) {
  if constexpr (sizeof(T) == 2)
    return gelu_sigmoid_for_16_bits(x);
  else
    return gelu_sigmoid(x);
}

}  // namespace detail

/// Returns gelu(x) for a result that is stored as T. Uses the approximations above if T has 16 bits.
template <class T, class S>
__device__ __forceinline__ S gelu(S x) {
  return detail::multiply(x, detail::gelu_sigmoid_for<T>(x));
}

/// Returns d gelu(x) / dx = s + x s (1 - s) 2u', computed from x and s, where 2u' = 2 sqrt(2/pi) (1 + 3 *
/// 0.044715 x^2). x^2 is capped at 10000. The cap changes no result, because s (1 - s) is 0 for such large x.
/// Without the cap, 2u' could become infinite, and 0 times infinity is NaN. For an infinite x the result is
/// NaN.
template <class S>
__device__ __forceinline__ S gelu_derivative_from(S x, S s) {
  constexpr S root = cpu::detail::gelu_twice_root<S>, bend = S(3) * root * cpu::detail::gelu_cubic<S>;
  S const slope = detail::multiply_add(min(detail::multiply(x, x), S(10000)), bend, root);
  return detail::multiply_add(detail::multiply(x, detail::multiply_add(-s, s, s)), slope, s);
}
/// Returns gelu'(x) for a result that is stored as T. Uses the approximations above if T has 16 bits.
template <class T, class S>
__device__ __forceinline__ S gelu_derivative(S x) {
  return gelu_derivative_from(x, detail::gelu_sigmoid_for<T>(x));
}
/// Writes gelu' of the N values `x` to `y`. Does each step for all values before the next step, because the
/// steps of one value depend on each other.
template <class T, int N>
__device__ __forceinline__ void gelu_derivatives(float const (&x)[N], float (&y)[N]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = detail::gelu_power_for_16_bits(x[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = detail::add(1.0f, y[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = detail::reciprocal_for_16_bits(y[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = gelu_derivative_from(x[i], y[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = gelu_derivative<T>(x[i]);
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
