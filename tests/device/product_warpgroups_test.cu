// SPDX-License-Identifier: Apache-2.0
// Tests the matrix product kernels that use Hopper's warpgroup instructions. Every fused epilogue is tested
// with both storage orders of the weight. Results are compared with products in double, and for equal bits
// with the results of cuBLASLt.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/backend/cuda/products/product_warpgroups.cuh"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/linear.hpp"

#include "device/device.hpp"
#include "operators/reference.hpp"

using namespace tessera;
using cuda::ProductEnd;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

struct Size {
  std::int64_t rows, columns, depth;
};

/// Computes one matrix product of the size `size` with the fused operations `End`. Checks the result y and
/// the additional outputs. The memory of y has `guard` rows after the result, which must not change.
template <class T, bool Rows, ProductEnd End>
void product_matches(Gpu& gpu, Size size) {
  auto const [m, n, k] = size;
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(Rows);
  constexpr std::int64_t guard = 3;
  constexpr float scale = 0.5f;
  double const limit = reference::tolerance<T>(), wide = 1 + std::sqrt(static_cast<double>(k));
  reference::Array<T> a = reference::random<T>({m, k}, 1), b = reference::random<T>({k, n}, 2),
                      bias = reference::random<T>({n}, 3), pre = reference::random<T>({m + guard, n}, 4, 3.0);
  OnGpu<T> ga(a), gb(b), gbias(bias), gpre(pre), gy(poison<T>({m + guard, n}));
  std::vector<double> want = reference::product(a, false, b, !Rows, m, n, k);
  bool const biased = cuda::adds_bias<End>;
  for (std::int64_t i = 0; i < m * n; ++i) {
    double& value = want[static_cast<std::size_t>(i)];
    value *= scale;
    if (biased) value += bias[i % n];
    if (End == ProductEnd::residual) value += pre[i];
    if (End == ProductEnd::gelu_derivative) value *= reference::gelu_derivative(pre[i]);
  }
  constexpr bool sums = cuda::sums_columns<End>;
  std::int64_t const blocks = (m + 127) / 128;
  OnGpu<float> gpartials(poison<float>({blocks + guard, n}));
  cuda::FinishedProduct<T> const product{m,
                                         n,
                                         k,
                                         gy.view().data(),
                                         gpre.view().data(),
                                         biased ? gbias.cview().data() : nullptr,
                                         scale,
                                         sums ? gpartials.view().data() : nullptr};
  bool const runs = cuda::run_finished_product<T, Rows, End>(gpu.context.stream(), ga.cview().data(),
                                                             gb.cview().data(), product);
  gpu.finish();
  REQUIRE(runs == cuda::has_warpgroups());
  if (!runs) return;
  reference::Array<T> y = gy.back(), saved_pre = gpre.back();
  reference::Array<T> const untouched = poison<T>({m + guard, n});
  for (std::int64_t i = m * n; i < (m + guard) * n; ++i) {
    REQUIRE(std::memcmp(&y.at(i), &untouched.values[static_cast<std::size_t>(i)], sizeof(T)) == 0);
    REQUIRE(saved_pre[i] == pre[i]);
  }
  reference::Array<float> partials = gpartials.back();
  reference::Array<float> const unsummed = poison<float>({blocks + guard, n});
  for (std::int64_t i = sums ? blocks * n : 0; i < (blocks + guard) * n; ++i)
    REQUIRE(std::memcmp(&partials.at(i), &unsummed.values[static_cast<std::size_t>(i)], sizeof(float)) == 0);
  if (sums) {
    std::vector<double> of_blocks(static_cast<std::size_t>(blocks * n), 0.0);
    for (std::int64_t i = 0; i < m * n; ++i)
      // The kernel sums y after it has rounded y to T.
      of_blocks[static_cast<std::size_t>(i / n / 128 * n + i % n)] += y[i];
    partials.values.resize(of_blocks.size());
    CHECK(reference::error(partials, of_blocks, std::sqrt(128.0)) < reference::tolerance<float>());
  }
  if (End == ProductEnd::gelu) {
    std::vector<double> activated;
    for (std::int64_t i = 0; i < m * n; ++i) activated.push_back(reference::gelu(saved_pre[i]));
    y.values.resize(activated.size());
    CHECK(reference::error(y, activated, 1.0) < limit);
    saved_pre.values.resize(want.size());
    CHECK(reference::error(saved_pre, want, wide) < limit);
  } else {
    y.values.resize(want.size());
    CHECK(reference::error(y, want, wide) < limit);
  }
}

template <class T, ProductEnd End>
void products_match(Gpu& gpu) {
  // m, n and k are chosen for the tiles of the kernel. Some results are smaller than one tile, some are
  // larger, and some have more tiles than the GPU has multiprocessors. All have partial tiles. The kernel
  // copies tiles to shared memory along the depth k. Some depths need one partial copy, some need fewer
  // copies than can be in flight at once, and some need more.
  for (Size size :
       {Size{1, 8, 8}, {77, 192, 72}, {129, 200, 64}, {300, 392, 328}, {3000, 1032, 136}, {40000, 200, 16}}) {
    product_matches<T, false, End>(gpu, size);
    product_matches<T, true, End>(gpu, size);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, products by warpgroups match three loops, whatever their end", T, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  products_match<T, ProductEnd::bias>(gpu);
  products_match<T, ProductEnd::residual>(gpu);
  products_match<T, ProductEnd::gelu>(gpu);
  products_match<T, ProductEnd::gelu_derivative>(gpu);
}

TEST_CASE_TEMPLATE("on a GPU, products by warpgroups have the library's bits", T, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  if (!cuda::has_warpgroups()) return;
  Gpu gpu;
  std::int64_t const m = 6000, n = 2304, k = 768;
  REQUIRE(cuda::suits_warpgroups(m, n, k));
  OnGpu<T> const x(reference::random<T>({m, k}, 1)), w(reference::random<T>({k, n}, 2)),
      bias(reference::random<T>({n}, 3));
  OnGpu<T> mine(poison<T>({m, n})), theirs(poison<T>({m, n}));
  for (bool transposed : {false, true}) {
    cuda::Product<T> p{.rows = m,
                       .columns = n,
                       .depth = k,
                       .a = x.cview().data(),
                       .a_transposed = false,
                       .b = w.cview().data(),
                       .b_transposed = transposed,
                       .y = mine.view().data(),
                       .bias = bias.cview().data()};
    CHECK(cuda::run_warpgroup_product(gpu.context, p));
    p.y = theirs.view().data();
    CHECK(cuda::run_planned_product(gpu.context, p));
    gpu.finish();
    CHECK(reference::same_bits(mine.back().values, theirs.back().values));
  }
}

// Calls the operations of linear layers at sizes for which they use the warpgroup kernels.
TEST_CASE_TEMPLATE("on a GPU, layers end as their operations say where products are by warpgroups", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  if (!cuda::has_warpgroups()) return;
  Gpu gpu;
  std::int64_t const m = 6000, n = 2304, k = 768;
  double const limit = reference::tolerance<T>(), wide = std::sqrt(static_cast<double>(k));
  Shape const out{m, n};
  OnGpu<T> const x(reference::random<T>({m, k}, 1)), w(reference::random<T>({k, n}, 2)),
      bias(reference::random<T>({n}, 3)), before(reference::random<T>(out, 4, 3.0));
  auto const values = [](reference::Array<T> const& of) {
    return std::vector<double>(of.values.begin(), of.values.end());
  };
  auto const library = [&](T const* added, T const* a_bias, bool transposed) {
    OnGpu<T> y(poison<T>(out));
    REQUIRE(cuda::run_planned_product(gpu.context, cuda::Product<T>{.rows = m,
                                                                    .columns = n,
                                                                    .depth = k,
                                                                    .a = x.cview().data(),
                                                                    .a_transposed = false,
                                                                    .b = w.cview().data(),
                                                                    .b_transposed = transposed,
                                                                    .y = y.view().data(),
                                                                    .bias = a_bias,
                                                                    .residual = added}));
    gpu.finish();
    return y.back();
  };
  T const* const none = nullptr;

  OnGpu<T> y(poison<T>(out)), pre(poison<T>(out)), again(poison<T>(out)), in_place(before.back());
  ops::linear(gpu.context, x.cview(), w.cview(), y.view(), {.residual = before.cview()});
  ops::linear(gpu.context, x.cview(), w.cview(), in_place.view(), {.residual = in_place.cview()});
  gpu.finish();
  CHECK(reference::error(y.back(), values(library(before.cview().data(), none, false)), wide) < limit);
  CHECK(reference::same_bits(in_place.back().values, y.back().values));

  ops::linear(gpu.context, x.cview(), w.cview(), y.view(),
              {.bias = bias.cview(), .activation = Activation::gelu, .pre = pre.view()});
  ops::activate(gpu.context, Activation::gelu, pre.cview(), again.view());
  gpu.finish();
  CHECK(reference::same_bits(pre.back().values, library(none, bias.cview().data(), false).values));
  CHECK(reference::same_bits(y.back().values, again.back().values));

  // Now w is stored as (n, k), and linear_backward_input computes dx = dy w^T. x is used as dy.
  OnGpu<T> const transposed(reference::random<T>({n, k}, 2));
  ops::linear_backward_input(gpu.context, x.cview(), transposed.cview(), y.view(),
                             {.activation = Activation::gelu, .pre = before.cview()});
  gpu.finish();
  std::vector<double> want = values(library(none, none, true));
  reference::Array<T> const at = before.back();
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] *= reference::gelu_derivative(at[static_cast<std::int64_t>(i)]);
  CHECK(reference::error(y.back(), want, wide) < 2 * limit);  // cuBLASLt rounded its result too
}

// Tests the operations of linear layers on fp32 values with the library's kernel "by planes", which splits
// each value into bf16 parts. The results are compared with sums of cuBLASLt's products of the parts.
TEST_CASE("on a GPU, layers end as their operations say where products are by planes") {
  TESSERA_NEEDS_GPU();
  if (!cuda::has_warpgroups()) return;
  std::int64_t const m = 4090, n = 2304, k = 768;
  Shape const out{m, n};
  OnGpu<float> const x(reference::random<float>({m, k}, 1)), w(reference::random<float>({k, n}, 2)),
      transposed(reference::random<float>({n, k}, 2)), bias(reference::random<float>({n}, 3)),
      before(reference::random<float>(out, 4, 3.0));
  // The two implementations sum in different orders. Differences are therefore relative to the sum of the
  // magnitudes of the terms.
  auto const near = [](reference::Array<float> const& got, reference::Array<float> const& want,
                       double magnitude) { return reference::error(got, want.values, magnitude) < 1e-5; };
  for (DType const product : {DType::bf16x6, DType::bf16x3}) {
    Gpu gpu(1 << 16, {.product = product});
    int const terms = piece_terms(product);
    bool const ours = cuda::processors() != 132 || (cuda::suits_planes(m, n, k, terms, 0) &&
                                                    cuda::suits_planes(k, n, m, terms, cuda::blas_bytes));
    // The H200, which has 132 multiprocessors, must use the library's kernel for these sizes.
    CHECK(ours);
    auto const library = [&](cuda::Product<float> p) {
      OnGpu<float> y(poison<float>({p.rows, p.columns}));
      p.y = y.view().data();
      REQUIRE(cuda::run_by_copies(gpu.context, p, terms));
      gpu.finish();
      return y.back();
    };
    cuda::Product<float> p{.rows = m,
                           .columns = n,
                           .depth = k,
                           .a = x.cview().data(),
                           .a_transposed = false,
                           .b = w.cview().data(),
                           .b_transposed = false,
                           .y = nullptr};
    OnGpu<float> y(poison<float>(out)), pre(poison<float>(out)), again(poison<float>(out)),
        in_place(before.back()), partials(poison<float>({ops::linear_partial_rows(m), n})),
        sums(poison<float>({ops::linear_partial_rows(m), n})), dw(poison<float>({k, n}));

    ops::linear(gpu.context, x.cview(), w.cview(), y.view(), {.residual = before.cview()});
    ops::linear(gpu.context, x.cview(), w.cview(), in_place.view(), {.residual = in_place.cview()});
    gpu.finish();
    p.residual = before.cview().data();
    CHECK(near(y.back(), library(p), 0.25 * k));
    CHECK(reference::same_bits(in_place.back().values, y.back().values));

    ops::linear(gpu.context, x.cview(), w.cview(), y.view(),
                {.bias = bias.cview(), .activation = Activation::gelu, .pre = pre.view()});
    ops::activate(gpu.context, Activation::gelu, pre.cview(), again.view());
    gpu.finish();
    p.residual = nullptr;
    p.bias = bias.cview().data();
    CHECK(near(pre.back(), library(p), 0.25 * k));
    CHECK(reference::same_bits(y.back().values, again.back().values));

    ops::linear_backward_input(
        gpu.context, x.cview(), transposed.cview(), y.view(),
        {.activation = Activation::gelu, .pre = before.cview(), .partials = partials.view()});
    cuda::run_row_block_sums(gpu.context.stream(), y.cview().data(), m, n, ops::linear_block_rows,
                             ops::linear_partial_rows(m), std::int64_t{0}, n, sums.view().data());
    gpu.finish();
    p.bias = nullptr;
    p.b = transposed.cview().data();
    p.b_transposed = true;
    reference::Array<float> want = library(p);
    reference::Array<float> const at = before.back();
    for (std::int64_t i = 0; i < m * n; ++i)
      want.at(i) = static_cast<float>(want[i] * reference::gelu_derivative(at[i]));
    CHECK(near(y.back(), want, 0.25 * k));
    CHECK(reference::error(partials.back(), sums.back().values, 100.0) < 1e-5);

    ops::linear_backward_weight(gpu.context, x.cview(), before.cview(), dw.view());
    gpu.finish();
    CHECK(near(dw.back(),
               library({.rows = k,
                        .columns = n,
                        .depth = m,
                        .a = x.cview().data(),
                        .a_transposed = true,
                        .b = before.cview().data(),
                        .b_transposed = false,
                        .y = nullptr}),
               0.75 * m));
  }
}

// The input gradient dx of a layer is the output gradient dy of the previous layer. The product that computes
// dx also computes the sums of the columns of dx. These sums give the bias gradient of the previous layer.
TEST_CASE_TEMPLATE("on a GPU, a bias has its gradient from the product that made its layer's", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  std::int64_t const m = 6001, n = 2304, k = 768;
  OnGpu<T> const x(reference::random<T>({m, k}, 1)), w(reference::random<T>({n, k}, 2)),
      before(reference::random<T>({m, n}, 4, 3.0));
  for (Activation const activation : {Activation::gelu, Activation::relu, Activation::none}) {
    ops::LinearInputOptions<T, Cuda> const plain{.activation = activation, .pre = before.cview()};
    OnGpu<T> y(poison<T>({m, n})), same(poison<T>({m, n})), dbias(poison<T>({n})), again(poison<T>({n})),
        alone(poison<T>({n}));
    OnGpu<float> partials(poison<float>({ops::linear_partial_rows(m), n}));
    ops::LinearInputOptions<T, Cuda> summed = plain;
    summed.partials = partials.view();
    for (OnGpu<T>* const to : {&dbias, &again}) {
      ops::linear_backward_input(gpu.context, x.cview(), w.cview(), y.view(), summed);
      ops::linear_backward_weight(gpu.context, Tensor<T, Cuda>(), y.cview(), Tensor<T, Cuda>(),
                                  {.dbias = to->view(), .partials = partials.cview()});
    }
    ops::linear_backward_input(gpu.context, x.cview(), w.cview(), same.view(), plain);
    ops::linear_backward_weight(gpu.context, Tensor<T, Cuda>(), y.cview(), Tensor<T, Cuda>(),
                                {.dbias = alone.view()});
    gpu.finish();
    CHECK(reference::same_bits(y.back().values, same.back().values));
    CHECK(reference::same_bits(dbias.back().values, again.back().values));
    reference::Array<T> const of = y.back();
    std::vector<double> want(static_cast<std::size_t>(n), 0.0);
    for (std::int64_t i = 0; i < m * n; ++i) want[static_cast<std::size_t>(i % n)] += of[i];
    double const tall = std::sqrt(static_cast<double>(m));
    CHECK(reference::error(dbias.back(), want, tall) < reference::tolerance<T>());
    CHECK(reference::error(alone.back(), want, tall) < reference::tolerance<T>());
  }
}
