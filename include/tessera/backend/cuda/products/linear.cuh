// SPDX-License-Identifier: Apache-2.0
// Provides linear layers: one matrix product with the operations that can be fused into it. The contract is
// in ops/linear.hpp.
//
// A product runs on this library's Hopper kernels (product_warpgroups.cuh) or on cuBLASLt. Only shapes,
// types, alignments and the GPU decide which of the two. fp32 products are computed from bf16 pieces
// (pieces.hpp) if the context's product format requests it. A product that neither the Hopper kernels nor
// cuBLASLt can run uses a plain tiled kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/sums.cuh"
#include "tessera/backend/cuda/products/blas.cuh"
#include "tessera/backend/cuda/products/pieces.cuh"
#include "tessera/backend/cuda/products/product_warpgroups.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

// ---- the plain kernel ----------------------------------------------------------------------------------

constexpr int product_tile = 64;

/// A block of 256 threads computes a 64x64 tile of y, 4x4 values per thread. Adds the terms in the order of
/// the depth, in S.
template <class T, class Y>
__global__ __launch_bounds__(256) void tiled_product(Product<T, Y> p) {
  using S = compute_t<T>;
  constexpr int tile = product_tile, step = 16;
  __shared__ S left[step][tile + 1], right[step][tile + 1];
  std::int64_t const across = (p.columns + tile - 1) / tile;
  std::int64_t const row = blockIdx.x / across * tile, column = blockIdx.x % across * tile;
  int const x = threadIdx.x % 16, y = threadIdx.x / 16;
  S sums[4][4] = {};
  for (std::int64_t k = 0; k < p.depth; k += step) {
    for (int i = threadIdx.x; i < tile * step; i += 256) {
      int const r = p.a_transposed ? i % tile : i / step, ka = p.a_transposed ? i / tile : i % step;
      int const c = p.b_transposed ? i / step : i % tile, kb = p.b_transposed ? i % step : i / tile;
      S value(0);
      if (row + r < p.rows && k + ka < p.depth)
        value = get<S>(p.a[p.a_transposed ? (k + ka) * p.rows + row + r : (row + r) * p.depth + k + ka]);
      left[ka][r] = value;
      value = S(0);
      if (column + c < p.columns && k + kb < p.depth)
        value =
            get<S>(p.b[p.b_transposed ? (column + c) * p.depth + k + kb : (k + kb) * p.columns + column + c]);
      right[kb][c] = value;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < step; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sums[i][j] = detail::multiply_add(left[d][y + 16 * i], right[d][x + 16 * j], sums[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::int64_t const r = row + y + 16 * i, c = column + x + 16 * j;
      if (r >= p.rows || c >= p.columns) continue;
      std::int64_t const at = r * p.columns + c;
      S value = detail::multiply(sums[i][j], static_cast<S>(p.scale));
      if (p.bias) value += get<S>(p.bias[c]);
      if (p.residual) value += get<S>(p.residual[at]);
      if (p.pre) value *= gelu_derivative<T>(get<S>(p.pre[at]));
      p.y[at] = put<Y>(value);
    }
}

template <class T, class Y>
void run_tiled_product(cudaStream_t stream, Product<T, Y> const& p) {
  std::int64_t const tiles =
      ((p.rows + product_tile - 1) / product_tile) * ((p.columns + product_tile - 1) / product_tile);
  tiled_product<<<static_cast<unsigned>(tiles), 256, 0, stream>>>(p);
}

// ---- passes over elements ------------------------------------------------------------------------------

template <class T>
struct TimesGeluDerivative {
  template <class S>
  __device__ __forceinline__ void operator()(S pre, S& y) const {
    y = detail::multiply(y, gelu_derivative<T>(pre));
  }
};
struct TimesReluDerivative {
  template <class S>
  __device__ __forceinline__ void operator()(S pre, S& y) const {
    if (pre <= S(0)) y = S(0);
  }
};

// ---- products ------------------------------------------------------------------------------------------

/// Whether cuBLASLt can multiply the unrounded result by gelu' in its epilogue. It can do so for 16-bit
/// results whose rows start at multiples of 16 bytes.
template <class T>
constexpr bool fuses_gelu_derivative = sizeof(T) == 2;

template <class T, class Y>
ProductKey key_of(Product<T, Y> const& p, DType product) {
  ProductKey key;
  key.rows = p.rows;
  key.columns = p.columns;
  key.depth = p.depth;
  key.a_transposed = p.a_transposed;
  key.b_transposed = p.b_transposed;
  key.add = p.residual != nullptr;
  key.fused = p.bias ? Fused::bias : p.pre ? Fused::gelu_derivative : Fused::none;
  key.in = data_type<T>;
  key.out = data_type<Y>;
  key.compute = std::is_same_v<T, double>                            ? CUBLAS_COMPUTE_64F
                : product == DType::tf32 && std::is_same_v<T, float> ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
  key.a_alignment = alignment_of(p.a);
  key.b_alignment = alignment_of(p.b);
  key.c_alignment = alignment_of(p.residual ? p.residual : p.y);
  key.y_alignment = alignment_of(p.y);
  key.extra_alignment = alignment_of(p.bias ? p.bias : p.pre);
  return key;
}

/// Runs the product on cuBLASLt. An fp32 product runs from bf16 pieces (pieces.hpp) if the context's product
/// format requests it. Returns false, without enqueueing anything, if cuBLASLt has no plan.
template <class T, class Y>
bool run_planned_product(Context<Cuda>& context, Product<T, Y> const& p) {
  if (p.depth == 0) return false;
  if (p.pre && (!fuses_gelu_derivative<T> || p.residual || p.columns % 8 != 0 || alignment_of(p.pre) < 16))
    return false;
  if constexpr (std::is_same_v<T, float>)
    if (int const terms = piece_terms(context.math().product); terms > 0 && run_by_copies(context, p, terms))
      return true;
  BlasPlan* const plan = context.plans().find(key_of(p, context.math().product));
  if (!plan) return false;
  ProductOperands const operands{p.a, p.b, p.residual, p.bias ? p.bias : p.pre, p.y, p.scale};
  context.check(context.plans().run(*plan, operands, context.workspace().data(), context.stream()),
                "cublasLtMatmul");
  return true;
}

/// Runs a product on this library's own Hopper kernels. Returns false, without enqueueing anything, if they
/// cannot run it or are slower than cuBLASLt. If `activated` is given, y receives the product plus bias, and
/// `activated` receives gelu(y). `partials` requires p.pre and receives the sums of y over blocks of rows.
template <class T, class Y>
bool run_warpgroup_product(Context<Cuda>& context, Product<T, Y> const& p, T* activated = nullptr,
                           compute_t<T>* partials = nullptr) {
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, Y>) {
    if (p.a_transposed || (p.pre && (p.bias || p.residual)) || (activated && (p.pre || p.residual)) ||
        (partials && !p.pre))
      return false;
    if (!suits_warpgroups(p.rows, p.columns, p.depth)) return false;
    FinishedProduct<T> finished{
        p.rows, p.columns, p.depth, p.y, nullptr, p.bias, static_cast<float>(p.scale)};
    auto const run = [&]<ProductEnd End>(std::integral_constant<ProductEnd, End>) {
      return p.b_transposed ? run_finished_product<T, false, End>(context.stream(), p.a, p.b, finished)
                            : run_finished_product<T, true, End>(context.stream(), p.a, p.b, finished);
    };
    if (activated) {
      finished.y = activated;
      finished.pre = p.y;
      return run(std::integral_constant<ProductEnd, ProductEnd::gelu>{});
    }
    if (p.pre) {
      finished.pre = const_cast<T*>(p.pre);  // this epilogue only reads it
      finished.partials = partials;
      return run(std::integral_constant<ProductEnd, ProductEnd::gelu_derivative>{});
    }
    if (p.residual) {
      finished.pre = const_cast<T*>(p.residual);
      return run(std::integral_constant<ProductEnd, ProductEnd::residual>{});
    }
    return run(std::integral_constant<ProductEnd, ProductEnd::bias>{});
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<Y, float>) {
    int const terms = piece_terms(context.math().product);
    std::size_t const capacity = p.pre ? 0 : context.workspace().size();
    return terms > 0 && !activated &&
           suits_planes(p.rows, p.columns, p.depth, terms, capacity, p.residual != nullptr) &&
           run_by_planes(context, p, terms, partials);
  } else {
    return false;
  }
}

/// Runs a product. If neither the Hopper kernels nor a cuBLASLt plan can apply gelu' in the epilogue, a
/// second pass multiplies by gelu'. A 16-bit result is then rounded twice. Shape, type and alignment decide
/// whether this happens.
template <class T, class Y>
void run_product(Context<Cuda>& context, Product<T, Y> const& p) {
  if (p.rows == 0 || p.columns == 0 || run_warpgroup_product(context, p) || run_planned_product(context, p))
    return;
  if constexpr (std::is_same_v<T, Y>) {
    Product<T, Y> plain = p;
    plain.pre = nullptr;
    if (p.pre && ((std::is_same_v<T, float> && run_warpgroup_product(context, plain)) ||
                  run_planned_product(context, plain)))
      return run_transform<compute_t<T>>(context.stream(), p.rows * p.columns, TimesGeluDerivative<T>{},
                                         p.pre, p.y);
  }
  run_tiled_product(context.stream(), p);
}

template <class T, class Y>
Product<T, Y> product_of(Tensor<T const, Cuda> a, bool a_transposed, Tensor<T const, Cuda> b,
                         bool b_transposed, Tensor<Y, Cuda> y) {
  return {.rows = y.shape().rows(),
          .columns = y.shape().columns(),
          .depth = a_transposed ? a.shape().rows() : a.shape().columns(),
          .a = a.data(),
          .a_transposed = a_transposed,
          .b = b.data(),
          .b_transposed = b_transposed,
          .y = y.data()};
}

static_assert(ProductTiles::rows == ops::linear_block_rows);

struct Linear {
  /// Computes y. The activation function is applied to the rounded value that is stored in `pre`, with the
  /// expression of Elementwise::activate. So a fused activation gives the same bits as a separate one. (The
  /// activation in cuBLASLt's epilogue would use the value before rounding.)
  template <class T>
  static void forward(Context<Cuda>& context, Tensor<T const, Cuda> x, ops::Operand<T, Cuda> const& w,
                      Tensor<T, Cuda> y, ops::LinearOptions<T, Cuda> const& with) {
    bool const activates = with.activation != Activation::none;
    Product<T> p = product_of(x, false, w.values, with.transposed, y);
    p.bias = with.bias.data();
    p.residual = with.residual.data();
    p.scale = with.scale;
    if (activates) p.y = with.pre.data();
    if (with.activation == Activation::gelu && run_warpgroup_product(context, p, y.data())) return;
    run_product(context, p);
    if (activates) Elementwise::activate(context, with.activation, Tensor<T const, Cuda>(with.pre), y);
  }

  template <class T>
  static void backward_input(Context<Cuda>& context, Tensor<T const, Cuda> dy, ops::Operand<T, Cuda> const& w,
                             Tensor<T, Cuda> dx, ops::LinearInputOptions<T, Cuda> const& with) {
    Product<T> p = product_of(dy, false, w.values, !with.transposed, dx);
    p.residual = with.residual.data();
    p.scale = with.scale;
    if (with.activation == Activation::gelu) p.pre = with.pre.data();
    if (with.partials && run_warpgroup_product<T>(context, p, nullptr, with.partials.data())) return;
    run_product(context, p);
    switch (with.activation) {
      case Activation::relu:  // multiplying by 0 or 1 is exact
        run_transform<compute_t<T>>(context.stream(), dx.elements(), TimesReluDerivative{}, with.pre.data(),
                                    dx.data());
        break;
      case Activation::gelu:  // the product has already multiplied by gelu'
      case Activation::none:
        break;
    }
    if (with.partials) {
      std::int64_t const rows = dx.shape().rows(), columns = dx.shape().columns();
      run_row_block_sums(context.stream(), dx.data(), rows, columns, ops::linear_block_rows,
                         ops::linear_partial_rows(rows), 0, columns, with.partials.data());
    }
  }

  /// Computes dw with a product, and the bias gradient with separate kernels. This is faster than one
  /// cuBLASLt product that also sums dy over the rows.
  template <class T, class G>
  static void backward_weight(Context<Cuda>& context, Tensor<T const, Cuda> x, Tensor<T const, Cuda> dy,
                              Tensor<G, Cuda> dw, ops::LinearWeightOptions<T, Cuda> const& with) {
    if (dw)
      run_product(context,
                  with.transposed ? product_of(dy, true, x, false, dw) : product_of(x, true, dy, false, dw));
    std::int64_t const rows = dy.shape().rows(), columns = dy.shape().columns();
    if (with.dbias && with.partials && rows > 0)
      sum_partials(context, with.partials.data(), with.partials.shape().rows(), columns, with.dbias.data());
    else if (with.dbias)
      run_column_sums(context, dy.data(), rows, columns, with.dbias.data());
  }
};

}  // namespace cuda

template <>
struct backend::Linear<Cuda> : cuda::Linear {};

}  // namespace v0
}  // namespace tessera
