// SPDX-License-Identifier: Apache-2.0
// Products of fp32 values by pieces of bfloat16 on tensor cores (pieces.hpp): the kernel that forms pieces,
// and the blocks of a product.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/backend/cuda/blas.cuh"
#include "tessera/backend/cuda/context.cuh"
#include "tessera/backend/cuda/kernel.cuh"
#include "tessera/backend/cuda/pieces.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// A block of a matrix as stored, and where its pieces go: as the matrix lies, one copy a term, side by side
/// along the depth of the product, wherever that runs. What extends it to whole units is zero.
struct PieceForm {
  float const* from;
  std::int64_t from_stride;
  unsigned lines, width;
  bool packed;  // lines of `from` start at multiples of 16 bytes
  bfloat16* to;
  unsigned line_end, width_end;  // of the pieces, in whole units
  std::int64_t line_stride, term_stride;
};

/// Eight values a thread.
template <int Terms, bool Left>
__global__ __launch_bounds__(256) void form_pieces(PieceForm form) {
  constexpr int n = static_cast<int>(piece_unit);
  unsigned const vectors = form.width_end / n, at = blockIdx.x * 256u + threadIdx.x;
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
  Pack<bfloat16, n> piece[3];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    Pieces const pieces = pieces_of(value[i]);
#pragma unroll
    for (int k = 0; k < 3; ++k) piece[k].value[i] = pieces.value[k];
  }
  bfloat16* const to = form.to + line * form.line_stride + column;
#pragma unroll
  for (int term = 0; term < Terms; ++term)
    store<n, true>(to + term * form.term_stride, piece[piece_of(Terms, Left, term)], n);
}

template <bool Left>
void run_form_pieces(cudaStream_t stream, PieceForm const& form, int terms) {
  std::int64_t const vectors = std::int64_t{form.line_end} * form.width_end / piece_unit;
  unsigned const blocks = static_cast<unsigned>((vectors + 255) / 256);
  if (terms == 6)
    form_pieces<6, Left><<<blocks, 256, 0, stream>>>(form);
  else
    form_pieces<3, Left><<<blocks, 256, 0, stream>>>(form);
}

/// y = bias + residual, which may be null: what a product is added to where no plan adds the bias.
/// A thread has four columns of some rows.
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

/// One operand of a product: `extent` rows or columns of the result, over the depth.
struct PieceOperand {
  float const* data;
  std::int64_t extent, depth;
  bool along_lines;  // the depth runs along the lines as stored
};

/// Forms the pieces of a block of an operand that begins at `first` and `deep`.
template <bool Left>
void form_block(cudaStream_t stream, PieceOperand const& of, std::int64_t first, std::int64_t extent,
                std::int64_t deep, std::int64_t depth, int terms, std::byte* to) {
  std::int64_t const stride = of.along_lines ? of.depth : of.extent, whole = in_piece_units(depth);
  PieceForm form{};
  form.from = of.data + (of.along_lines ? first * stride + deep : deep * stride + first);
  form.from_stride = stride;
  form.packed = stride % 4 == 0 && alignment_of(form.from) == 16;
  form.to = reinterpret_cast<bfloat16*>(to);
  form.lines = static_cast<unsigned>(of.along_lines ? extent : depth);
  form.width = static_cast<unsigned>(of.along_lines ? depth : extent);
  form.line_end = static_cast<unsigned>(of.along_lines ? extent : whole);
  form.width_end = static_cast<unsigned>(in_piece_units(form.width));
  form.line_stride = of.along_lines ? terms * whole : form.width_end;
  form.term_stride = of.along_lines ? whole : whole * form.width_end;
  run_form_pieces<Left>(stream, form, terms);
}

/// Runs a product by pieces; false where cuBLASLt lacks a plan for a block of it. gelu' is not fused. One
/// block after another uses the room for pieces, and each sum goes on from block to block over the depth.
inline bool run_by_pieces(Context<Cuda>& context, Product<float> p, int terms) {
  std::span<std::byte> const room = context.pieces();
  PieceBlocks const size = piece_blocks(p.rows, p.columns, p.depth, terms, room.size());
  if (size.rows == 0) {
    context.check(cudaErrorInvalidConfiguration,
                  "a product by pieces, whose workspace has no room for them (give the format of products to "
                  "workspace_bytes)");
    return true;
  }
  PieceOperand const left{p.a, p.rows, p.depth, !p.a_transposed},
      right{p.b, p.columns, p.depth, p.b_transposed};
  auto const line_of = [terms](PieceOperand const& of, std::int64_t extent, std::int64_t depth) {
    return of.along_lines ? terms * in_piece_units(depth) : in_piece_units(extent);
  };
  struct Block {
    std::int64_t row, rows, column, columns, deep, depth;
  };
  auto const for_blocks = [&](auto const& visit) {
    for (std::int64_t deep = 0; deep < p.depth; deep += size.depth)
      for (std::int64_t stay = 0; stay < (size.left_stays ? p.rows : p.columns);
           stay += size.left_stays ? size.rows : size.columns)
        for (std::int64_t move = 0; move < (size.left_stays ? p.columns : p.rows);
             move += size.left_stays ? size.columns : size.rows) {
          std::int64_t const row = size.left_stays ? stay : move, column = size.left_stays ? move : stay;
          if (!visit(Block{row, std::min(size.rows, p.rows - row), column,
                           std::min(size.columns, p.columns - column), deep,
                           std::min(size.depth, p.depth - deep)}))
            return false;
        }
    return true;
  };
  auto const plan_of = [&](Block const& at) {
    std::int64_t const from = at.row * p.columns + at.column;
    bool const first = at.deep == 0;
    ProductKey key;
    key.rows = at.rows;
    key.columns = at.columns;
    key.depth = terms * in_piece_units(at.depth);
    key.a_stride = line_of(left, at.rows, at.depth);
    key.b_stride = line_of(right, at.columns, at.depth);
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
  auto const planned = [&] { return for_blocks([&](Block const& at) { return plan_of(at) != nullptr; }); };
  if (!planned()) {
    if (!p.bias) return false;
    Product<float> const biased = p;  // the bias before the product, then
    p.bias = nullptr;
    p.residual = p.y;
    if (!planned()) return false;
    run_start_with_bias(context.stream(), biased);
  }
  std::byte* const lefts = room.data();
  std::byte* const rights = lefts + piece_bytes_of(size.rows, size.depth, terms);
  for_blocks([&](Block const& at) {
    // Along the other operand the one that stays is formed once.
    if (!size.left_stays || at.column == 0)
      form_block<true>(context.stream(), left, at.row, at.rows, at.deep, at.depth, terms, lefts);
    if (size.left_stays || at.row == 0)
      form_block<false>(context.stream(), right, at.column, at.columns, at.deep, at.depth, terms, rights);
    std::int64_t const from = at.row * p.columns + at.column;
    bool const first = at.deep == 0;
    ProductOperands const operands{lefts,
                                   rights,
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
