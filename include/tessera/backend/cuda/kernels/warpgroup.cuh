// SPDX-License-Identifier: Apache-2.0
// Provides Hopper's matrix products (wgmma instructions), and the layout of their operands in shared memory.
// A warpgroup, which is four warps, computes a product together. The operands have 16 bits and the sums are
// fp32. Only code that is compiled for compute capability 9.0a may call these functions.
//
// The result of a product has 64 rows and a multiple of 8 columns, and its sums are in registers. Warp w (0
// to 3) of the warpgroup holds rows 16 w to 16 w + 15. Each tile of 8 columns is distributed over the threads
// of the warp as in tensor_cores.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Makes earlier writes to registers visible to the products that follow, which read these registers or add
/// to them.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Makes the products since the last call one group. wait_for_products counts such groups.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until all groups of products except the last N have ended. Then `sums` holds their results. The
/// empty asm statements keep the compiler from reading `sums` earlier.
template <int N, int Tiles>
__device__ __forceinline__ void wait_for_products(float (&sums)[Tiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
}
/// Keeps the compiler from moving earlier code past the next wait_for_products. It does so with a branch that
/// is never taken: `value` must not be infinite in any thread of the warp.
__device__ __forceinline__ void stay_before_wait(float value) {
  if (__any_sync(~0u, value == INFINITY)) asm volatile("nanosleep.u32 0;" ::: "memory");
}
/// Makes this thread's writes to shared memory visible to products and TMA copies that start after the next
/// barrier.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Waits at the named barrier `barrier` (1 to 15) until `Warps` warps have arrived.
template <int Warps>
__device__ __forceinline__ void sync_warps(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(32 * Warps) : "memory");
}
/// Waits for the four warps of warpgroup number `group`. Uses the named barrier group + 1.
__device__ __forceinline__ void sync_warpgroup(int group) { sync_warps<4>(group + 1); }

/// Stores four 8x8 matrices of 16-bit values from registers to shared memory. The distribution over the
/// threads is the one of load_matrices. Needs Hopper.
__device__ __forceinline__ void store_matrices(void* row, unsigned const (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

#define TESSERA_TILE(n) "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
#define TESSERA_TILES_2(n) TESSERA_TILE(n), TESSERA_TILE(n + 1)
#define TESSERA_TILES_4(n) TESSERA_TILES_2(n), TESSERA_TILES_2(n + 2)
#define TESSERA_TILES_8(n) TESSERA_TILES_4(n), TESSERA_TILES_4(n + 4)
#define TESSERA_NAMES_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TESSERA_NAMES_4 TESSERA_NAMES_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TESSERA_NAMES_8 \
  TESSERA_NAMES_4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_PRODUCT(columns, type) \
  "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {"

/// Starts a product. The result is stored in sums (64, 64) or, if `add` is true, added to them. The product
/// is a (64, 16) times the transpose of b (64, 16). If Rows is true, it is the transpose of a (16, 64) times
/// b (16, 64). `a` and `b` are descriptors of blocks in shared memory (WarpgroupRows::describe).
template <class T, bool Rows = false>
__device__ __forceinline__ void multiply_shared(float (*sums)[4], std::uint64_t a, std::uint64_t b,
                                                bool add) {
#define TESSERA_MULTIPLY(type)                                                                          \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %34, 0;" TESSERA_PRODUCT("64", type) TESSERA_NAMES_8 \
               "}, %32, %33, add, 1, 1, %35, %35; }"                                                    \
               : TESSERA_TILES_8(0)                                                                     \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(Rows)))
  if constexpr (std::is_same_v<T, half>)
    TESSERA_MULTIPLY("f16");
  else
    TESSERA_MULTIPLY("bf16");
#undef TESSERA_MULTIPLY
}

/// Starts a product. The result is stored in sums (64, N) or, if `add` is true, added to them. The left
/// operand a (64, 16) is in registers, as for multiply_tile. `b` is the descriptor (WarpgroupRows::describe)
/// of a block in shared memory. The right operand is the transpose of the block's (N, 16) values. If Rows is
/// true, the right operand is the block's (16, N) values.
template <class T, int N, bool Rows>
__device__ __forceinline__ void multiply_registers(float (*sums)[4], unsigned const (&a)[4], std::uint64_t b,
                                                   bool add) {
  static_assert(N == 64 || N == 32 || N == 16);
#define TESSERA_MULTIPLY(columns, type, tiles, names, a0, a1, a2, a3, b0, add0, rows)                   \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #add0 ", 0;" TESSERA_PRODUCT(columns, type) names \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 ", add, 1, 1, %" #rows "; }"        \
               : tiles                                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),        \
                 "n"(static_cast<int>(Rows)))
#define TESSERA_MULTIPLY_N(type)                                                                   \
  if constexpr (N == 64)                                                                           \
    TESSERA_MULTIPLY("64", type, TESSERA_TILES_8(0), TESSERA_NAMES_8, 32, 33, 34, 35, 36, 37, 38); \
  else if constexpr (N == 32)                                                                      \
    TESSERA_MULTIPLY("32", type, TESSERA_TILES_4(0), TESSERA_NAMES_4, 16, 17, 18, 19, 20, 21, 22); \
  else                                                                                             \
    TESSERA_MULTIPLY("16", type, TESSERA_TILES_2(0), TESSERA_NAMES_2, 8, 9, 10, 11, 12, 13, 14)
  if constexpr (std::is_same_v<T, half>) {
    TESSERA_MULTIPLY_N("f16");
  } else {
    TESSERA_MULTIPLY_N("bf16");
  }
#undef TESSERA_MULTIPLY_N
#undef TESSERA_MULTIPLY
}

#undef TESSERA_PRODUCT
#undef TESSERA_NAMES_8
#undef TESSERA_NAMES_4
#undef TESSERA_NAMES_2
#undef TESSERA_TILES_8
#undef TESSERA_TILES_4
#undef TESSERA_TILES_2
#undef TESSERA_TILE

/// A block of 64 rows of D values of T in shared memory. A column of the block is also called a channel. The
/// block consists of panels of 64 columns. A row of a panel has 128 bytes. The 16-byte chunk c of row r is
/// stored as chunk c ^ r % 8 (128-byte swizzling, "Matrix shared memory layout" in the PTX manual). A block
/// begins at a multiple of 1024 bytes. Rows and channels beyond the end of the matrix are zero.
template <class T, int D>
struct WarpgroupRows {
  static_assert(sizeof(T) == 2 && D % 16 == 0);
  static constexpr int panels = (D + 63) / 64, panel_bytes = 64 * 128, bytes = panels * panel_bytes;
  /// Returns the number of columns of a panel.
  static __host__ __device__ constexpr int width(int panel) {
    return D - 64 * panel < 64 ? D - 64 * panel : 64;
  }

  /// Starts to copy a block of a matrix to shared memory, with `Threads` threads. `from` is the first value
  /// of the block in the matrix, and `stride` is the distance between rows in values. Only min(64, existing)
  /// rows and `channels` channels exist; the rest of the block becomes zero.
  template <int Threads>
  static __device__ __forceinline__ void copy(unsigned char* to, T const* from, std::int64_t stride,
                                              std::int64_t existing, int channels) {
    int const rows = static_cast<int>(min(existing, std::int64_t{64}));
    copy_panels<Threads, 0>(to, from, stride, rows, channels);
  }

  /// Returns the descriptor with which products read a block. The same descriptor serves for products that
  /// sum over the block's channels and for products that sum over the block's rows.
  static __device__ __forceinline__ std::uint64_t describe(unsigned char const* block) {
    // The descriptor's fields are the address, the distance of 1024 bytes between groups of 8 rows, and the
    // code of 128-byte swizzling.
    return (shared_address(block) & 0x3FFFF) >> 4 | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 |
           std::uint64_t{1} << 62;
  }
  /// Returns the descriptor of a later block in shared memory: `blocks` blocks after the one that `operand`
  /// describes.
  static __device__ __forceinline__ std::uint64_t further(std::uint64_t operand, unsigned blocks) {
    return operand + blocks * (bytes >> 4);
  }

  /// Loads channels 16 k to 16 k + 15 of `block` into the warpgroup's registers, as the left operand of a
  /// product.
  static __device__ __forceinline__ void load_left(unsigned char const* block, int k, unsigned (&left)[4]) {
    int const lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    load_matrices(left, chunk_at(block, row, 2 * k + lane / 16));
  }

  /// Starts to compute scores (64, 64) = left right^T, summed over all channels. `left` is a descriptor or in
  /// registers; `right` is a descriptor.
  static __device__ __forceinline__ void scores(std::uint64_t left, std::uint64_t right,
                                                float (&scores)[8][4]) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply_shared<T>(scores, left + channels_at(k), right + channels_at(k), k > 0);
  }
  static __device__ __forceinline__ void scores(unsigned const (&left)[D / 16][4], std::uint64_t right,
                                                float (&scores)[8][4]) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply_registers<T, 64, false>(scores, left[k], right + channels_at(k), k > 0);
  }

  /// Starts the product left^T right of two blocks, a sum over their 64 rows. The result is stored in sums
  /// (64, 64) or, if `add` is true, added to them. Only for D = 64.
  static __device__ __forceinline__ void multiply_across(std::uint64_t left, std::uint64_t right,
                                                         float (&sums)[8][4], bool add) {
    static_assert(D == 64);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply_shared<T, true>(sums, left + rows_at(k, 0), right + rows_at(k, 0), add || k > 0);
  }

  /// Starts to add the product of left (64, 64) and right (64, D) to `sums`. `left` is in registers; `right`
  /// is a descriptor.
  static __device__ __forceinline__ void multiply_rows(unsigned const (&left)[4][4], std::uint64_t right,
                                                       float (&sums)[D / 8][4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_panels<0>(left[k], right, k, sums);
  }

  /// Rounds values (64, 64) in the warpgroup's registers to T. Writes them to `left` in the register layout
  /// of a left operand.
  static __device__ __forceinline__ void round(float const (&values)[8][4], unsigned (&left)[4][4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float const* const pair = values[2 * k + i / 2] + i % 2 * 2;
        left[k][i] = pack<T>(pair[0], pair[1]);
      }
  }

  /// Stores `left` (64, 64) from registers to the first 64 columns of `block`.
  static __device__ __forceinline__ void store_left(unsigned const (&left)[4][4], unsigned char* block) {
    int const lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) store_matrices(chunk_at(block, row, 2 * k + lane / 16), left[k]);
  }

  /// Multiplies each row of a warp's sums by its factor, rounds to T and stores to global memory. `to` is the
  /// address of row 0 of the warpgroup. Only the first `existing` rows and `channels` channels are stored.
  /// The values go through `block`, which is shared memory of the warpgroup. No thread may read the old
  /// contents of `block` any more.
  static __device__ __forceinline__ void store(float const (&sums)[D / 8][4], float const (&factors)[2],
                                               unsigned char* block, T* to, std::int64_t stride,
                                               std::int64_t existing, int channels) {
    int const lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side)
        *reinterpret_cast<unsigned*>(chunk_at(block, first + 8 * side + lane / 4, n) + lane % 4 * 4) =
            pack<T>(sums[n][2 * side] * factors[side], sums[n][2 * side + 1] * factors[side]);
    __syncwarp();
    constexpr int chunks = D / 8;
#pragma unroll
    for (int i = lane; i < 16 * chunks; i += 32) {
      int const row = first + i / chunks, chunk = i % chunks;
      if (row < existing && 8 * chunk < channels)
        *reinterpret_cast<uint4*>(to + row * stride + 8 * chunk) =
            *reinterpret_cast<uint4 const*>(chunk_at(block, row, chunk));
    }
  }

  /// Writes to `to` the sum of each channel over the first `existing` rows of `block`, which `store` has
  /// filled with rounded values. Adds the rows of each warp in order, then the sums of the four warps in
  /// order. All threads of the warpgroup call it after `store`.
  static __device__ __forceinline__ void sum_stored(unsigned char* block, std::int64_t existing, int channels,
                                                    int group, float* to) {
    int const lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, first = 16 * warp;
    int const rows = static_cast<int>(min(existing, std::int64_t{64}));
    float2 sums[panels];
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      sums[panel] = {0, 0};
#pragma unroll
      for (int row = first; row < first + 16; ++row)
        if (row < rows && 2 * lane < width(panel)) {
          float2 const values = unpack<T>(
              *reinterpret_cast<unsigned const*>(chunk_at(block, row, 8 * panel + lane / 4) + lane % 4 * 4));
          sums[panel] = {__fadd_rn(sums[panel].x, values.x), __fadd_rn(sums[panel].y, values.y)};
        }
    }
    __syncwarp();  // all lanes have read the warp's rows, which are overwritten below
#pragma unroll
    for (int panel = 0; panel < panels; ++panel)
      *reinterpret_cast<float2*>(block + panel * panel_bytes + first * 128 + lane * 8) = sums[panel];
    sync_warpgroup(group);
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      int const column = 64 * panel + 2 * lane;
      if (warp != panel % 4 || column >= channels) continue;
      auto const of_warp = [&](int other) {
        return *reinterpret_cast<float2 const*>(block + panel * panel_bytes + other * 16 * 128 + lane * 8);
      };
      float2 sum = of_warp(0);
#pragma unroll
      for (int other = 1; other < 4; ++other) {
        float2 const more = of_warp(other);
        sum = {__fadd_rn(sum.x, more.x), __fadd_rn(sum.y, more.y)};
      }
      *reinterpret_cast<float2*>(to + column) = sum;
    }
  }

 private:
  template <class Byte>
  static __device__ __forceinline__ Byte* chunk_at(Byte* block, int row, int chunk) {
    return block + chunk / 8 * panel_bytes + row * 128 + ((chunk % 8 ^ row % 8) * 16);
  }

  /// channels_at and rows_at return an offset that is added to a block's descriptor. The sum is the
  /// descriptor of the part of the block from channel 16 k on (channels_at), or from row 16 k of a panel on
  /// (rows_at).
  static constexpr __host__ __device__ std::uint64_t channels_at(int k) {
    return (k / 4 * panel_bytes + k % 4 * 32) >> 4;
  }
  static constexpr __host__ __device__ std::uint64_t rows_at(int k, int panel) {
    return (panel * panel_bytes + k * 16 * 128) >> 4;
  }

  template <int Threads, int Panel>
  static __device__ __forceinline__ void copy_panels(unsigned char* to, T const* from, std::int64_t stride,
                                                     int rows, int channels) {
    constexpr int chunks = width(Panel) / 8, step = Threads / chunks;
    static_assert(Threads % chunks == 0 && step % 8 == 0);
    int const first = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
    bool const exists = 64 * Panel + 8 * chunk < channels;
    unsigned char* const at = chunk_at(to + Panel * panel_bytes, first, chunk);
    T const* const source = from + first * stride + 64 * Panel + 8 * chunk;
#pragma unroll
    for (int row = 0; row < 64; row += step)
      if (64 % step == 0 || first + row < 64)
        copy_16_bytes(at + row * 128, source + row * stride, exists && first + row < rows);
    if constexpr (Panel + 1 < panels) copy_panels<Threads, Panel + 1>(to, from, stride, rows, channels);
  }

  template <int Panel>
  static __device__ __forceinline__ void multiply_panels(unsigned const (&left)[4], std::uint64_t right,
                                                         int k, float (&sums)[D / 8][4]) {
    multiply_registers<T, width(Panel), true>(sums + 8 * Panel, left, right + rows_at(k, Panel), true);
    if constexpr (Panel + 1 < panels) multiply_panels<Panel + 1>(left, right, k, sums);
  }
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
