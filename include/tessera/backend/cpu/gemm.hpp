// SPDX-License-Identifier: Apache-2.0
// Provides the matrix product of the CPU backend, C = op(A) op(B), where op is an optional transposition. An
// epilogue, such as the addition of a bias, processes each tile of C while the tile is in the cache. Results
// are rounded once, at the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/tiles.hpp"
#include "tessera/detail/function_ref.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// The tile size of a matrix product. A tile is the part of the result that one task computes. Its size
/// depends only on the shape and the types. It does not affect results: the depth is divided into blocks, and
/// every element is summed in the order of k within a block, and then in the order of the blocks.
template <class S, class P = S>
struct Tiling {
  static constexpr std::int64_t depth_block = Microtile<S>::depth;
  static constexpr std::int64_t max_rows = 256;
  static constexpr std::int64_t max_cols = Microtile<S>::cols * 8;

  std::int64_t rows;
  std::int64_t cols;

  /// Chooses the tile size for a result C (m, n). The candidates are the sizes that divide C into equal tiles
  /// and fit into the scratch memory. Chooses the candidate with the least padding and packing. If C is big
  /// enough, prefers candidates that give at least eight tiles.
  Tiling(std::int64_t m, std::int64_t n) : rows(Microtile<P>::row_panel), cols(Packet<S>::size) {
    if (m == 0 || n == 0) return;  // no tiles
    std::int64_t const min_rows = parts(m, max_rows), min_cols = parts(n, max_cols);
    std::int64_t const min_tiles = m * n < 8 * small_tile ? 1 : 8;
    double best = std::numeric_limits<double>::infinity();
    for (std::int64_t down = min_rows; down < min_rows + 8; ++down)
      for (std::int64_t across = min_cols; across < min_cols + 8; ++across) {
        std::int64_t const tile_rows = round_up(parts(m, down), Microtile<P>::row_panel);
        std::int64_t const tile_cols = round_up(parts(n, across), across == 1 ? Packet<S>::size : col_step);
        if (tile_rows > max_rows || tile_cols > max_cols) continue;
        std::int64_t const tiles = parts(m, tile_rows) * parts(n, tile_cols);
        double const work = static_cast<double>(tiles * tile_rows * tile_cols) +
                            Microtile<P>::right_cost * static_cast<double>(parts(m, tile_rows) * n) +
                            Microtile<P>::left_cost * static_cast<double>(parts(n, tile_cols) * m);
        double const cost = tiles < min_tiles ? work * 4 : work;
        if (cost < best) {
          best = cost;
          rows = tile_rows;
          cols = tile_cols;
        }
      }
  }

 private:
  static constexpr std::int64_t small_tile = 32 * 48;
  static constexpr std::int64_t col_step = 2 * Packet<S>::size;

  static constexpr std::int64_t parts(std::int64_t extent, std::int64_t max_extent) {
    return (extent + max_extent - 1) / max_extent;
  }
  static constexpr std::int64_t round_up(std::int64_t extent, std::int64_t step) {
    return parts(extent, step) * step;
  }
};

/// The sizes of the buffers for products in a worker's scratch memory, in values, and their total in bytes.
/// Attention stores its own tiles after these buffers.
template <class S>
struct ProductScratch {
  static constexpr std::int64_t left = Tiling<S>::max_rows * Tiling<S>::depth_block;
  static constexpr std::int64_t right = (Tiling<S>::max_cols + Packet<S>::size) * Tiling<S>::depth_block;
  static constexpr std::int64_t tile = Tiling<S>::max_rows * (Tiling<S>::max_cols + Packet<S>::size);
  static constexpr std::size_t bytes =
      static_cast<std::size_t>(left + right + tile + Tiling<S>::max_cols) * sizeof(S);
};

/// Adds the sum over k of each column of a packed block of the right operand to `sums`. For the first block,
/// overwrites `sums`.
template <class S, class P>
void sum_columns(P const* packed, std::int64_t depth, std::int64_t cols, bool first, S* sums) {
  constexpr std::int64_t width = Packet<S>::size;
  Panels<P> const panels(cols);
  for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
    std::int64_t const start = panels.start(panel);
    int const packets = panels.packets(panel);
    for (int part = 0; part < packets; ++part) {
      P const* from = packed + start * width * depth + part * width;
      Packet<S> sum(S(0));
      for (std::int64_t k = 0; k < depth; ++k) sum = add_values(sum, load<P>(from + k * packets * width));
      std::int64_t const col = (start + part) * width;
      std::int64_t const count = std::min<std::int64_t>(width, cols - col);
      if (!first) sum = load_partial<S>(sums + col, count) + sum;
      store_partial(sums + col, sum, count);
    }
  }
}

/// An epilogue that stores the product at `to`, or adds it to the values at `to`. Rows at `to` are `stride`
/// values apart. The kernel itself stores the product, without a callback.
template <class S>
struct InPlace {
  S* to;
  std::int64_t stride;
  bool add = false;
};

/// An epilogue of any type, with its type erased so that product_tile is compiled once per type of operands.
/// If in_place.to is set, the product is stored in place. Otherwise receive(i, j, values, stride, rows,
/// count) receives `count` values of each of `rows` rows, starting at row i and column j of the result. The
/// rows at `values` are `stride` values apart.
template <class S>
struct Epilogue {
  using Receive = v0::detail::FunctionRef<void(std::int64_t, std::int64_t, S const*, std::int64_t,
                                               std::int64_t, std::int64_t)>;

  InPlace<S> in_place{};
  Receive receive{};
};

/// Computes one register tile (see multiply_micro), from a panel of the right operand that is `packets`
/// packets wide.
template <class S, class P>
EIGEN_STRONG_INLINE void multiply_panel(int packets, std::int64_t depth, P const* a,
                                        PackedLeft<P> const& left, P const* b, S* c, std::int64_t c_stride,
                                        bool first) {
  if (packets == 1)
    multiply_micro<1>(depth, a, left.row_stride, left.k_stride, b, c, c_stride, first);
  else if (packets == 2)
    multiply_micro<2>(depth, a, left.row_stride, left.k_stride, b, c, c_stride, first);
  else
    multiply_micro<Microtile<S>::packets>(depth, a, left.row_stride, left.k_stride, b, c, c_stride, first);
}

/// Copies the first `cols` values of each of `rows` rows from `from` to `to`.
template <class S>
void copy_rows(S const* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols, S* to,
               std::int64_t to_stride) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_stride, cols, to + row * to_stride);
}

/// A function that packs columns [k, k + depth) of a tile's left operand to `to`, and returns a view of the
/// packed values. Its type does not depend on the operand's original type.
template <class P>
using PackRows = v0::detail::FunctionRef<PackedLeft<P>(std::int64_t k, std::int64_t depth, P* to)>;

/// Computes one tile of the result over the whole depth, on one worker. The tile has rows x cols values, at
/// most Tiling::max_rows by max_cols. Its first value is at (i, j) of the result. `pack_rows` packs the
/// tile's left operand and `b` is its right operand; the code packs values of both operands as P. If
/// `column_sums` is not null, it receives the `cols` sums of b over the depth, in order.
template <class S, class P, class B>
void product_tile(std::byte* scratch, PackRows<P> const& pack_rows, Matrix<B> b, std::int64_t i,
                  std::int64_t j, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                  Epilogue<S> const& epilogue, S* column_sums = nullptr) {
  constexpr std::int64_t row_step = Microtile<P>::rows;
  constexpr std::int64_t width = Packet<S>::size;
  static_assert(sizeof(P) == sizeof(S) && Packet<P>::size == width);
  static_assert(Tiling<S>::depth_block % (values_in<P> * depth_step<P>) == 0);
  static_assert(Tiling<S>::max_rows % row_step == 0 && Tiling<S>::max_cols % Microtile<P>::cols == 0);
  P* const left = reinterpret_cast<P*>(scratch);
  P* const right = left + ProductScratch<S>::left;
  S* const tile = reinterpret_cast<S*>(right + ProductScratch<S>::right);
  InPlace<S> const& in_place = epilogue.in_place;
  Panels<P> const panels(cols);
  [[maybe_unused]] KernelScope<P> const scope;
  std::int64_t const row_groups = (rows + row_step - 1) / row_step;
  std::int64_t k = 0;
  do {
    std::int64_t const block = std::min(Tiling<S>::depth_block, depth - k), steps = packed_depth<P>(block);
    bool const first = k == 0;
    bool const last = k + block >= depth;
    pack_right(b.at(k, 0), block, cols, right);
    if (column_sums) sum_columns(right, steps, cols, first, column_sums);
    PackedLeft<P> const packed = pack_rows(k, block, left);
    for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
      std::int64_t const col = panels.start(panel) * width;
      int const packets = panels.packets(panel);
      std::int64_t const stride = packets * width, count = std::min(stride, cols - col);
      P const* const from = right + col * steps;
      for (std::int64_t group = 0; group < row_groups; ++group) {
        std::int64_t const row = group * row_step, some = std::min(row_step, rows - row);
        P const* const values = packed.at(row);
        if (in_place.to) {
          S* const to = in_place.to + (i + row) * in_place.stride + j + col;
          bool const start = first && !in_place.add;
          if (some == row_step && count == stride) {
            multiply_panel(packets, steps, values, packed, from, to, in_place.stride, start);
          } else {  // at the edge of the result: compute in a padded buffer
            if (!start) copy_rows(static_cast<S const*>(to), in_place.stride, some, count, tile, stride);
            multiply_panel(packets, steps, values, packed, from, tile, stride, start);
            copy_rows(static_cast<S const*>(tile), stride, some, count, to, in_place.stride);
          }
        } else {
          // If the depth is a single block, a register tile is final when it is computed, and the epilogue
          // receives it immediately. So all register tiles use the same buffer.
          S* const to = first && last ? tile : tile + (col * row_groups + group * stride) * row_step;
          multiply_panel(packets, steps, values, packed, from, to, stride, first);
          if (last) epilogue.receive(i + row, j + col, to, stride, some, count);
        }
      }
    }
    k += block;
  } while (k < depth);
}

/// Computes `result` (m, n) = a (m, depth) b (depth, n) on one worker, tile after tile.
template <class S, class A, class B>
void product_serial(std::byte* scratch, Matrix<A> a, Matrix<B> b, std::int64_t m, std::int64_t n,
                    std::int64_t depth, InPlace<S> const& result) {
  using P = packed_for<S, A, B>;
  for (std::int64_t i = 0; i < m; i += Tiling<S>::max_rows) {
    std::int64_t const rows = std::min(Tiling<S>::max_rows, m - i);
    auto const pack_rows = [&](std::int64_t k, std::int64_t block, P* to) {
      return pack_left(a.at(i, k), rows, block, to);
    };
    for (std::int64_t j = 0; j < n; j += Tiling<S>::max_cols)
      product_tile<S, P>(scratch, pack_rows, b.at(0, j), i, j, rows, std::min(Tiling<S>::max_cols, n - j),
                         depth, Epilogue<S>{result, {}});
  }
}

/// A right operand of `depth` rows and `cols` columns that pack_right has packed.
template <class S>
struct PackedRight {
  S const* data;
  std::int64_t depth;
  std::int64_t cols;
};

/// Computes `result` = a b, where b are the rows [first, first + depth) and the first `cols` columns of the
/// packed operand `right`. `a` has `rows` rows and is packed. The product is one block of the depth (see
/// Tiling). Register tiles at the edge of the result are computed in `edge`.
template <class S>
void multiply_packed(PackedLeft<S> const& a, PackedRight<S> const& right, std::int64_t first,
                     std::int64_t rows, std::int64_t cols, std::int64_t depth, InPlace<S> const& result,
                     S* edge) {
  constexpr std::int64_t row_step = Microtile<S>::rows, width = Packet<S>::size;
  Panels<S> const panels(right.cols);
  for (std::int64_t panel = 0; panel < panels.count() && panels.start(panel) * width < cols; ++panel) {
    std::int64_t const col = panels.start(panel) * width;
    int const packets = panels.packets(panel);
    std::int64_t const stride = packets * width, count = std::min(stride, cols - col);
    S const* const from = right.data + col * right.depth + first * stride;
    for (std::int64_t row = 0; row < rows; row += row_step) {
      std::int64_t const some = std::min(row_step, rows - row);
      S* const to = result.to + row * result.stride + col;
      if (some == row_step && count == stride) {
        multiply_panel(packets, depth, a.at(row), a, from, to, result.stride, !result.add);
      } else {
        if (result.add) copy_rows(static_cast<S const*>(to), result.stride, some, count, edge, stride);
        multiply_panel(packets, depth, a.at(row), a, from, edge, stride, !result.add);
        copy_rows(static_cast<S const*>(edge), stride, some, count, to, result.stride);
      }
    }
  }
}

/// Computes `result` (m, n) = a (m, depth) b (depth, n) on one worker, where b are the rows [first, first +
/// depth) of the packed operand `right`, and n its number of columns. The result has the same bits as that of
/// product_serial.
template <class S, class A>
void product_with_packed(std::byte* scratch, Matrix<A> a, PackedRight<S> const& right, std::int64_t first,
                         std::int64_t m, std::int64_t n, std::int64_t depth, InPlace<S> const& result) {
  S* const left = reinterpret_cast<S*>(scratch);
  for (std::int64_t i = 0; i < m; i += Tiling<S>::max_rows)
    for (std::int64_t k = 0; k < depth; k += Tiling<S>::depth_block) {
      std::int64_t const rows = std::min(Tiling<S>::max_rows, m - i);
      std::int64_t const block = std::min(Tiling<S>::depth_block, depth - k);
      multiply_packed(pack_left(a.at(i, k), rows, block, left), right, first + k, rows, n, block,
                      InPlace<S>{result.to + i * result.stride, result.stride, result.add || k != 0},
                      left + ProductScratch<S>::left);
    }
}

/// The type of the parameter `sums` of `product` if the caller needs no sums of columns.
struct NoSums {};

/// A callback, or null if the caller needs no sums of columns. sums(j, values, count) receives the sums of
/// `count` columns of B, starting at column j.
template <class S>
using ReceiveSums = v0::detail::FunctionRef<void(std::int64_t, S const*, std::int64_t)>;

/// Implements `product` below. The types of the epilogue and of `sums` are erased, so that each type of
/// operands is compiled once.
template <class S, class A, class B>
void product_on_pool(Context<Cpu>& context, Matrix<A> a, Matrix<B> b, std::int64_t m, std::int64_t n,
                     std::int64_t depth, Epilogue<S> const& epilogue, ReceiveSums<S> const& sums) {
  using P = packed_for<S, A, B>;
  Tiling<S, P> const tiling(m, n);
  std::int64_t const tile_rows = (m + tiling.rows - 1) / tiling.rows;
  std::int64_t const tile_cols = (n + tiling.cols - 1) / tiling.cols;
  context.pool().parallel_for(tile_rows * tile_cols, [&](std::int64_t task, int worker) {
    std::int64_t const i = task / tile_cols * tiling.rows;
    std::int64_t const j = task % tile_cols * tiling.cols;
    std::int64_t const rows = std::min(tiling.rows, m - i), cols = std::min(tiling.cols, n - j);
    auto const pack_rows = [&](std::int64_t k, std::int64_t block, P* to) {
      return pack_left(a.at(i, k), rows, block, to);
    };
    std::byte* const scratch = context.worker_scratch(worker).data();
    S* const column_sums =
        sums && i == 0 ? reinterpret_cast<S*>(scratch + ProductScratch<S>::bytes) - Tiling<S>::max_cols
                       : nullptr;
    product_tile<S, P>(scratch, pack_rows, b.at(0, j), i, j, rows, cols, depth, epilogue, column_sums);
    if (column_sums) sums(j, column_sums, cols);
  });
}

/// Computes C (m, n) = op(A) (m, depth) op(B) (depth, n) on all workers of the pool. `epilogue` is InPlace or
/// a function. The call epilogue(i, j, values, count) receives `count` finished values of row i of C,
/// starting at column j. Each element is passed once. `values` is padded to full packets. If given, sums(j,
/// values, count) receives the sums of `count` columns of op(B), starting at column j.
template <class S, class A, class B, class Finish, class Sums = NoSums>
void product(Context<Cpu>& context, Matrix<A> a, Matrix<B> b, std::int64_t m, std::int64_t n,
             std::int64_t depth, Finish const& epilogue, Sums const& sums = {}) {
  ReceiveSums<S> receive_sums;
  if constexpr (!std::is_same_v<Sums, NoSums>) receive_sums = sums;
  if constexpr (std::is_same_v<Finish, InPlace<S>>) {
    product_on_pool(context, a, b, m, n, depth, Epilogue<S>{epilogue, {}}, receive_sums);
  } else {
    auto const receive = [&](std::int64_t i, std::int64_t j, S const* values, std::int64_t stride,
                             std::int64_t rows, std::int64_t count) {
      for (std::int64_t row = 0; row < rows; ++row) epilogue(i + row, j, values + row * stride, count);
    };
    product_on_pool(context, a, b, m, n, depth, Epilogue<S>{{}, receive}, receive_sums);
  }
}

}  // namespace cpu
}  // namespace v0
}  // namespace tessera
