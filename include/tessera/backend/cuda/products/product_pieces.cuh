// SPDX-License-Identifier: Apache-2.0
// Provides products of fp32 matrices from bf16 pieces on Hopper's warpgroups. pieces.hpp explains pieces and
// terms: a piece is a bf16 summand of a value, and a term is a product of two pieces. The pieces of a matrix
// that have the same index form a plane, and each plane is in memory once. The copies into shared memory
// visit the terms in order. cuBLASLt would need one copy of a piece per term.
//
// Thread blocks, copies and the store of a tile work as in product_warpgroups.cuh, with one difference: the
// two warpgroups of a block compute the two halves of one tile. So a thread has enough registers for two sums
// per value. The second sum is for accuracy: tensor cores truncate what they add to a sum, and they truncate
// more if the sum is larger. So every few steps the tensor cores' sum is added to the second sum and starts
// again. If the tiles do not divide evenly among the clusters, several clusters share the steps of the last
// tiles over the depth (PieceWork). A second kernel then adds the partial sums of each tile in order. This
// code must be compiled for compute capability 9.0a.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_copies.cuh"
#include "tessera/backend/cuda/kernels/warpgroup.cuh"
#include "tessera/backend/cuda/products/pieces.hpp"
#include "tessera/backend/cuda/products/product_warpgroups.cuh"
#include "tessera/backend/cuda/runtime/device.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The planes of an operand, one for each of its `count` pieces, the largest piece first. Each plane is
/// (lines, width). Lines begin at multiples of 16 bytes.
struct PiecePlanes {
  bfloat16 const* data;
  std::int64_t lines, width, line_stride, plane_stride;
  int count;
};

/// The epilogue of a product. y and pre are (rows, columns) blocks of larger matrices, whose lines have
/// `stride` values. `partials` is a block of a matrix whose lines have `stride` values too.
struct PieceEnd : FinishedProduct<float> {
  std::int64_t stride;
};

struct PieceTiles : ProductTiles {
  static constexpr int strip_columns = 32;  // a strip has 32 fp32 columns and 16 rows
  static constexpr int panels = ProductTiles::columns / strip_columns;
  static constexpr int bias_bytes = ProductTiles::columns * 4;
  static constexpr int shared_bytes =
      ProductTiles::shared_bytes + warpgroups * (bias_bytes - ProductTiles::bias_bytes);
  // the bytes of the partial sums of a cluster's tile
  static constexpr int part_bytes = 2 * rows * ProductTiles::columns * 4;
  /// Returns after how many steps the tensor cores' sum is added to the second sum. Over so few steps, the
  /// truncation is smaller than fp32 rounding (six terms) or than the omitted terms (three terms).
  static __device__ constexpr int sum_steps(int terms) { return terms == 6 ? 4 : 8; }
};

/// Starts to copy strip `i` of `pre` to shared memory, for a warp whose rows begin at (row, column). One lane
/// calls it.
__device__ __forceinline__ void fetch_piece_strip(ProductStrips const& own, CUtensorMap const& pre, int row,
                                                  int column, int i) {
  announce_bytes(own.arrived + i % ProductStrips::count, ProductStrips::bytes);
  copy_box(own.strip(i), pre, row, column + i * PieceTiles::strip_columns,
           own.arrived + i % ProductStrips::count);
}
/// Returns the address of this thread's pair of fp32 values in tile `n` of 8 columns of a strip. The pair is
/// in the upper 8 rows, or in the lower 8 rows if `lower` is 1.
__device__ __forceinline__ float2* pair_in_strip(unsigned char* strip, int n, int lower) {
  int const lane = threadIdx.x % 32, row = lane / 4, chunk = 2 * n + lane % 4 / 2;
  return reinterpret_cast<float2*>(strip + (row + 8 * lower) * 128 + ((chunk ^ row) * 16) + lane % 2 * 8);
}

/// Applies the epilogue to a warp's rows of a tile and stores the result. The rows begin at (row, column).
/// `fetched` is the number of tiles that the warp finished before; the parity of the strips' barriers depends
/// on it. `column_sums` receives the sums of the columns if the epilogue computes them. The loop is not
/// unrolled if the epilogue has much arithmetic.
template <ProductEnd End>
__device__ __forceinline__ void finish_pieces(float const (&sums)[24][4], float scale,
                                              ProductStrips const& own, CUtensorMap const& y,
                                              CUtensorMap const& pre, int row, int column, unsigned fetched,
                                              ColumnSums& column_sums) {
  static_assert(End != ProductEnd::gelu);  // a separate pass over the result is faster
  constexpr bool reads = reads_pre<End>, rolled = End == ProductEnd::gelu_derivative;
  constexpr int tiles = PieceTiles::strip_columns / 8, again = PieceTiles::panels - ProductStrips::count;
  int const lane = threadIdx.x % 32;
#pragma unroll(rolled ? 1 : PieceTiles::panels)
  for (int i = 0; i < PieceTiles::panels; ++i) {
    unsigned char* const strip = own.strip(i);
    int const which = i % ProductStrips::count;
    float2 values[tiles][2], totals[tiles];
#pragma unroll
    for (int j = 0; j < PieceTiles::panels; ++j)
      if (i == j)
#pragma unroll
        for (int n = 0; n < tiles; ++n)
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            float const* const sum = sums[tiles * j + n] + 2 * k;
            values[n][k] = {sum[0], sum[1]};
          }
    if constexpr (reads)
      wait_at(own.arrived + which, which < again ? i / ProductStrips::count : fetched & 1);
    else if (i >= ProductStrips::count)
      await_strips<ProductStrips::count - 1>();
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      float2 bias{};
      if constexpr (adds_bias<End>)
        bias = *reinterpret_cast<float2 const*>(own.bias +
                                                (i * PieceTiles::strip_columns + n * 8 + lane % 4 * 2) * 4);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float2& value = values[n][k];
        float2* const to = pair_in_strip(strip, n, k);
        if constexpr (adds_bias<End>) {
          value = {detail::multiply_add(value.x, scale, bias.x),
                   detail::multiply_add(value.y, scale, bias.y)};
          if constexpr (reads) value = {detail::add(value.x, to->x), detail::add(value.y, to->y)};
        } else {
          value = {detail::multiply(detail::multiply(value.x, scale), gelu_derivative<float>(to->x)),
                   detail::multiply(detail::multiply(value.y, scale), gelu_derivative<float>(to->y))};
        }
        *to = value;
        if constexpr (sums_columns<End>)
          totals[n] =
              k == 0 ? value : float2{detail::add(totals[n].x, value.x), detail::add(totals[n].y, value.y)};
      }
    }
    show_to_products();
    __syncwarp();
    if (lane == 0) {
      store_box(y, strip, row, column + i * PieceTiles::strip_columns);
      commit_stores();
      if (reads && i > 0 && i - 1 < again) {
        wait_for_reads<1>();
        fetch_piece_strip(own, pre, row, column, i - 1 + ProductStrips::count);
      }
    }
    if constexpr (sums_columns<End>) {
      float2 sum = sum_over_lanes(totals);
      sum = {detail::add(sum.x, __shfl_xor_sync(~0u, sum.x, 4)),
             detail::add(sum.y, __shfl_xor_sync(~0u, sum.y, 4))};
#pragma unroll
      for (int p = 0; p < StripAt::panels; ++p)
        if (i == 2 * p + lane / 4 % 2) column_sums[p] = sum;
    }
  }
}
/// After finish_pieces, a lane has the sums of one pair of columns of each panel of 64 columns. Returns the
/// index (0 to 31) of this pair in the panel.
__device__ __forceinline__ int pair_of_sums() {
  int const lane = threadIdx.x % 32;
  return lane / 4 % 2 * 16 + lane / 8 * 4 + lane % 4;
}

// Compilers reject a cluster size for GPUs without clusters.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TESSERA_CLUSTER __cluster_dims__(2)
#else
#define TESSERA_CLUSTER
#endif
/// Computes a product of planes. a is (rows, depth) or, with Columns, (depth, rows). b is (columns, depth)
/// or, with Rows, (depth, columns). `work` assigns the tiles to clusters. The maps describe the TMA copies of
/// a, b, y, pre and the partial sums of shared tiles.
template <bool Columns, bool Rows, ProductEnd End>
__global__ TESSERA_CLUSTER __launch_bounds__(PieceTiles::threads, 1) void product_of_pieces(
    __grid_constant__ CUtensorMap const a_map, __grid_constant__ CUtensorMap const b_map,
    __grid_constant__ CUtensorMap const y_map, __grid_constant__ CUtensorMap const pre_map,
    __grid_constant__ CUtensorMap const parts_map, __grid_constant__ PieceWork const work, int terms,
    int rows, int columns, float const* bias, float scale, float* partials, std::int64_t partials_stride) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Tiles = PieceTiles;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  unsigned char* const strips = shared + Tiles::stages * Tiles::bytes;
  unsigned char* const biases = strips + Tiles::warps * Tiles::strips * Tiles::strip_bytes;
  auto* const full = reinterpret_cast<std::uint64_t*>(biases + Tiles::warpgroups * Tiles::bias_bytes);
  std::uint64_t *const empty = full + Tiles::stages, *const arrived = empty + Tiles::stages;

  int const warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;  // warpgroup -1 copies operands
  int const block = static_cast<int>(block_in_cluster()), cluster = static_cast<int>(blockIdx.x) / 2;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tiles::stages; ++stage) {
      make_barrier(full + stage, 1);
      make_barrier(empty + stage, 16);  // for the eight warps that read the stage, in both blocks
    }
    for (int i = 0; i < Tiles::strips * Tiles::warps; ++i) make_barrier(arrived + i, 1);
    show_barriers();
  }
  __syncwarp();
  sync_cluster();
  await_kernel_before();
  let_next_kernel_begin();

  if (warpgroup < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int const deep = work.steps / terms;  // the number of steps of each term
      int stage = 0;
      unsigned parity = 1;
      work.for_parts(cluster, [&](int tile, int from, int to, bool) {
        int const row = work.down_of(tile) * 2 * PieceTiles::rows + block * Tiles::rows,
                  column = work.across_of(tile) * PieceTiles::columns;
        int term = from / deep, k = (from - term * deep) * Tiles::depth;
        int left = piece_of(terms, true, term), right = piece_of(terms, false, term);
        for (int step = from; step < to; ++step) {
          wait_at(empty + stage, parity);
          announce_bytes(full + stage, Tiles::bytes);
          unsigned char* const a = shared + stage * Tiles::bytes;
          if constexpr (Columns) {
#pragma unroll
            for (int panel = 0; panel < Tiles::rows / 64; ++panel)
              copy_box(a + panel * Tiles::depth * 128, a_map, left, k, row + 64 * panel, full + stage);
          } else {
            copy_box(a, a_map, left, row, k, full + stage);
          }
          unsigned char* const b = a + Tiles::a_bytes;
          if constexpr (Rows) {
            constexpr int half = Tiles::depth / 2;
#pragma unroll
            for (int panel = 0; panel < Tiles::columns / 64; ++panel)
              copy_box_to(3, b + (panel * Tiles::depth + half * block) * 128, b_map, right, k + half * block,
                          column + 64 * panel, full + stage);
          } else {
            constexpr int half = Tiles::columns / 2;
            copy_box_to(3, b + half * block * 128, b_map, right, column + half * block, k, full + stage);
          }
          if (++stage == Tiles::stages) stage = 0, parity ^= 1;
          k += Tiles::depth;
          if (k == deep * Tiles::depth && ++term < terms) {
            k = 0;
            left = piece_of(terms, true, term);
            right = piece_of(terms, false, term);
          }
        }
      });
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float totals[24][4];
    // With Rows, a descriptor also needs the distance from one panel of 64 columns to the next. Other
    // products ignore this field.
    constexpr std::uint64_t panel = Rows ? std::uint64_t{(Tiles::depth * 128 >> 4) - 1} << 16 : 0;
    std::uint64_t const a0 = WarpgroupRows<bfloat16, 64>::describe(shared + warpgroup * 64 * 128),
                        b0 = WarpgroupRows<bfloat16, 64>::describe(shared + Tiles::a_bytes) + panel;
    int const lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32 - 4;
    ProductStrips const strip{strips + warp * Tiles::strips * Tiles::strip_bytes,
                              arrived + Tiles::strips * warp, biases + warpgroup * Tiles::bias_bytes};
    int stage = 0;
    unsigned parity = 0, fetched = 0;
    bool waits = warpgroup > 0;  // whether the next step waits for its turn on the tensor cores
    work.for_parts(cluster, [&](int tile, int from, int to, bool is_last) {
      bool const all_steps = from == 0 && to == work.steps;
      int const row = work.down_of(tile) * 2 * Tiles::rows, column = work.across_of(tile) * Tiles::columns,
                own_row = block * Tiles::rows + warp * 16;
      // Starts to fetch the epilogue's operands, which arrive while the products run.
      if constexpr (reads_pre<End>) {
        if (lane == 0) {
          wait_for_reads<0>();
          for (int i = 0; i < ProductStrips::count; ++i)
            fetch_piece_strip(strip, pre_map, row + own_row, column, i);
          for (int i = ProductStrips::count; i < Tiles::panels; ++i)
            prefetch_box(pre_map, row + own_row, column + i * Tiles::strip_columns);
        }
        __syncwarp();
      }
      // all warps have read the bias of the previous tile
      if constexpr (adds_bias<End>) sync_warpgroup(warpgroup + 2);
      if (int const four = static_cast<int>(threadIdx.x) % 128 * 4; adds_bias<End> && four < Tiles::columns) {
        bool const exists = all_steps && bias && column + four < columns;
        copy_16_bytes(strip.bias + 4 * four, exists ? bias + column + four : bias, exists);
      }
#pragma unroll
      for (int n = 0; n < 24; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[n][i] = 0;
      float sums[24][4];  // the tensor cores' sums of the last few steps
      auto const step = [&](auto is_first, bool gives_turn) {
        constexpr bool first = decltype(is_first)::value;
        wait_at(full + stage, parity);
        std::uint64_t const a = a0 + static_cast<unsigned>(stage * Tiles::bytes >> 4),
                            b = b0 + static_cast<unsigned>(stage * Tiles::bytes >> 4);
        if (waits) await_turn(warpgroup);
        waits = true;
        begin_products();
        if constexpr (first) multiply_192<bfloat16, Rows, false, Columns>(sums, a, b);
#pragma unroll
        for (int i = first; i < Tiles::depth / 16; ++i)
          multiply_192<bfloat16, Rows, true, Columns>(sums, a + (i * (Columns ? 16 * 128 : 32) >> 4),
                                                      b + ((Rows ? i * 16 * 128 : i * 32) >> 4));
        commit_products();
        if (gives_turn) give_turn(1 - warpgroup);
        wait_for_products<0>(sums);
        if (lane < 2) arrive_at(empty + stage, static_cast<unsigned>(lane));
        if (++stage == Tiles::stages) stage = 0, parity ^= 1;
      };
      auto const goes_on = [&](int k) { return warpgroup == 0 || !is_last || k + 1 < to; };
      for (int k = from; k < to;) {
        int const until = min(k + Tiles::sum_steps(terms), to);
        step(std::true_type{}, goes_on(k));
        for (++k; k < until; ++k) step(std::false_type{}, goes_on(k));
#pragma unroll
        for (int n = 0; n < 24; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) totals[n][i] = detail::add(totals[n][i], sums[n][i]);
      }

      if constexpr (!reads_pre<End>) await_strips<0>();
      if constexpr (adds_bias<End>) {
        commit_copies();
        wait_for_copies<0>();
        sync_warpgroup(warpgroup + 2);
      }
      ColumnSums column_sums;
      bool const part = End == ProductEnd::bias && !all_steps;  // part of a shared tile: stored unscaled
      finish_pieces<End>(totals, part ? 1.0f : scale, strip, part ? parts_map : y_map, pre_map,
                         (part ? work.place(cluster, tile, from == 0) * 2 * Tiles::rows : row) + own_row,
                         part ? 0 : column, fetched++, column_sums);
      if constexpr (sums_columns<End>) {
        int const block_row = row + block * Tiles::rows;
        if (partials && block_row < rows)
          store_column_sums<8>(column_sums, pair_of_sums(), strip, 2, 5,
                               min(columns - column, Tiles::columns),
                               partials + block_row / Tiles::rows * partials_stride + column);
      }
    });
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  __syncwarp();
  sync_cluster();  // the other block possibly still arrives at barriers of this block
#endif
}
#undef TESSERA_CLUSTER

/// Adds the partial sums of each tile that several clusters shared, in order, and applies the epilogue
/// ProductEnd::bias or residual. A thread block processes 16 rows of a tile.
static __global__ __launch_bounds__(256) void finish_parts(__grid_constant__ PieceEnd const end,
                                                           __grid_constant__ PieceWork const work,
                                                           float const* parts) {
  await_kernel_before();
  constexpr int groups = PieceTiles::columns / 4;
  int const tile = work.unshared + static_cast<int>(blockIdx.x);
  int const begin = static_cast<int>(blockIdx.x) * work.steps;
  int const first = work.own > 0 ? 0 : work.cluster_of(begin),
            last = work.own > 0 ? 1 : work.cluster_of(begin + work.steps - 1);
  if (first == last) return;  // one cluster ran the whole tile and stored its result
  auto const add = [](Pack<float, 4>& sum, Pack<float, 4> const& more) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum.value[k] = detail::add(sum.value[k], more.value[k]);
  };
  for (int i = static_cast<int>(threadIdx.x); i < 16 * groups; i += 256) {
    int const r = static_cast<int>(blockIdx.y) * 16 + i / groups, c = i % groups * 4;
    int const row = work.down_of(tile) * 2 * PieceTiles::rows + r,
              column = work.across_of(tile) * PieceTiles::columns + c;
    if (row >= end.rows || column >= end.columns) continue;
    auto const part = [&](int cluster, bool begins_tile) {
      int const line = work.place(cluster, tile, begins_tile) * 2 * PieceTiles::rows + r;
      return load<4, true>(parts + std::int64_t{line} * PieceTiles::columns + c, 4);
    };
    Pack<float, 4> sum = part(first, true);
    for (int cluster = first + 1; cluster <= last; ++cluster) add(sum, part(cluster, false));
    Pack<float, 4> const bias = end.bias ? load<4, true>(end.bias + column, 4) : Pack<float, 4>{};
#pragma unroll
    for (int k = 0; k < 4; ++k) sum.value[k] = detail::multiply_add(sum.value[k], end.scale, bias.value[k]);
    std::int64_t const at = row * end.stride + column;
    if (end.pre) add(sum, load<4, true>(end.pre + at, 4));
    store<4, true>(end.y + at, sum, 4);
  }
}

/// Fills `map` for TMA copies of boxes of a plane. A box has `box_rows` lines of 128 bytes. Values outside a
/// plane are zero. Returns false if the driver cannot describe the planes.
inline bool make_plane_map(CUtensorMap& map, PiecePlanes const& planes, unsigned box_rows) {
  return make_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, planes.data, 2,
                         {planes.width, planes.lines, planes.count},
                         {planes.line_stride, planes.plane_stride}, {64, box_rows, 1});
}
/// Fills `map` for TMA copies of strips of an fp32 matrix. A strip has 16 rows and 32 columns. Returns false
/// if the driver cannot describe the matrix.
inline bool make_strip_map(CUtensorMap& map, float const* matrix, std::int64_t rows, std::int64_t columns,
                           std::int64_t stride) {
  return make_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, matrix, 4, {columns, rows, 1},
                         {stride, rows * stride}, {PieceTiles::strip_columns, 16, 1});
}

/// Returns how the tiles of a product are assigned to the current GPU's clusters. `bytes` is the size of the
/// memory for partial sums.
inline PieceWork work_of_pieces(std::int64_t rows, std::int64_t columns, std::int64_t depth, int terms,
                                std::size_t bytes) {
  return share_pieces((rows + 2 * PieceTiles::rows - 1) / (2 * PieceTiles::rows),
                      (columns + PieceTiles::columns - 1) / PieceTiles::columns,
                      terms * ((depth + PieceTiles::depth - 1) / PieceTiles::depth),
                      std::max(1, processors() / 2), bytes / PieceTiles::part_bytes);
}

/// Whether a product, including the split into pieces, is faster on this kernel than on cuBLASLt. Its tiles
/// must keep all clusters busy and have little padding. `bytes` is the size of the memory for partial sums.
/// Pass 0 for an epilogue that cannot share tiles among clusters. With a residual, sharing helps only if all
/// tiles are shared.
inline bool suits_planes(std::int64_t rows, std::int64_t columns, std::int64_t depth, int terms,
                         std::size_t bytes, bool residual = false) {
  if (!has_warpgroups()) return false;
  PieceWork const work = work_of_pieces(rows, columns, depth, terms, bytes);
  std::int64_t const all = std::max(1, processors() / 2), tiles = std::int64_t{work.down} * work.across,
                     waves = (tiles + all - 1) / all;
  bool const busy = (work.shared() > 0 && !(residual && work.unshared > 0)) || 10 * tiles >= 9 * waves * all;
  return busy && 16 * rows * columns >= 3 * tiles * PieceTiles::part_bytes;
}

/// Whether finish_parts adds the residual end.pre. A tile is split if several thread blocks each compute a
/// part of its depth. finish_parts runs only on split tiles, so it can add the residual only if all tiles are
/// split.
inline bool adds_to_parts(PieceEnd const& end, int terms, std::size_t bytes) {
  PieceWork const work = work_of_pieces(end.rows, end.columns, end.depth, terms, bytes);
  return work.shared() > 0 && work.unshared == 0;
}

/// A product of planes. a is (rows, depth) or, with Columns, (depth, rows). b is (columns, depth) or, with
/// Rows, (depth, columns). The tensor cores sum over the terms in order, and within a term over the depth in
/// order, 16 at a time. After every few steps their sum is added to a total in fp32 arithmetic.
template <bool Columns, bool Rows, ProductEnd End>
class PieceProduct {
  using Tiles = PieceTiles;

 public:
  /// Prepares the product. Returns false if it cannot run: lines of y, pre and bias must begin at multiples
  /// of 16 bytes. `memory` is the memory for partial sums.
  bool describe(PiecePlanes const& a, PiecePlanes const& b, int terms, PieceEnd const& end,
                std::span<std::byte> memory) {
    constexpr std::int64_t most = (1LL << 31) - 256;  // a copy's coordinates are 32 bits
    if (end.rows >= most || end.columns >= most || end.depth >= most / terms || end.columns % 4 != 0 ||
        end.stride % 4 != 0 || !takes_packs<4>(end.y, end.pre, end.bias) || !takes_packs<2>(end.partials))
      return false;
    terms_ = terms;
    end_ = end;
    work_ =
        work_of_pieces(end.rows, end.columns, end.depth, terms, End == ProductEnd::bias ? memory.size() : 0);
    bool const shared = work_.shared() > 0, reads = End != ProductEnd::bias;
    parts_ = shared ? reinterpret_cast<float*>(memory.data()) : nullptr;
    bool const runs =
        (std::int64_t{work_.down} * work_.across + work_.clusters) * work_.steps < most && has_warpgroups() &&
        make_plane_map(a_map_, a, Columns ? Tiles::depth : Tiles::rows) &&
        make_plane_map(b_map_, b, Rows ? Tiles::depth / 2 : Tiles::columns / 2) &&
        make_strip_map(y_map_, end.y, end.rows, end.columns, end.stride) &&
        make_strip_map(pre_map_, reads ? end.pre : end.y, end.rows, end.columns, end.stride) &&
        (!shared || make_strip_map(parts_map_, parts_, std::int64_t{work_.places()} * 2 * Tiles::rows,
                                   Tiles::columns, Tiles::columns)) &&
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::shared_bytes) ==
            cudaSuccess;
    if (!shared) parts_map_ = y_map_;     // unused
    if (!runs) (void)cudaGetLastError();  // so the next attempt does not report this error
    return runs;
  }

  /// Enqueues the product. Costs one launch, or two if clusters share tiles.
  void run(cudaStream_t stream) const {
    launch_early(kernel, dim3(static_cast<unsigned>(2 * work_.clusters)), Tiles::threads, Tiles::shared_bytes,
                 stream, a_map_, b_map_, y_map_, pre_map_, parts_map_, work_, terms_,
                 static_cast<int>(end_.rows), static_cast<int>(end_.columns), end_.bias, end_.scale,
                 end_.partials, end_.stride);
    if (parts_)
      launch_early(finish_parts, dim3(static_cast<unsigned>(work_.shared()), 2 * Tiles::rows / 16), 256, 0,
                   stream, end_, work_, parts_);
  }

 private:
  static constexpr auto* kernel = product_of_pieces<Columns, Rows, End>;
  CUtensorMap a_map_, b_map_, y_map_, pre_map_, parts_map_;
  PieceEnd end_;
  PieceWork work_;
  int terms_;
  float* parts_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
