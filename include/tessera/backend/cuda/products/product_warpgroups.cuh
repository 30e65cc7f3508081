// SPDX-License-Identifier: Apache-2.0
// Provides products of 16-bit matrices on Hopper's warpgroups (wgmma instructions), each with an epilogue. An
// epilogue is an operation on the result before it is stored, such as adding a bias. The epilogue costs
// almost no time: while one warpgroup finishes its tile of the result, the other warpgroup's tile is on the
// tensor cores.
//
// Thread blocks work in clusters of two. The two blocks of a cluster compute the same columns of the result.
// Each copies half of b's tile into the shared memory of both blocks. In a block, one thread copies operands
// up to `stages` steps ahead, and two warpgroups alternate on tiles of 128 rows by 192 columns. A tile is
// stored in strips of 16 rows by 64 columns: a warp writes each strip to shared memory and starts its copy to
// global memory. This code must be compiled for compute capability 9.0a.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_copies.cuh"
#include "tessera/backend/cuda/kernels/warpgroup.cuh"
#include "tessera/backend/cuda/runtime/device.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The epilogue of a product: how y is computed from the sums over the depth. With s = scale * sums, `bias`
/// computes y = s + bias, and `residual` computes y = s + bias + pre. `gelu` computes pre = s + bias and y =
/// gelu(pre). `gelu_derivative` computes y = s * gelu'(pre).
enum class ProductEnd { bias, residual, gelu, gelu_derivative };
template <ProductEnd End>
constexpr bool reads_pre = End == ProductEnd::residual || End == ProductEnd::gelu_derivative;
template <ProductEnd End>
constexpr bool adds_bias = End != ProductEnd::gelu_derivative;
template <ProductEnd End>
constexpr bool sums_columns = End == ProductEnd::gelu_derivative;

/// A product with its epilogue. It computes y (rows, columns) from a (rows, depth) and b, which is (columns,
/// depth) or (depth, columns). The rows of each matrix follow each other without gaps.
template <class T>
struct FinishedProduct {
  std::int64_t rows, columns, depth;
  T* y;
  T* pre;         // shaped like y, written or read by the epilogue; if it is a residual, it may be y
  T const* bias;  // (columns) or null
  float scale;
  // the sums of y over blocks of 128 rows, (ceil(rows / 128), columns); only for gelu_derivative, or null
  float* partials = nullptr;
};

struct ProductTiles {
  // the tile of a warpgroup, and the depth of one step
  static constexpr int rows = 128, columns = 192, depth = 64;
  static constexpr int stages = 4, warpgroups = 2;
  static constexpr int a_bytes = rows * depth * 2, b_bytes = columns * depth * 2, bytes = a_bytes + b_bytes;
  static constexpr int warps = 4 * warpgroups, threads = 128 * (warpgroups + 1);
  static constexpr int strips = 4, strip_bytes = 16 * 128;  // strips of a warp: 16 rows by 64 columns each
  static constexpr int bias_bytes = columns * 2;
  static constexpr int shared_bytes = 1024 + stages * bytes + warps * strips * strip_bytes +
                                      warpgroups * bias_bytes + (2 * stages + strips * warps) * 8;
};

#define TESSERA_SUMS_8(as, n)                                                                             \
  as(sums[n][0]), as(sums[n][1]), as(sums[n][2]), as(sums[n][3]), as(sums[n + 1][0]), as(sums[n + 1][1]), \
      as(sums[n + 1][2]), as(sums[n + 1][3])
#define TESSERA_SUMS_32(as, n) \
  TESSERA_SUMS_8(as, n), TESSERA_SUMS_8(as, n + 2), TESSERA_SUMS_8(as, n + 4), TESSERA_SUMS_8(as, n + 6)
#define TESSERA_SUMS_96(as) TESSERA_SUMS_32(as, 0), TESSERA_SUMS_32(as, 8), TESSERA_SUMS_32(as, 16)
#define TESSERA_MULTIPLY(type, as, add)                                                                      \
  asm volatile(                                                                                              \
      "{ .reg .pred add; setp.ne.b32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n192k16.f32." type     \
      "." type                                                                                               \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "         \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
      "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, add, 1, "  \
      "1, "                                                                                                  \
      "%99, %98; }"                                                                                          \
      : TESSERA_SUMS_96(as)                                                                                  \
      : "l"(a), "l"(b), "n"(static_cast<int>(Rows)), "n"(static_cast<int>(Columns)))
#define TESSERA_WRITTEN(x) "=f"(x)
#define TESSERA_CHANGED(x) "+f"(x)
/// Starts a product of a left operand (64, 16) and a right operand (16, 192). The result is stored in `sums`
/// or, with Add, added to them. `a` and `b` are descriptors of shared memory. There, the left operand is (64,
/// 16) or, with Columns, its transpose (16, 64). The right operand is stored as its transpose (192, 16) or,
/// with Rows, as (16, 192) in panels of 64 columns. Without Add, the compiler may use the registers of `sums`
/// for other values until this call.
template <class T, bool Rows, bool Add, bool Columns = false>
__device__ __forceinline__ void multiply_192(float (&sums)[24][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, half> && Add)
    TESSERA_MULTIPLY("f16", TESSERA_CHANGED, "1");
  else if constexpr (std::is_same_v<T, half>)
    TESSERA_MULTIPLY("f16", TESSERA_WRITTEN, "0");
  else if constexpr (Add)
    TESSERA_MULTIPLY("bf16", TESSERA_CHANGED, "1");
  else
    TESSERA_MULTIPLY("bf16", TESSERA_WRITTEN, "0");
}
#undef TESSERA_CHANGED
#undef TESSERA_WRITTEN
#undef TESSERA_MULTIPLY
#undef TESSERA_SUMS_96
#undef TESSERA_SUMS_32
#undef TESSERA_SUMS_8

/// Returns the address in a strip that this lane passes to load_matrices and store_matrices for tiles n and n
/// + 1. A strip has 16 rows by 64 columns, and a tile has 8 columns.
__device__ __forceinline__ void* tiles_of_strip(unsigned char* strip, int n) {
  int const lane = threadIdx.x % 32, row = lane % 16, chunk = n + lane / 16;
  return strip + row * 128 + ((chunk ^ row % 8) * 16);
}

/// Adds sums of columns over the lanes of a warp. Before, sums[n] of lane l holds partial sums of the columns
/// 8 n + 2 (l % 4) and 8 n + 2 (l % 4) + 1, for n < N. With N = 8, returns to lane l the totals of columns 2
/// l and 2 l + 1. With N = 4, lanes l and l ^ 4 get two halves of one total, which the caller must add.
template <int N>
__device__ __forceinline__ float2 sum_over_lanes(float2 (&sums)[N]) {
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
    int const distance = 32 / N * half;
    bool const upper = threadIdx.x & distance;
#pragma unroll
    for (int n = 0; n < half; ++n) {
      float2 const low = sums[n], high = sums[n + half];
      float const x = __shfl_xor_sync(~0u, upper ? low.x : high.x, distance),
                  y = __shfl_xor_sync(~0u, upper ? low.y : high.y, distance);
      sums[n] = {detail::add(upper ? high.x : low.x, x), detail::add(upper ? high.y : low.y, y)};
    }
  }
  return sums[0];
}

/// The shared memory of a warp for the epilogue: `count` strips, their barriers, and the bias.
struct ProductStrips {
  static constexpr int count = ProductTiles::strips, bytes = ProductTiles::strip_bytes;
  unsigned char* strips;
  std::uint64_t* arrived;  // one barrier per strip, for copies into it
  unsigned char* bias;     // the bias of the columns of the current tile

  __device__ __forceinline__ unsigned char* strip(int i) const { return strips + i % count * bytes; }
};

/// The position in the matrix of strip `i` of a warp's part of a tile. The part consists of two groups of 16
/// rows, 64 rows apart, and begins at (tile_row, tile_column). Strips 2 p and 2 p + 1 are the upper and the
/// lower strip of panel p, which has 64 columns.
struct StripAt {
  static constexpr int panels = ProductTiles::columns / 64, count = 2 * panels;
  int row, column;
  __device__ __forceinline__ StripAt(int tile_row, int tile_column, int i)
      : row(tile_row + i % 2 * 64), column(tile_column + i / 2 * 64) {}
};

/// Starts to copy strip `i` of `pre` to shared memory, for a warp whose part of the tile begins at (row,
/// column). One lane calls it.
__device__ __forceinline__ void fetch_strip(ProductStrips const& own, CUtensorMap const& pre, int row,
                                            int column, int i) {
  StripAt const at(row, column, i);
  announce_bytes(own.arrived + i % ProductStrips::count, ProductStrips::bytes);
  copy_box(own.strip(i), pre, at.row, at.column, own.arrived + i % ProductStrips::count);
}
/// Waits until the warp's stores, except the last N, have read their strips, which may then be overwritten.
/// All lanes of the warp call it.
template <int N>
__device__ __forceinline__ void await_strips() {
  if (threadIdx.x % 32 == 0) wait_for_reads<N>();
  __syncwarp();
}

/// The sums of columns over a warp's rows of a tile, computed from the rounded values. Element p of a lane
/// holds the sums of columns 64 p + 2 i and 64 p + 2 i + 1 of the tile. Each lane has its own i.
using ColumnSums = float2[StripAt::panels];

/// Adds the column sums of a tile's warps in order, and writes the totals of the tile's first `width` columns
/// to `to`. All `Warps` warps of the tile call it. `sums` and `i` are the lane's sums and its i (ColumnSums).
/// The sums go through strip number `spare`, which must have been stored before the tile's last two strips.
/// `barrier` is the named barrier at which the warps wait for each other.
template <int Warps>
__device__ __forceinline__ void store_column_sums(ColumnSums const& sums, int i, ProductStrips const& own,
                                                  int spare, int barrier, int width, float* to) {
  constexpr int warp_bytes = ProductStrips::count * ProductStrips::bytes;
  int const thread = (static_cast<int>(threadIdx.x) - 128) % (32 * Warps);  // warps 0 to 3 only copy operands
  await_strips<2>();
  unsigned char* const mine = own.strip(spare);
#pragma unroll
  for (int p = 0; p < StripAt::panels; ++p) reinterpret_cast<float2*>(mine)[32 * p + i] = sums[p];
  show_to_products();
  sync_warps<Warps>(barrier);
  if (2 * thread < width) {
    float2 const* const first = reinterpret_cast<float2 const*>(mine - thread / 32 * warp_bytes) + thread;
    float2 sum = first[0];
#pragma unroll
    for (int warp = 1; warp < Warps; ++warp) {
      float2 const more = first[warp * warp_bytes / static_cast<int>(sizeof(float2))];
      sum = {detail::add(sum.x, more.x), detail::add(sum.y, more.y)};
    }
    reinterpret_cast<float2*>(to)[thread] = sum;
  }
  sync_warps<Warps>(barrier);  // afterwards the strips may be overwritten
}

/// Applies the epilogue to a warp's part of a tile and stores the result. The part begins at (row, column).
/// `fetched` is the number of tiles that the warp finished before; the parity of the strips' barriers depends
/// on it. `column_sums` receives the sums of the columns if the epilogue computes them. An epilogue with much
/// arithmetic processes few columns at a time, so that it can reuse the registers of finished sums.
template <class T, ProductEnd End>
__device__ __forceinline__ void finish_tile(float (&sums)[2][24][4], float scale, ProductStrips const& own,
                                            CUtensorMap const& y, CUtensorMap const& pre, int row, int column,
                                            unsigned fetched, ColumnSums& column_sums) {
  constexpr bool reads = reads_pre<End>;
  // the number of tiles of 8 columns at a time
  constexpr int tiles = End == ProductEnd::gelu_derivative ? 2 : 8;
  float2 totals[8];  // the column sums of one panel
  int const lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < StripAt::count; ++i) {
    StripAt const at(row, column, i);
    unsigned char* const strip = own.strip(End == ProductEnd::gelu ? 2 * i : i);
    if constexpr (reads) {
      // the number of buffers that hold two strips of a tile in turn
      constexpr int again = StripAt::count - ProductStrips::count;
      int const which = i % ProductStrips::count;
      wait_at(own.arrived + which, which < again ? i / ProductStrips::count : fetched & 1);
    }
#pragma unroll
    for (int first = 0; first < 8; first += tiles) {
      // words[j] holds this thread's values of tiles first + 2 j and first + 2 j + 1, as load_matrices
      // returns them
      unsigned words[tiles / 2][4];
      if constexpr (reads)
#pragma unroll
        for (int n = 0; n < tiles; n += 2) load_matrices(words[n / 2], tiles_of_strip(strip, first + n));
      float slopes[4 * tiles];
      if constexpr (End == ProductEnd::gelu_derivative) {
        float x[4 * tiles];
#pragma unroll
        for (int k = 0; k < 2 * tiles; ++k) {
          float2 const both = unpack<T>(words[k / 4][k % 4]);
          x[2 * k] = both.x;
          x[2 * k + 1] = both.y;
        }
        gelu_derivatives<T>(x, slopes);
      }
#pragma unroll
      for (int k = 0; k < 2 * tiles; ++k) {
        int const n = first + k / 2;
        float const* const sum = sums[i % 2][i / 2 * 8 + n] + k % 2 * 2;
        unsigned& word = words[k / 4][k % 4];
        float2 value;
        if constexpr (adds_bias<End>) {
          float2 const more = unpack<T>(
              *reinterpret_cast<unsigned const*>(own.bias + (i / 2 * 64 + n * 8 + lane % 4 * 2) * 2));
          value = {detail::multiply_add(sum[0], scale, more.x), detail::multiply_add(sum[1], scale, more.y)};
          if constexpr (reads) {
            float2 const also = unpack<T>(word);
            value = {detail::add(value.x, also.x), detail::add(value.y, also.y)};
          }
        } else {
          value = {detail::multiply(detail::multiply(sum[0], scale), slopes[2 * k]),
                   detail::multiply(detail::multiply(sum[1], scale), slopes[2 * k + 1])};
        }
        word = pack<T>(value.x, value.y);
        if constexpr (sums_columns<End>) {
          float2 const stored = unpack<T>(word);
          totals[n] = i % 2 == 0 && k % 2 == 0
                          ? stored
                          : float2{detail::add(totals[n].x, stored.x), detail::add(totals[n].y, stored.y)};
        }
      }
      if constexpr (reads)
        __syncwarp();
      else if (i >= (End == ProductEnd::gelu ? 2 : ProductStrips::count))
        await_strips<End == ProductEnd::gelu ? 1 : ProductStrips::count - 1>();
#pragma unroll
      for (int n = 0; n < tiles; n += 2) store_matrices(tiles_of_strip(strip, first + n), words[n / 2]);
      if constexpr (End == ProductEnd::gelu) {
#pragma unroll
        for (auto& row_words : words)
#pragma unroll
          for (unsigned& word : row_words) {
            float2 const x = unpack<T>(word);
            word = pack<T>(gelu<T>(x.x), gelu<T>(x.y));
          }
#pragma unroll
        for (int n = 0; n < tiles; n += 2)
          store_matrices(tiles_of_strip(own.strip(2 * i + 1), first + n), words[n / 2]);
      }
    }
    show_to_products();
    __syncwarp();
    if (lane == 0) {
      store_box(End == ProductEnd::gelu ? pre : y, strip, at.row, at.column);
      if constexpr (End == ProductEnd::gelu) store_box(y, own.strip(2 * i + 1), at.row, at.column);
      commit_stores();
      if (reads && i > 0 && i - 1 + ProductStrips::count < StripAt::count) {
        wait_for_reads<1>();
        fetch_strip(own, pre, row, column, i - 1 + ProductStrips::count);
      }
    }
    if constexpr (sums_columns<End>)
      if (i % 2 > 0) column_sums[i / 2] = sum_over_lanes(totals);
  }
}

/// The two warpgroups use the tensor cores in turn. await_turn waits for the turn of `warpgroup`; give_turn
/// gives the turn to `warpgroup`.
__device__ __forceinline__ void await_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(warpgroup + 1) : "memory");
}
__device__ __forceinline__ void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(warpgroup + 1) : "memory");
}

// Compilers reject a cluster size for GPUs without clusters.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TESSERA_CLUSTER __cluster_dims__(2)
#else
#define TESSERA_CLUSTER
#endif
/// Computes a FinishedProduct. b is (columns, depth) or, with Rows, (depth, columns).
template <class T, bool Rows, ProductEnd End>
__global__ TESSERA_CLUSTER __launch_bounds__(ProductTiles::threads, 1) void finished_product(
    __grid_constant__ CUtensorMap const a_map, __grid_constant__ CUtensorMap const b_map,
    __grid_constant__ CUtensorMap const y_map, __grid_constant__ CUtensorMap const pre_map, int rows,
    int columns, int depth, T const* bias, float scale, float* partials) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Tiles = ProductTiles;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  unsigned char* const strips = shared + Tiles::stages * Tiles::bytes;
  unsigned char* const biases = strips + Tiles::warps * Tiles::strips * Tiles::strip_bytes;
  auto* const full = reinterpret_cast<std::uint64_t*>(biases + Tiles::warpgroups * Tiles::bias_bytes);
  std::uint64_t *const empty = full + Tiles::stages, *const arrived = empty + Tiles::stages;

  int const warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;  // warpgroup -1 copies operands
  int const block = static_cast<int>(block_in_cluster());
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tiles::stages; ++stage) {
      make_barrier(full + stage, 1);
      make_barrier(empty + stage, 8);  // for the four warps that read the stage, in both blocks
    }
    for (int i = 0; i < Tiles::strips * Tiles::warps; ++i) make_barrier(arrived + i, 1);
    show_barriers();
  }
  __syncwarp();
  sync_cluster();

  int const across = (columns + Tiles::columns - 1) / Tiles::columns;
  int const count = (rows + 2 * Tiles::rows - 1) / (2 * Tiles::rows) * across;
  int const clusters = static_cast<int>(gridDim.x) / 2, own = static_cast<int>(blockIdx.x) / 2;
  int const steps = (depth + Tiles::depth - 1) / Tiles::depth;

  if (warpgroup < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      int stage = 0;
      unsigned parity = 1;
      for (int tile = own; tile < count; tile += clusters) {
        int const row = (tile / across * 2 + block) * Tiles::rows, column = tile % across * Tiles::columns;
        for (int k = 0; k < steps; ++k) {
          wait_at(empty + stage, parity);
          announce_bytes(full + stage, Tiles::bytes);
          unsigned char* const to = shared + stage * Tiles::bytes;
          copy_box(to, a_map, row, k * Tiles::depth, full + stage);
          unsigned char* const b = to + Tiles::a_bytes;
          if constexpr (Rows) {
            constexpr int half = Tiles::depth / 2;
#pragma unroll
            for (int panel = 0; panel < Tiles::columns / 64; ++panel)
              copy_box_to(3, b + (panel * Tiles::depth + half * block) * 128, b_map,
                          k * Tiles::depth + half * block, column + 64 * panel, full + stage);
          } else {
            constexpr int half = Tiles::columns / 2;
            copy_box_to(3, b + half * block * 128, b_map, column + half * block, k * Tiles::depth,
                        full + stage);
          }
          if (++stage == Tiles::stages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    float sums[2][24][4];
    // With Rows, a descriptor also needs the distance from one panel of 64 columns to the next. Other
    // products ignore this field.
    constexpr std::uint64_t panel = Rows ? std::uint64_t{(Tiles::depth * 128 >> 4) - 1} << 16 : 0;
    std::uint64_t const a0 = WarpgroupRows<T, 64>::describe(shared),
                        b0 = WarpgroupRows<T, 64>::describe(shared + Tiles::a_bytes) + panel;
    int const lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32 - 4;
    ProductStrips const strip{strips + warp * Tiles::strips * Tiles::strip_bytes,
                              arrived + Tiles::strips * warp, biases + warpgroup * Tiles::bias_bytes};
    int stage = warpgroup * steps % Tiles::stages;
    unsigned parity = warpgroup * steps / Tiles::stages & 1, fetched = 0;
    for (int tile = own + warpgroup * clusters; tile < count; tile += Tiles::warpgroups * clusters) {
      int const row = (tile / across * 2 + block) * Tiles::rows + warp % 4 * 16,
                column = tile % across * Tiles::columns;
      // Starts to fetch the epilogue's operands, which arrive while the products run.
      if constexpr (reads_pre<End>) {
        if (lane == 0) {
          wait_for_reads<0>();
          for (int i = 0; i < ProductStrips::count; ++i) fetch_strip(strip, pre_map, row, column, i);
        }
      }
      __syncwarp();
      if (tile != own) await_turn(warpgroup);
      if (adds_bias<End> && warp % 4 == 0 && lane < Tiles::columns / 8) {
        bool const exists = bias && column + 8 * lane < columns;
        copy_16_bytes(strip.bias + 16 * lane, exists ? bias + column + 8 * lane : bias, exists);
      }
      int last = stage;
      auto const step = [&](auto is_first) {
        constexpr bool first = decltype(is_first)::value;
        wait_at(full + stage, parity);
        std::uint64_t const a = a0 + static_cast<unsigned>(stage * Tiles::bytes >> 4),
                            b = b0 + static_cast<unsigned>(stage * Tiles::bytes >> 4);
        begin_products();
        if constexpr (first)
#pragma unroll
          for (int side = 0; side < 2; ++side)
            multiply_192<T, Rows, false>(sums[side], a + (side * 64 * 128 >> 4), b);
#pragma unroll
        for (int i = first; i < Tiles::depth / 16; ++i)
#pragma unroll
          for (int side = 0; side < 2; ++side)
            multiply_192<T, Rows, true>(sums[side], a + (side * 64 * 128 + i * 32 >> 4),
                                        b + ((Rows ? i * 16 * 128 : i * 32) >> 4));
        commit_products();
        if constexpr (!first) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (lane < 2) arrive_at(empty + last, static_cast<unsigned>(lane));
          last = stage;
        }
        if (++stage == Tiles::stages) stage = 0, parity ^= 1;
      };
      step(std::true_type{});
      for (int k = 1; k < steps; ++k) step(std::false_type{});
      if (tile + clusters < count) give_turn(1 - warpgroup);
      wait_for_products<0>(sums[0]);
      wait_for_products<0>(sums[1]);
      if (lane < 2) arrive_at(empty + last, static_cast<unsigned>(lane));
      // skips the stages of the ring that the other warpgroup's tile uses next
      parity ^= (stage + steps) / Tiles::stages & 1;
      stage = (stage + steps) % Tiles::stages;
      if constexpr (!reads_pre<End>) await_strips<0>();
      if constexpr (adds_bias<End>) {
        commit_copies();
        wait_for_copies<0>();
        sync_warpgroup(warpgroup + 2);
      }
      ColumnSums column_sums;
      finish_tile<T, End>(sums, scale, strip, y_map, pre_map, row, column, fetched++, column_sums);
      if constexpr (sums_columns<End>) {
        int const block_row = (tile / across * 2 + block) * Tiles::rows;
        if (partials && block_row < rows)
          store_column_sums<4>(
              column_sums, lane, strip, 2, warpgroup + 3, min(columns - column, Tiles::columns),
              partials + static_cast<std::int64_t>(block_row / Tiles::rows) * columns + column);
      }
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  __syncwarp();
  sync_cluster();  // the other block possibly still arrives at barriers of this block
#endif
}

#undef TESSERA_CLUSTER

/// Returns the number of multiprocessors of the current device, or 0 if the query fails.
inline int processors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

/// Whether a product with an epilogue is faster on this kernel than on cuBLASLt with a separate pass for the
/// epilogue. The product needs enough tiles, so that the epilogue of one tile overlaps with the products of
/// another. It must also leave few columns of its tiles unused. The limits were measured on an H200. Very
/// large widths and depths are excluded, because cuBLASLt was as fast for them as this kernel.
inline bool suits_warpgroups(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  std::int64_t const across = (columns + ProductTiles::columns - 1) / ProductTiles::columns,
                     pairs = (rows + 2 * ProductTiles::rows - 1) / (2 * ProductTiles::rows);
  int const count = processors();
  return count > 1 && pairs * across >= count && 13 * columns >= 12 * across * ProductTiles::columns &&
         depth >= 256 && columns <= 1 << 14 && depth <= 1 << 14;
}

/// Enqueues the product. Returns false, without enqueueing anything, if it cannot run: the rows of all
/// matrices must begin at multiples of 16 bytes, and the GPU must be a Hopper. Costs a launch and the
/// description of four matrices. The sums run over the depth in order, 16 at a time. They have the same bits
/// as cuBLASLt's sums if cuBLASLt does not split the depth.
template <class T, bool Rows, ProductEnd End>
bool run_finished_product(cudaStream_t stream, T const* a, T const* b, FinishedProduct<T> const& p) {
  using Tiles = ProductTiles;
  constexpr std::int64_t most = (1LL << 31) - 256;  // a copy's coordinates are 32 bits
  T* const pre = End == ProductEnd::bias ? p.y : p.pre;
  CUtensorMap a_map, b_map, y_map, pre_map;
  auto* const kernel = finished_product<T, Rows, End>;
  bool const runs =
      p.rows > 0 && p.columns > 0 && p.depth > 0 && p.rows < most && p.columns < most && p.depth < most &&
      p.columns % 8 == 0 && p.depth % 8 == 0 && takes_packs<8>(a, b, p.y, pre) &&
      (!p.bias || takes_packs<8>(p.bias)) && (!p.partials || takes_packs<2>(p.partials)) &&
      has_warpgroups() && make_tensor_map(a_map, a, p.rows, p.depth, Tiles::rows) &&
      (Rows ? make_tensor_map(b_map, b, p.depth, p.columns, Tiles::depth / 2)
            : make_tensor_map(b_map, b, p.columns, p.depth, Tiles::columns / 2)) &&
      make_tensor_map(y_map, p.y, p.rows, p.columns, 16) &&
      make_tensor_map(pre_map, pre, p.rows, p.columns, 16) &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::shared_bytes) ==
          cudaSuccess;
  if (!runs) {
    (void)cudaGetLastError();  // so the next attempt does not report this error
    return false;
  }
  std::int64_t const pairs = (p.rows + 2 * Tiles::rows - 1) / (2 * Tiles::rows) *
                             ((p.columns + Tiles::columns - 1) / Tiles::columns);
  kernel<<<static_cast<unsigned>(2 * std::min<std::int64_t>(processors() / 2, pairs)), Tiles::threads,
           Tiles::shared_bytes, stream>>>(a_map, b_map, y_map, pre_map, static_cast<int>(p.rows),
                                          static_cast<int>(p.columns), static_cast<int>(p.depth), p.bias,
                                          p.scale, p.partials);
  return true;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
