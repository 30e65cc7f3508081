// SPDX-License-Identifier: Apache-2.0
// Provides Hopper's TMA copies between global and shared memory, and the barriers that track them. A copy
// moves a box, which is a rectangular block of a matrix. The device functions must be compiled for compute
// capability 9.0.
#pragma once

#include <cstdint>
#include <cuda.h>

#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/runtime/stream_memory.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// A size in columns, rows and matrices.
struct BoxExtents {
  std::int64_t columns, rows, matrices;
};
/// The distances between rows and between matrices, in values.
struct BoxStrides {
  std::int64_t row, matrix;
};
/// Fills `map`, the descriptor with which TMA copies boxes of one or several matrices. `data` is the first
/// matrix, `type` and `bytes` are the type and the size of its values, and `of` is the number of columns,
/// rows and matrices. `box` is the size of a box. A row of a box must have 128 bytes. In shared memory, the
/// rows of a box are swizzled as in WarpgroupRows. Values outside a matrix are zero. Returns false if the
/// driver cannot describe the matrices: their rows must begin at multiples of 16 bytes.
inline bool make_tensor_map(CUtensorMap& map, CUtensorMapDataType type, void const* data, unsigned bytes,
                            BoxExtents const& of, BoxStrides const& strides, BoxExtents const& box) {
  static auto* const encode = driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode) return false;
  auto const wide = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  auto const narrow = [](std::int64_t value) { return static_cast<cuuint32_t>(value); };
  cuuint64_t const extents[] = {wide(of.columns), wide(of.rows), wide(of.matrices)},
                   lines[] = {wide(strides.row * bytes), wide(strides.matrix * bytes)};
  cuuint32_t const boxes[] = {narrow(box.columns), narrow(box.rows), narrow(box.matrices)},
                   steps[] = {1, 1, 1};
  return encode(&map, type, of.matrices > 1 ? 3 : 2, const_cast<void*>(data), extents, lines, boxes, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
/// Fills `map` for boxes of `box_rows` rows by 64 columns of one contiguous matrix (rows, columns) of 16-bit
/// values. Returns false if the driver cannot describe the matrix.
inline bool make_tensor_map(CUtensorMap& map, void const* matrix, std::int64_t rows, std::int64_t columns,
                            unsigned box_rows) {
  return make_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, matrix, 2, {columns, rows, 1},
                         {columns, rows * columns}, {64, box_rows, 1});
}

/// Initialises a barrier in shared memory. A barrier has phases. A phase ends after `count` arrivals, when
/// all bytes announced for it have been copied. The phases alternate in parity, and the first phase is even.
__device__ __forceinline__ void make_barrier(std::uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
/// Makes new barriers visible to the other blocks of the cluster. Call it before the blocks synchronise and
/// use them.
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Arrives at the barrier, and announces that copies will bring `bytes` bytes in this phase.
__device__ __forceinline__ void announce_bytes(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Arrives at a barrier of another block of the cluster. The barrier has the address `barrier` in the shared
/// memory of block number `block`.
__device__ __forceinline__ void arrive_at(std::uint64_t* barrier, unsigned block) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}
/// Waits for the end of the phase whose parity is `parity`.
__device__ __forceinline__ void wait_at(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
      "@done bra ended; bra again; ended: }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Starts to copy the box whose first element is at (row, column) of the matrix to shared memory. The barrier
/// counts the bytes that arrive.
__device__ __forceinline__ void copy_box(void* to, CUtensorMap const& map, int row, int column,
                                         std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
/// Prefetches the box whose first element is at (row, column) into the L2 cache.
__device__ __forceinline__ void prefetch_box(CUtensorMap const& map, int row, int column) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map), "r"(column), "r"(row)
               : "memory");
}
/// Starts to copy a box to several blocks of the cluster: the mask `blocks` selects them. In each of them the
/// box arrives at the address `to` of shared memory, and the barrier at the address `barrier` counts the
/// bytes.
__device__ __forceinline__ void copy_box_to(unsigned short blocks, void* to, CUtensorMap const& map, int row,
                                            int column, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}

/// Like copy_box and copy_box_to above, but for a map of several matrices. `matrix` is the matrix's index.
__device__ __forceinline__ void copy_box(void* to, CUtensorMap const& map, int matrix, int row, int column,
                                         std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix)
      : "memory");
}
__device__ __forceinline__ void copy_box_to(unsigned short blocks, void* to, CUtensorMap const& map,
                                            int matrix, int row, int column, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix), "h"(blocks)
      : "memory");
}

/// Starts to copy a box from shared memory to (row, column) of the matrix. Only the part inside the matrix is
/// written. The threads that wrote the box must call show_to_products and synchronise before.
__device__ __forceinline__ void store_box(CUtensorMap const& map, void const* from, int row, int column) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}
/// Makes this thread's stores since the last call one group. wait_for_reads counts such groups.
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until this thread's groups of stores, except the last N, have read shared memory. The memory may
/// then be overwritten.
template <int N>
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/// Waits for all threads of all blocks of the cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ unsigned block_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
