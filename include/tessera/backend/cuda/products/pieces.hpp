// SPDX-License-Identifier: Apache-2.0
// Products of fp32 values by pieces: what the pieces are, in which order they meet, and in which blocks a
// product is taken so that they have room. Needs no CUDA.
//
// a = a1 + a2 + a3, each a bfloat16, so that a product of fp32 matrices is one product of bfloat16 matrices
// over a depth six times as long, [a3 a2 a1 a2 a1 a1] [b1 b2 b3 b1 b2 b1], with fp32 sums that begin with the
// smallest terms. A library's product needs these matrices in memory, of a copy a term; one that visits the
// terms itself (product_pieces.cuh) needs each piece once. What is left out is at most 2^-23 of |a||b| but
// for values near the largest; with the last three terms alone, 3 x 2^-16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The pieces of a value, the largest first. Their sum is the value where the last one is no less than the
/// smallest bfloat16. An infinity and NaN are their first piece; the others are 0 or NaN.
struct Pieces {
  bfloat16 value[3];
};
TESSERA_HOST_DEVICE constexpr Pieces pieces_of(float value) {
  constexpr std::uint16_t infinity = 0x7f80;
  Pieces pieces{};
  std::uint32_t const bits = v0::detail::bit_cast<std::uint32_t>(value);
  bool const infinite = (bits & 0x7fffffffu) == 0x7f800000u;
  pieces.value[0] = bfloat16(value);
  // What rounds up beyond the largest is cut, and so is the rest, lest a sum of pieces does so on its way.
  bool const cut = !infinite && (pieces.value[0].bits & 0x7fffu) == infinity;
  if (cut) pieces.value[0].bits = static_cast<std::uint16_t>(bits >> 16);
  float const rest = infinite ? 0.0f : value - static_cast<float>(pieces.value[0]);
  pieces.value[1] = bfloat16(rest);
  if (cut) pieces.value[1].bits = static_cast<std::uint16_t>(v0::detail::bit_cast<std::uint32_t>(rest) >> 16);
  pieces.value[2] = bfloat16(rest - static_cast<float>(pieces.value[1]));
  return pieces;
}

/// Which piece of the left or of the right operand stands in a term, of three or six. A digit a term, the
/// first one last; no table, since kernels would keep that in local memory.
TESSERA_HOST_DEVICE constexpr int piece_of(int terms, bool left, int term) {
  constexpr unsigned lefts = 0x001012, rights = 0x010210;
  return static_cast<int>((left ? lefts : rights) >> 4 * (6 - terms + term) & 3);
}

/// How many pieces of an operand stand in so many terms.
constexpr int pieces_in(int terms) { return terms == 6 ? 3 : 2; }

/// Extents of pieces are multiples of this, by zeros: rows of 16 bytes.
inline constexpr std::int64_t piece_unit = 8;
constexpr std::int64_t in_piece_units(std::int64_t extent) {
  return (extent + piece_unit - 1) / piece_unit * piece_unit;
}

/// The largest blocks of a product: `rows` and `columns` of the result, over so much of the depth. Blocks go
/// over the depth, in it over the operand that stays, in it over the other: the pieces of the one are formed
/// once, of the other once for each block of the first. `rows` is 0 where no block has room.
struct PieceBlocks {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool left_stays = true;
};

/// Bytes of so many pieces, or copies of pieces, of each value of an operand's block.
constexpr std::size_t piece_bytes_of(std::int64_t extent, std::int64_t depth, int copies) {
  return static_cast<std::size_t>(in_piece_units(extent) * in_piece_units(depth) * copies) * sizeof(bfloat16);
}

/// The deepest block of a library's product of so many terms. Tensor cores cut what they add to a sum: over
/// 3072 sums of six are three times as far from exact ones as fp32 arithmetic's, over 512 about as far. What
/// three leave out is as much as is cut over some thousands.
constexpr std::int64_t deepest_sum(int terms) { return terms == 6 ? 512 : 4096; }

/// The blocks that take the least time, given so many bytes for pieces, `copies` of each value, and none
/// deeper than `deepest`: a block more over the depth reads and writes the result again, one of the operand
/// that stays forms the other's pieces again, each costs some microseconds, and a small result leaves
/// multiprocessors idle. A function of its arguments alone, since the bits of a result follow from it.
constexpr PieceBlocks piece_blocks(std::int64_t rows, std::int64_t columns, std::int64_t depth,
                                   std::int64_t deepest, int terms, int copies, std::size_t bytes) {
  // In bytes of memory, of which a Hopper GPU moves one in the time of 175 operations of its tensor cores.
  constexpr double block_cost = 16 << 20, operation_cost = 1.0 / 175;
  constexpr std::int64_t busy = 2 << 20;  // values of a result that is enough for all multiprocessors
  PieceBlocks best;
  double least = 0;
  std::int64_t const fewest = std::max<std::int64_t>(1, (depth + deepest - 1) / deepest);
  for (std::int64_t parts = fewest; rows > 0 && columns > 0 && depth > 0; parts += 1 + parts / 8) {
    std::int64_t const deep = in_piece_units((depth + parts - 1) / parts), slices = (depth + deep - 1) / deep;
    std::int64_t const room = static_cast<std::int64_t>(bytes / sizeof(bfloat16)) / (deep * copies) /
                              piece_unit * piece_unit;  // rows and columns
    std::int64_t blocks = 0;
    for (bool const left_stays : {true, false}) {
      std::int64_t const stay = left_stays ? rows : columns, move = left_stays ? columns : rows;
      std::int64_t const moving = std::min(in_piece_units(move), in_piece_units(room / 4));
      std::int64_t const most = std::min(in_piece_units(stay), room - moving);
      if (most < piece_unit) continue;
      std::int64_t const turns = (stay + most - 1) / most, held = in_piece_units((stay + turns - 1) / turns);
      std::int64_t const widest = std::min(in_piece_units(move), room - held),
                         passes = (move + widest - 1) / widest,
                         passing = in_piece_units((move + passes - 1) / passes);
      blocks = turns * passes;
      double const cost = 8.0 * static_cast<double>(slices - 1) * static_cast<double>(rows * columns) +
                          (4.0 + 2.0 * copies) * static_cast<double>(depth * (stay + turns * move)) +
                          (block_cost + operation_cost * 2.0 * terms * static_cast<double>(deep) *
                                            static_cast<double>(std::max(busy, held * passing))) *
                              static_cast<double>(slices * blocks);
      if (best.rows > 0 && cost >= least) continue;
      least = cost;
      best = left_stays ? PieceBlocks{held, passing, deep, true} : PieceBlocks{passing, held, deep, false};
    }
    if (blocks == 1 || deep == piece_unit) break;  // more cuts only cost
  }
  return best;
}

/// How the tiles of a product are numbered, and whose they are: the first `whole` go around so many clusters
/// of blocks, and the others are shared. Where there are few of these, each cluster has an even part of all
/// their steps over the depth. Where there are more, each has a cluster of its own for its first `own` steps,
/// and the other clusters have the rest of `each` tiles, so that all are at one depth.
struct PieceWork {
  int down, across, steps, clusters, whole;
  bool columns_first;  // neighbours in number have the same columns
  int own, each;       // 0 where parts are even

  TESSERA_HOST_DEVICE constexpr int shared() const { return down * across - whole; }
  TESSERA_HOST_DEVICE constexpr int down_of(int tile) const {
    return columns_first ? tile % down : tile / across;
  }
  TESSERA_HOST_DEVICE constexpr int across_of(int tile) const {
    return columns_first ? tile / down : tile % across;
  }
  /// Of the steps of shared tiles in even parts, where a cluster's begin, and whose one is.
  TESSERA_HOST_DEVICE constexpr int begin(int cluster) const {
    return static_cast<int>(std::int64_t{cluster} * shared() * steps / clusters);
  }
  TESSERA_HOST_DEVICE constexpr int cluster_of(int step) const {
    return static_cast<int>(((step + std::int64_t{1}) * clusters - 1) / (std::int64_t{shared()} * steps));
  }

  /// Visits a cluster's parts of tiles: which tile, its steps, and whether it is the last.
  template <class F>
  TESSERA_HOST_DEVICE constexpr void for_parts(int cluster, F&& visit) const {
    bool const rests = own > 0 && cluster >= shared();
    int const length = own == 0 ? steps : rests ? steps - own : own, first = rests ? own : 0;
    int at = own == 0 ? begin(cluster) : rests ? (cluster - shared()) * each * length : cluster * length;
    int end = own == 0 ? begin(cluster + 1) : at + (rests ? each : 1) * length;
    if (end > shared() * length) end = shared() * length;
    for (int next = cluster; next < whole || at < end;) {
      int tile = next, from = 0, to = steps;
      if (next < whole) {
        next += clusters;
      } else {
        int const within = at % length, rest = within + end - at;
        tile = whole + at / length;
        from = first + within;
        to = first + (rest < length ? rest : length);
        at += to - from;
      }
      visit(tile, from, to, next >= whole && at >= end);
    }
  }

  /// How many places sums of parts have, and which is that of a part: a cluster has at most two in even
  /// parts, one that begins within a tile, and one that begins with a tile and ends before it.
  TESSERA_HOST_DEVICE constexpr int places() const { return 2 * (own > 0 ? shared() : clusters); }
  TESSERA_HOST_DEVICE constexpr int place(int cluster, int tile, bool begins_tile) const {
    return 2 * (own > 0 ? tile - whole : cluster) + begins_tile;
  }
};

/// Shares so many tiles, of so many steps each, among clusters. Tiles that are left over are shared where
/// that is worth the writing and reading of parts, given places for so many parts.
constexpr PieceWork share_pieces(std::int64_t down, std::int64_t across, std::int64_t steps, int clusters,
                                 std::size_t places) {
  std::int64_t const tiles = down * across, rest = tiles % clusters;
  // Parts take about as long as so many steps of everybody's. Clusters that have even parts are at different
  // depths, so that less of what they read is still near: not where there are tiles for most of them.
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
  work.whole = static_cast<int>(shares ? tiles - rest : tiles);
  work.clusters = static_cast<int>(!shares          ? std::min<std::int64_t>(clusters, tiles)
                                   : even           ? clusters
                                   : work.whole > 0 ? clusters
                                                    : rest + (rest + each - 1) / each);
  work.columns_first = down <= across;
  work.own = static_cast<int>(shares ? own : 0);
  work.each = static_cast<int>(shares && !even ? each : 0);
  return work;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
