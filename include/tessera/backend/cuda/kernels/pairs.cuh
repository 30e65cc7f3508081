// SPDX-License-Identifier: Apache-2.0
// Converts between two fp32 values and two 16-bit values in one register, with one or two instructions.
#pragma once

#include <type_traits>

#include "tessera/core/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns `low` and `high` rounded to T in one register, `low` in the lower 16 bits.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned bits;
  if constexpr (std::is_same_v<T, half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

/// Returns the two values of a register that `pack` made; x is the value of the lower 16 bits.
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
