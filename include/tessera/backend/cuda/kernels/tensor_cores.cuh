// SPDX-License-Identifier: Apache-2.0
// Provides matrix products that a warp computes on tensor cores, with 16-bit or tf32 operands and fp32 sums,
// and the asynchronous copies that load the operands. Needs compute capability 8.0.
//
// A tile is a result of 16 rows by 8 columns, distributed over the 32 lanes of a warp. In all comments of
// this file, g = lane / 4 and t = lane % 4. sums[0] and sums[1] of a thread are in row g of the tile, at
// columns 2t and 2t + 1. sums[2] and sums[3] are in row g + 8, at the same columns.
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

/// Loads four 8x8 matrices of 16-bit values from shared memory to registers. Lane i passes the address of row
/// i % 8 of matrix i / 8. With g = lane / 4 and t = lane % 4, a thread gets row g, columns 2t and 2t + 1 of
/// each matrix. The matrices can also be 8x4 with 32-bit values. A thread then gets row g, column t of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], void const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
/// Loads four 8x8 matrices as load_matrices does, but transposed. With g = lane / 4 and t = lane % 4, a
/// thread gets rows 2t and 2t + 1 of column g of each matrix.
__device__ __forceinline__ void load_transposed_matrices(unsigned (&to)[4], void const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Adds the product of a (16, 16) and b (16, 8) to sums (16, 8). T is half or bfloat16, and a register holds
/// two values. The values are distributed over the registers as the PTX manual describes for mma.m16n8k16.
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

/// Returns the bits of a value rounded to tf32 (10 mantissa bits), ties away from zero.
__device__ __forceinline__ unsigned round_to_tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

/// Adds the product of a (16, 8) and b (8, 8) to sums (16, 8), for values rounded to tf32. With g = lane / 4
/// and t = lane % 4, a thread has the values of `a` at rows g and g + 8 of column t, then at rows g and g + 8
/// of column t + 4. It has the values of `b` at rows t and t + 4 of column g.
__device__ __forceinline__ void multiply_tf32_tile(float (&sums)[4], unsigned const (&a)[4], unsigned b0,
                                                   unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Returns 2^x within two units of the last place. Results below 2^-126 are 0.
__device__ __forceinline__ float exponential_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Starts to copy 16 bytes from global to shared memory. If `exists` is false, fills them with zeros instead.
/// The thread continues during the copy.
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
/// Makes this thread's copies since the last call one group. wait_for_copies counts such groups.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until this thread's groups of copies, except the last N, have ended.
template <int N>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
