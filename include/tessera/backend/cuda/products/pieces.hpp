// SPDX-License-Identifier: Apache-2.0
// Defines how fp32 matrix products are computed from bfloat16 pieces: the pieces of a value, the order of
// their terms, and the blocks into which a product is cut so that its pieces fit in memory. Needs no CUDA.
//
// A value is split into three bfloat16 pieces: a = a1 + a2 + a3. The product of two values is computed as six
// products of pieces, the terms: a3 b1, a2 b2, a1 b3, a2 b1, a1 b2, a1 b1. So a product of fp32 matrices is
// one product of bfloat16 matrices over a depth six times as long, [a3 a2 a1 a2 a1 a1] [b1 b2 b3 b1 b2 b1].
// Its fp32 sums start with the smallest terms. cuBLASLt needs these long matrices in memory, with one copy of
// a piece per term. A kernel that visits the terms itself (product_pieces.cuh) needs each piece once. The
// omitted terms are at most 2^-23 of |a||b|, except for values near the largest float. The format bf16x3
// computes only the last three terms. It omits terms of at most 3 x 2^-16 of |a||b|.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The pieces of a value, the largest first. They sum to the value, unless the last piece is smaller than the
/// smallest bfloat16. For an infinity or NaN, the first piece is the value and the others are 0 or NaN.
struct Pieces {
  bfloat16 value[3];
};
TESSERA_HOST_DEVICE constexpr Pieces pieces_of(float value) {
  constexpr std::uint16_t infinity = 0x7f80;
  Pieces pieces{};
  std::uint32_t const bits = v0::detail::bit_cast<std::uint32_t>(value);
  bool const infinite = (bits & 0x7fffffffu) == 0x7f800000u;
  pieces.value[0] = bfloat16(value);
  // A value near the largest float would round up to infinity in bfloat16. Its first and second piece are
  // truncated instead.
  bool const cut = !infinite && (pieces.value[0].bits & 0x7fffu) == infinity;
  if (cut) pieces.value[0].bits = static_cast<std::uint16_t>(bits >> 16);
  float const rest = infinite ? 0.0f : value - static_cast<float>(pieces.value[0]);
  pieces.value[1] = bfloat16(rest);
  if (cut) pieces.value[1].bits = static_cast<std::uint16_t>(v0::detail::bit_cast<std::uint32_t>(rest) >> 16);
  pieces.value[2] = bfloat16(rest - static_cast<float>(pieces.value[1]));
  return pieces;
}

/// Returns the index (0 to 2) of the piece of the left or right operand that term number `term` uses. There
/// are three or six terms. Each hexadecimal digit of `lefts` and `rights` is such an index; the lowest digit
/// belongs to the first of six terms. An array would be slower, because kernels would keep it in local
/// memory.
TESSERA_HOST_DEVICE constexpr int piece_of(int terms, bool left, int term) {
  constexpr unsigned lefts = 0x001012, rights = 0x010210;
  return static_cast<int>((left ? lefts : rights) >> 4 * (6 - terms + term) & 3);
}

/// Returns the number of pieces of each operand that `terms` terms use.
constexpr int pieces_in(int terms) { return terms == 6 ? 3 : 2; }

/// Matrices of pieces are padded with zeros to multiples of piece_unit rows and columns, so that each row
/// begins at a multiple of 16 bytes.
inline constexpr std::int64_t piece_unit = 8;
constexpr std::int64_t in_piece_units(std::int64_t extent) {
  return (extent + piece_unit - 1) / piece_unit * piece_unit;
}

/// Says how a product is cut into blocks. A block computes up to `rows` x `columns` values of the result,
/// over a part of the product's depth of at most `depth`. Three nested loops visit the blocks. The outer loop
/// runs over the parts of the depth, the middle loop over blocks of one operand, and the inner loop over
/// blocks of the other operand. The pieces of the middle loop's operand stay in memory during the inner loop.
/// The pieces of the inner loop's operand are formed again for each block of the middle loop.
/// `left_stationary` means that the middle loop runs over the left operand. `rows` is 0 if no block fits.
struct PieceBlocks {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool left_stationary = true;
};

/// Returns the bytes of the pieces of an operand's block (extent, depth), with `copies` bfloat16 values for
/// each fp32 value.
constexpr std::size_t piece_bytes_of(std::int64_t extent, std::int64_t depth, int copies) {
  return static_cast<std::size_t>(in_piece_units(extent) * in_piece_units(depth) * copies) * sizeof(bfloat16);
}

/// Returns the maximum depth of a block on cuBLASLt. Tensor cores truncate when they add to a sum, so the
/// error grows with the depth. With six terms, the error is three times as large as in fp32 arithmetic over a
/// depth of 3072, and about equal over a depth of 512. With three terms, the omitted terms are as large as
/// the truncation over a depth of some thousands.
constexpr std::int64_t deepest_sum(int terms) { return terms == 6 ? 512 : 4096; }

/// Returns the block size with the lowest estimated time. Its pieces fit in `bytes` bytes, with `copies`
/// bfloat16 values per fp32 value, and its depth is at most `deepest`. The estimate has four parts. Each
/// further block over the depth reads and writes the result again. Each further block of the operand that
/// stays in memory forms the other operand's pieces again. Each block costs some microseconds. A small result
/// leaves multiprocessors idle. The result depends only on the arguments, because the bits of a product
/// depend on its blocks.
constexpr PieceBlocks piece_blocks(std::int64_t rows, std::int64_t columns, std::int64_t depth,
                                   std::int64_t deepest, int terms, int copies, std::size_t bytes) {
  // The unit of costs is the time in which a Hopper GPU moves one byte of memory. In this time it runs 175
  // tensor-core operations.
  constexpr double block_cost = 16 << 20, operation_cost = 1.0 / 175;
  constexpr std::int64_t busy = 2 << 20;  // the number of result values that occupies all multiprocessors
  PieceBlocks best;
  double lowest_cost = 0;
  std::int64_t const fewest = std::max<std::int64_t>(1, (depth + deepest - 1) / deepest);
  for (std::int64_t parts = fewest; rows > 0 && columns > 0 && depth > 0; parts += 1 + parts / 8) {
    std::int64_t const deep = in_piece_units((depth + parts - 1) / parts), slices = (depth + deep - 1) / deep;
    std::int64_t const capacity = static_cast<std::int64_t>(bytes / sizeof(bfloat16)) / (deep * copies) /
                                  piece_unit * piece_unit;  // the largest sum of rows and columns
    std::int64_t blocks = 0;
    for (bool const left_stationary : {true, false}) {
      std::int64_t const stationary_extent = left_stationary ? rows : columns,
                         streamed_extent = left_stationary ? columns : rows;
      std::int64_t const min_streamed =
          std::min(in_piece_units(streamed_extent), in_piece_units(capacity / 4));
      std::int64_t const max_held = std::min(in_piece_units(stationary_extent), capacity - min_streamed);
      if (max_held < piece_unit) continue;
      std::int64_t const blocks_down = (stationary_extent + max_held - 1) / max_held,
                         held = in_piece_units((stationary_extent + blocks_down - 1) / blocks_down);
      std::int64_t const widest = std::min(in_piece_units(streamed_extent), capacity - held),
                         passes = (streamed_extent + widest - 1) / widest,
                         streamed = in_piece_units((streamed_extent + passes - 1) / passes);
      blocks = blocks_down * passes;
      double const cost =
          8.0 * static_cast<double>(slices - 1) * static_cast<double>(rows * columns) +
          (4.0 + 2.0 * copies) *
              static_cast<double>(depth * (stationary_extent + blocks_down * streamed_extent)) +
          (block_cost + operation_cost * 2.0 * terms * static_cast<double>(deep) *
                            static_cast<double>(std::max(busy, held * streamed))) *
              static_cast<double>(slices * blocks);
      if (best.rows > 0 && cost >= lowest_cost) continue;
      lowest_cost = cost;
      best = left_stationary ? PieceBlocks{held, streamed, deep, true}
                             : PieceBlocks{streamed, held, deep, false};
    }
    if (blocks == 1 || deep == piece_unit) break;  // more parts of the depth only add cost
  }
  return best;
}

/// Assigns the tiles of a product to clusters of thread blocks. There are `down` x `across` tiles, numbered
/// from 0, and each has `steps` steps over the depth. The clusters compute the first `unshared` tiles in
/// turn, each tile by one cluster. Each remaining tile is shared: several clusters compute partial sums over
/// parts of its steps. There are two ways to share. If few tiles are shared, `own` is 0, and all clusters run
/// an equal number of consecutive steps of the shared tiles. If more tiles are shared, each of them has its
/// own cluster for its first `own` steps. Each further cluster runs the remaining steps of `each` tiles, so
/// that most clusters work at the same depth.
struct PieceWork {
  int down, across, steps, clusters, unshared;
  bool columns_first;  // consecutive tiles have the same columns
  int own, each;       // both 0 if all clusters run an equal number of steps

  TESSERA_HOST_DEVICE constexpr int shared() const { return down * across - unshared; }
  TESSERA_HOST_DEVICE constexpr int down_of(int tile) const {
    return columns_first ? tile % down : tile / across;
  }
  TESSERA_HOST_DEVICE constexpr int across_of(int tile) const {
    return columns_first ? tile / down : tile % across;
  }
  /// For `own` = 0: begin returns the first step of a cluster, and cluster_of returns the cluster of a step.
  /// Steps are counted over all shared tiles.
  TESSERA_HOST_DEVICE constexpr int begin(int cluster) const {
    return static_cast<int>(std::int64_t{cluster} * shared() * steps / clusters);
  }
  TESSERA_HOST_DEVICE constexpr int cluster_of(int step) const {
    return static_cast<int>(((step + std::int64_t{1}) * clusters - 1) / (std::int64_t{shared()} * steps));
  }

  /// Calls visit(tile, first step, end step, is last) for each tile, or part of a tile, that the cluster
  /// runs. `is last` is true in the last of these calls.
  template <class F>
  TESSERA_HOST_DEVICE constexpr void for_parts(int cluster, F&& visit) const {
    bool const runs_rest = own > 0 && cluster >= shared();
    int const length = own == 0 ? steps : runs_rest ? steps - own : own, first = runs_rest ? own : 0;
    int at = own == 0 ? begin(cluster) : runs_rest ? (cluster - shared()) * each * length : cluster * length;
    int end = own == 0 ? begin(cluster + 1) : at + (runs_rest ? each : 1) * length;
    if (end > shared() * length) end = shared() * length;
    for (int next = cluster; next < unshared || at < end;) {
      int tile = next, from = 0, to = steps;
      if (next < unshared) {
        next += clusters;
      } else {
        int const within = at % length, rest = within + end - at;
        tile = unshared + at / length;
        from = first + within;
        to = first + (rest < length ? rest : length);
        at += to - from;
      }
      visit(tile, from, to, next >= unshared && at >= end);
    }
  }

  /// A slot is memory for the partial sums of one part of a tile. places() returns the number of slots.
  /// place() returns the slot for the part of `tile` that `cluster` runs; `begins_tile` says whether the part
  /// begins with the tile's first step. If all clusters run an equal number of steps, each has at most two
  /// parts: one that begins within a tile, and one that begins with a tile and ends before the tile ends.
  TESSERA_HOST_DEVICE constexpr int places() const { return 2 * (own > 0 ? shared() : clusters); }
  TESSERA_HOST_DEVICE constexpr int place(int cluster, int tile, bool begins_tile) const {
    return 2 * (own > 0 ? tile - unshared : cluster) + begins_tile;
  }
};

/// Returns the assignment of `down` x `across` tiles of `steps` steps to clusters. Some tiles are left over
/// after each cluster has the same number of tiles. They are shared if this saves more time than the partial
/// sums cost, and if `places` slots for partial sums suffice.
constexpr PieceWork share_pieces(std::int64_t down, std::int64_t across, std::int64_t steps, int clusters,
                                 std::size_t places) {
  std::int64_t const tiles = down * across, rest = tiles % clusters;
  // Writing and reading partial sums costs as much time as about 32 steps of all clusters. `even` means that
  // all clusters run an equal number of steps. The clusters are then at different depths and find less data
  // in the cache. So `even` is used only if the tiles that are left over are fewer than two thirds of the
  // clusters.
  constexpr std::int64_t cost = 32;
  bool const even = 3 * rest < 2 * clusters;
  std::int64_t const others = clusters - rest, each = (rest + others - 1) / others,
                     own = even ? 0 : steps - steps / (each + 1);
  bool const shares = rest > 0 && rest * steps >= clusters &&
                      steps - (even ? rest * steps / clusters : own) > cost &&
                      static_cast<std::size_t>(2 * (even ? clusters : rest)) <= places;
  PieceWork work{};
  work.down = static_cast<int>(down);
  work.across = static_cast<int>(across);
  work.steps = static_cast<int>(steps);
  work.unshared = static_cast<int>(shares ? tiles - rest : tiles);
  work.clusters = static_cast<int>(!shares             ? std::min<std::int64_t>(clusters, tiles)
                                   : even              ? clusters
                                   : work.unshared > 0 ? clusters
                                                       : rest + (rest + each - 1) / each);
  work.columns_first = down <= across;
  work.own = static_cast<int>(shares ? own : 0);
  work.each = static_cast<int>(shares && !even ? each : 0);
  return work;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
