// SPDX-License-Identifier: Apache-2.0
// Provides a warp's tensor core products, for 16-bit and tf32 operands and fp32 sums, and the asynchronous
// copies that feed them. Needs compute capability 8.0.
//
// A tile of a product is 16 rows by 8 columns. With g = lane / 4 and t = lane % 4, a thread has two sums in
// row g and two in row g + 8, at columns 2t and 2t + 1.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/pairs.cuh"
#include "tessera/core/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tessera {
inline namespace v0 {
namespace cuda {

__device__ __forceinline__ unsigned shared_address(void const* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// Loads four 8x8 matrices of 16-bit values. Lane i passes the address of row i % 8 of matrix i / 8. A thread
/// gets row g, columns 2t and 2t + 1 of each matrix. From 8x4 matrices of 32-bit values it gets row g, column
/// t.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], void const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same for the transposed matrices: a thread gets rows 2t and 2t + 1 of column g.
__device__ __forceinline__ void load_transposed_matrices(unsigned (&to)[4], void const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// sums (16, 8) += a (16, 16) b (16, 8).
template <class T>
__device__ __forceinline__ void multiply_tile(float (&sums)[4], unsigned const (&a)[4], unsigned b0,
                                              unsigned b1) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, bfloat16>);
  if constexpr (std::is_same_v<T, half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The bits of a value rounded to tf32 (10 mantissa bits), ties away from zero.
__device__ __forceinline__ unsigned round_to_tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

/// sums (16, 8) += a (16, 8) b (8, 8), for values rounded to tf32. A thread has a at rows g and g + 8 of
/// column t, then at both rows of column t + 4, and b at rows t and t + 4 of column g.
__device__ __forceinline__ void multiply_tf32_tile(float (&sums)[4], unsigned const (&a)[4], unsigned b0,
                                                   unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 2^x within two units of the last place; results below 2^-126 are 0.
__device__ __forceinline__ float exponential_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Starts to copy 16 bytes to shared memory, or zeros if they do not exist. The thread continues meanwhile.
__device__ __forceinline__ void copy_16_bytes(void* shared, void const* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_4_bytes(void* shared, void const* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(shared_address(shared)), "l"(from), "r"(exists ? 4 : 0)
               : "memory");
}
/// Ends a group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for this thread's copies, except the last N groups.
template <int N>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
