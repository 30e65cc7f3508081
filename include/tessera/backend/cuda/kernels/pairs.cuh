// SPDX-License-Identifier: Apache-2.0
// Converts two 16-bit values in one register, with one or two instructions.
#pragma once

#include <type_traits>

#include "tessera/core/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Two values rounded to T, the first in the low half.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned bits;
  if constexpr (std::is_same_v<T, half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

/// The pair of values that `pack` packed.
template <class T>
__device__ __forceinline__ float2 unpack(unsigned bits) {
  if constexpr (std::is_same_v<T, half>)
    return __half22float2(*reinterpret_cast<__half2*>(&bits));
  else
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
