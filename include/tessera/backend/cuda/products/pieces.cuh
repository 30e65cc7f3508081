// SPDX-License-Identifier: Apache-2.0
// Provides products of fp32 matrices on tensor cores, with each value split into bfloat16 pieces
// (pieces.hpp). Contains the kernels that form pieces, and the loops that run a product's blocks on this
// library's kernels or on cuBLASLt.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/products/blas.cuh"
#include "tessera/backend/cuda/products/pieces.hpp"
#include "tessera/backend/cuda/products/product_pieces.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Describes how a kernel splits a block of an fp32 matrix into pieces. A line is a row of the matrix as
/// stored. The pieces have the same layout as the block. `to` receives either one plane (matrix) for each
/// piece or, for cuBLASLt, one copy of a piece for each term. The copies follow each other along the depth of
/// the product. The depth runs along the lines or across them. Extents are padded with zeros to multiples of
/// piece_unit.
struct PieceForm {
  float const* from;
  std::int64_t from_stride;
  unsigned lines, width;
  bool packed;  // lines of `from` start at multiples of 16 bytes
  bfloat16* to;
  unsigned line_end, width_end;            // the extents of the pieces, with padding
  std::int64_t line_stride, piece_stride;  // between lines of a plane or copy; between planes or copies
};

/// Splits eight values into the pieces that pieces_of returns. piece[k][i] holds piece k of values 2 i and 2
/// i + 1. The first loop is fast but wrong if a first piece is an infinity or NaN. In this case the second
/// loop calls pieces_of.
__device__ __forceinline__ void form_eight(float (&value)[8], unsigned (&piece)[3][4]) {
  bool common = true;  // whether no first piece is an infinity or NaN
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low = value[2 * i], high = value[2 * i + 1];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      unsigned const both = pack<bfloat16>(low, high);
      piece[k][i] = both;
      if (k == 0) common &= (both & 0x7f80u) != 0x7f80u && (both & 0x7f800000u) != 0x7f800000u;
      low -= __uint_as_float(both << 16);
      high -= __uint_as_float(both & 0xffff0000u);
    }
  }
  if (common) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Pieces const low = pieces_of(value[2 * i]), high = pieces_of(value[2 * i + 1]);
#pragma unroll
    for (int k = 0; k < 3; ++k)
      piece[k][i] = low.value[k].bits | static_cast<unsigned>(high.value[k].bits) << 16;
  }
}

/// Splits eight values of the matrix block that `form` describes: the values of this thread in the thread
/// block number `block`. Calls visit(pieces, to), where `to` is the destination of the first pieces.
template <class F>
__device__ __forceinline__ void form_at(PieceForm const& form, unsigned block, F&& visit) {
  constexpr int n = static_cast<int>(piece_unit);
  unsigned const vectors = form.width_end / n, at = block * 256u + threadIdx.x;
  unsigned const line = at / vectors, column = at % vectors * n;
  if (line >= form.line_end) return;
  std::int64_t const there = line < form.lines && column < form.width ? form.width - column : 0;
  float const* const from = form.from + line * form.from_stride + column;
  float value[n];
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    Pack<float, 4> const four =
        form.packed && there >= n ? load<4, true>(from + i, 4) : load<4, false>(from + i, there - i);
#pragma unroll
    for (int k = 0; k < 4; ++k) value[i + k] = four.value[k];
  }
  unsigned piece[3][n / 2];
  form_eight(value, piece);
  visit(piece, form.to + line * form.line_stride + column);
}
__device__ __forceinline__ void store_pieces(bfloat16* to, unsigned const (&piece)[4]) {
  store_word(reinterpret_cast<uint4*>(to), uint4{piece[0], piece[1], piece[2], piece[3]});
}

/// Splits a block of the left or right operand. Stores one copy for each term: the piece that the term uses.
template <int Terms, bool Left>
__global__ __launch_bounds__(256) void form_pieces(PieceForm form) {
  form_at(form, blockIdx.x, [&](auto const& piece, bfloat16* to) {
#pragma unroll
    for (int term = 0; term < Terms; ++term)
      store_pieces(to + term * form.piece_stride, piece[piece_of(Terms, Left, term)]);
  });
}
/// Splits blocks of two operands, and stores the first `Count` pieces of each as planes. The first
/// `first_blocks` thread blocks process the operand `first`, the others `second`.
template <int Count>
__global__ __launch_bounds__(256) void form_planes(__grid_constant__ PieceForm const first,
                                                   __grid_constant__ PieceForm const second,
                                                   unsigned first_blocks) {
  let_next_kernel_begin();
  bool const is_first = blockIdx.x < first_blocks;
  PieceForm const& form = is_first ? first : second;
  form_at(form, is_first ? blockIdx.x : blockIdx.x - first_blocks, [&](auto const& piece, bfloat16* to) {
#pragma unroll
    for (int k = 0; k < Count; ++k) store_pieces(to + k * form.piece_stride, piece[k]);
  });
}

inline unsigned blocks_of(PieceForm const& form) {
  return blocks_for(std::int64_t{form.line_end} * form.width_end / piece_unit, 256);
}
template <bool Left>
void run_form_pieces(cudaStream_t stream, PieceForm const& form, int terms) {
  unsigned const blocks = blocks_of(form);
  if (terms == 6)
    form_pieces<6, Left><<<blocks, 256, 0, stream>>>(form);
  else
    form_pieces<3, Left><<<blocks, 256, 0, stream>>>(form);
}

/// Sets y to bias + residual; `residual` may be null. This kernel runs if no cuBLASLt algorithm can add the
/// bias. Afterwards cuBLASLt adds the product to y. A thread processes four columns of some rows.
static __global__ __launch_bounds__(256) void start_with_bias(std::int64_t rows, std::int64_t columns,
                                                              bool packed, float const* bias,
                                                              float const* residual, float* y) {
  std::int64_t const column = (std::int64_t{blockIdx.x} * 256 + threadIdx.x) * 4;
  if (column >= columns) return;
  std::int64_t const there = columns - column;
  Pack<float, 4> const added = load<4, false>(bias + column, there);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    std::int64_t const at = row * columns + column;
    Pack<float, 4> sum = added;
    if (residual) {
      Pack<float, 4> const before =
          packed ? load<4, true>(residual + at, there) : load<4, false>(residual + at, there);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum.value[k] += before.value[k];
    }
    packed ? store<4, true>(y + at, sum, there) : store<4, false>(y + at, sum, there);
  }
}

inline void run_start_with_bias(cudaStream_t stream, Product<float> const& p) {
  float const* const before = p.residual ? p.residual : p.y;
  bool const packed = p.columns % 4 == 0 && takes_packs<4>(before, p.y);
  dim3 const blocks(static_cast<unsigned>((p.columns + 1023) / 1024),
                    static_cast<unsigned>(std::min<std::int64_t>(p.rows, 16384)));
  start_with_bias<<<blocks, 256, 0, stream>>>(p.rows, p.columns, packed, p.bias, p.residual, p.y);
}

/// An fp32 operand of a product. Its size is `extent` by `depth`. For the left operand, `extent` is the
/// number of rows of the result; for the right operand, it is the number of columns of the result.
struct PieceOperand {
  float const* data;
  std::int64_t extent, depth;
  bool along_lines;  // the depth runs along the stored lines, not across them
};

/// A block of an operand: [first, first + extent) of its extent and [deep, deep + depth) of its depth.
struct PieceRange {
  std::int64_t first, extent, deep, depth;
};
/// Returns how the block `at` of the operand `of` is split: into one plane per piece, or into one copy for
/// each of `terms` terms. `to` is the memory for the pieces.
inline PieceForm form_of(PieceOperand const& of, PieceRange const& at, bool planes, int terms,
                         std::byte* to) {
  std::int64_t const stride = of.along_lines ? of.depth : of.extent, padded_depth = in_piece_units(at.depth);
  PieceForm form{};
  form.from = of.data + (of.along_lines ? at.first * stride + at.deep : at.deep * stride + at.first);
  form.from_stride = stride;
  form.packed = stride % 4 == 0 && alignment_of(form.from) == 16;
  form.to = reinterpret_cast<bfloat16*>(to);
  form.lines = static_cast<unsigned>(of.along_lines ? at.extent : at.depth);
  form.width = static_cast<unsigned>(of.along_lines ? at.depth : at.extent);
  form.line_end = of.along_lines || planes ? form.lines : static_cast<unsigned>(padded_depth);
  form.width_end = static_cast<unsigned>(in_piece_units(form.width));
  bool const interleaved = of.along_lines && !planes;  // each line holds its part of all copies
  form.line_stride = interleaved ? terms * padded_depth : form.width_end;
  form.piece_stride = interleaved ? padded_depth : std::int64_t{form.line_end} * form.width_end;
  return form;
}

/// A block of a product: its first row, column and depth index, and its size.
struct PieceBlock {
  std::int64_t row, rows, column, columns, deep, depth;
  PieceRange left() const { return {row, rows, deep, depth}; }
  PieceRange right() const { return {column, columns, deep, depth}; }
};
/// The operands of a product, the size of its blocks, and the memory for the pieces of one block of each
/// operand. The constructor divides `memory` between the two operands. `copies` is the number of bfloat16
/// values for each fp32 value. `deepest` is the maximum depth of a block.
struct PieceSplit {
  PieceOperand left, right;
  PieceBlocks size;
  std::int64_t rows, columns, depth;
  std::byte *lefts, *rights;  // memory for the pieces of a block

  PieceSplit(Product<float> const& p, int terms, int copies, std::int64_t deepest,
             std::span<std::byte> memory)
      : left{p.a, p.rows, p.depth, !p.a_transposed},
        right{p.b, p.columns, p.depth, p.b_transposed},
        size(piece_blocks(p.rows, p.columns, p.depth, deepest, terms, copies, memory.size())),
        rows(p.rows),
        columns(p.columns),
        depth(p.depth),
        lefts(memory.data()),
        rights(lefts + piece_bytes_of(size.rows, size.depth, copies)) {}

  // Whether the pieces of the left or right operand must be formed for the block `at`. The pieces of the
  // stationary operand are formed once, and used for all blocks of the other operand.
  bool forms_left(PieceBlock const& at) const { return !size.left_stationary || at.column == 0; }
  bool forms_right(PieceBlock const& at) const { return size.left_stationary || at.row == 0; }

  /// Calls visit(block) for all blocks in order. If a call returns false, stops and returns false.
  template <class F>
  bool for_blocks(F&& visit) const {
    for (std::int64_t deep = 0; deep < depth; deep += size.depth)
      for (std::int64_t stationary = 0; stationary < (size.left_stationary ? rows : columns);
           stationary += size.left_stationary ? size.rows : size.columns)
        for (std::int64_t streamed = 0; streamed < (size.left_stationary ? columns : rows);
             streamed += size.left_stationary ? size.columns : size.rows) {
          std::int64_t const row = size.left_stationary ? stationary : streamed,
                             column = size.left_stationary ? streamed : stationary;
          if (!visit(PieceBlock{row, std::min(size.rows, rows - row), column,
                                std::min(size.columns, columns - column), deep,
                                std::min(size.depth, depth - deep)}))
            return false;
        }
    return true;
  }
};

/// Runs a product from pieces on this library's Hopper kernels. Returns false, without enqueueing anything,
/// if it cannot. For example, this happens if both a and b are transposed, or if the product needs more than
/// one epilogue (ProductEnd). `partials` requires p.pre and receives the sums of y over blocks of
/// PieceTiles::rows rows.
template <class T>
bool run_by_planes(Context<Cuda>& context, Product<T> const& p, int terms, T* partials = nullptr) {
  static_assert(std::is_same_v<T, float>);
  if (p.depth == 0 || (p.a_transposed && p.b_transposed) || (p.pre && (p.bias || p.residual)) ||
      (partials && !p.pre) || !has_warpgroups())
    return false;
  int const count = pieces_in(terms);
  PieceSplit const split(p, terms, count, std::max<std::int64_t>(p.depth, 1), context.pieces());
  if (split.size.rows == 0 || (p.pre && (p.a_transposed || split.size.depth < p.depth)) ||
      (partials && split.size.rows < p.rows && split.size.rows % PieceTiles::rows != 0))
    return false;
  auto const planes_of = [count](PieceForm const& form) {
    return PiecePlanes{form.to, form.lines, form.width, form.line_stride, form.piece_stride, count};
  };
  return split.for_blocks([&](PieceBlock const& at) {
    PieceForm const left = form_of(split.left, at.left(), true, terms, split.lefts),
                    right = form_of(split.right, at.right(), true, terms, split.rights);
    std::int64_t const from = at.row * p.columns + at.column;
    bool const first = at.deep == 0;
    auto const block_of = [from](float const* matrix) {
      // the const_cast is valid because the kernel writes only y, which the caller passed as not const
      return matrix ? const_cast<float*>(matrix) + from : nullptr;
    };
    PieceEnd end{};
    end.rows = at.rows;
    end.columns = at.columns;
    end.depth = at.depth;
    end.stride = p.columns;
    end.y = block_of(p.y);
    end.pre = block_of(p.pre ? p.pre : first ? p.residual : p.y);
    end.bias = first && p.bias ? p.bias + at.column : nullptr;
    end.scale = static_cast<float>(p.scale);
    end.partials = partials ? partials + at.row / PieceTiles::rows * p.columns + at.column : nullptr;
    unsigned const lefts = split.forms_left(at) ? blocks_of(left) : 0,
                   rights = split.forms_right(at) ? blocks_of(right) : 0;
    auto const run = [&]<bool Columns, bool Rows, ProductEnd End>(std::integral_constant<ProductEnd, End>,
                                                                  std::bool_constant<Columns>,
                                                                  std::bool_constant<Rows>) {
      PieceProduct<Columns, Rows, End> product;
      if (!product.describe(planes_of(left), planes_of(right), terms, end, context.workspace())) return false;
      (count == 3 ? form_planes<3> : form_planes<2>)<<<lefts + rights, 256, 0, context.stream()>>>(
          left, right, lefts);
      product.run(context.stream());
      return true;
    };
    auto const run_end = [&]<ProductEnd End>(std::integral_constant<ProductEnd, End> is) {
      if constexpr (End == ProductEnd::bias || End == ProductEnd::residual)
        if (p.a_transposed) return run(is, std::true_type{}, std::true_type{});
      return p.b_transposed ? run(is, std::false_type{}, std::false_type{})
                            : run(is, std::false_type{}, std::true_type{});
    };
    bool const runs = [&] {
      if (p.pre) return run_end(std::integral_constant<ProductEnd, ProductEnd::gelu_derivative>{});
      if (end.pre && !adds_to_parts(end, terms, context.workspace().size()))
        return run_end(std::integral_constant<ProductEnd, ProductEnd::residual>{});
      return run_end(std::integral_constant<ProductEnd, ProductEnd::bias>{});
    }();
    if (!runs && !(first && at.row == 0 && at.column == 0))
      context.check(cudaErrorInvalidConfiguration, "a block of a product of bf16 splits");
    return runs;
  });
}

/// Runs a product from pieces on cuBLASLt. Returns false if cuBLASLt has no algorithm for a block. Ignores
/// p.pre. All blocks use the same memory for their pieces, one block after another. The blocks of the first
/// part of the depth set y; the blocks of each later part add to y.
inline bool run_by_copies(Context<Cuda>& context, Product<float> p, int terms) {
  PieceSplit const split(p, terms, terms, deepest_sum(terms), context.pieces());
  if (split.size.rows == 0) {
    context.check(cudaErrorInvalidConfiguration,
                  "a product of bf16 splits (the workspace is too small; pass the format of products to "
                  "workspace_bytes)");
    return true;
  }
  auto const line_of = [terms](PieceOperand const& of, std::int64_t extent, std::int64_t depth) {
    return of.along_lines ? terms * in_piece_units(depth) : in_piece_units(extent);
  };
  auto const plan_of = [&](PieceBlock const& at) {
    std::int64_t const from = at.row * p.columns + at.column;
    bool const first = at.deep == 0;
    ProductKey key;
    key.rows = at.rows;
    key.columns = at.columns;
    key.depth = terms * in_piece_units(at.depth);
    key.a_stride = line_of(split.left, at.rows, at.depth);
    key.b_stride = line_of(split.right, at.columns, at.depth);
    key.y_stride = p.columns;
    key.a_transposed = p.a_transposed;
    key.b_transposed = p.b_transposed;
    key.add = !first || p.residual;
    key.fused = first && p.bias ? Fused::bias : Fused::none;
    key.in = CUDA_R_16BF;
    key.c_alignment = alignment_of((first && p.residual ? p.residual : p.y) + from);
    key.y_alignment = alignment_of(p.y + from);
    key.extra_alignment = alignment_of(first && p.bias ? p.bias + at.column : nullptr);
    return context.plans().find(key);
  };
  auto const planned = [&] {
    return split.for_blocks([&](PieceBlock const& at) { return plan_of(at) != nullptr; });
  };
  if (!planned()) {
    if (!p.bias) return false;
    Product<float> const biased = p;  // no plan adds the bias, so a kernel writes bias + residual to y first
    p.bias = nullptr;
    p.residual = p.y;
    if (!planned()) return false;
    run_start_with_bias(context.stream(), biased);
  }
  split.for_blocks([&](PieceBlock const& at) {
    if (split.forms_left(at))
      run_form_pieces<true>(context.stream(), form_of(split.left, at.left(), false, terms, split.lefts),
                            terms);
    if (split.forms_right(at))
      run_form_pieces<false>(context.stream(), form_of(split.right, at.right(), false, terms, split.rights),
                             terms);
    std::int64_t const from = at.row * p.columns + at.column;
    bool const first = at.deep == 0;
    ProductOperands const operands{split.lefts,
                                   split.rights,
                                   (first && p.residual ? p.residual : p.y) + from,
                                   p.bias ? p.bias + at.column : nullptr,
                                   p.y + from,
                                   p.scale};
    context.check(context.plans().run(*plan_of(at), operands, context.workspace().data(), context.stream()),
                  "cublasLtMatmul");
    return true;
  });
  return true;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
