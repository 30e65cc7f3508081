// SPDX-License-Identifier: Apache-2.0
// Tests linear layers on a GPU: the fallback kernel for matrix products, the sums of columns, and bias
// gradients in batches. A second run must give identical bits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/row_sums.hpp"

#include "device/device.hpp"
#include "operators/reference.hpp"

using namespace tessera;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

struct Size {
  std::int64_t m, k, n;
};

/// Calls run(output) twice. Before each call, its output is filled with NaN. Checks that the two results have
/// the same bits, and returns the first result.
template <class T, class F>
reference::Array<T> twice(Gpu& gpu, Shape const& shape, F const& run) {
  OnGpu<T> first(poison<T>(shape)), second(poison<T>(shape));
  run(first.view());
  run(second.view());
  gpu.finish();
  reference::Array<T> const result = first.back();
  CHECK(reference::same_bits(result.values, second.back().values));
  return result;
}

/// Tests the fallback kernel for matrix products with all fused operations. Each of the two factors is once
/// transposed and once not.
template <class T>
void plain_product_matches(Gpu& gpu, Size size) {
  auto const [m, k, n] = size;
  CAPTURE(m);
  CAPTURE(k);
  CAPTURE(n);
  double const limit = reference::tolerance<T>(), scale = 1 + std::sqrt(static_cast<double>(k));
  for (bool a_transposed : {false, true})
    for (bool b_transposed : {false, true}) {
      reference::Array<T> a = reference::random<T>({m, k}, 1), b = reference::random<T>({k, n}, 2),
                          bias = reference::random<T>({n}, 3), residual = reference::random<T>({m, n}, 4),
                          pre = reference::random<T>({m, n}, 5, 3.0);
      OnGpu<T> ga(a), gb(b), gbias(bias), gresidual(residual), gpre(pre);
      std::vector<double> const exact = reference::product(a, a_transposed, b, b_transposed, m, n, k);
      cuda::Product<T> product{.rows = m,
                               .columns = n,
                               .depth = k,
                               .a = ga.cview().data(),
                               .a_transposed = a_transposed,
                               .b = gb.cview().data(),
                               .b_transposed = b_transposed,
                               .y = nullptr};
      auto const run = [&](cuda::Product<T> p) {
        return twice<T>(gpu, {m, n}, [&](Tensor<T, Cuda> y) {
          p.y = y.data();
          cuda::run_tiled_product(gpu.context.stream(), p);
        });
      };
      CHECK(reference::error(run(product), exact, scale) < limit);
      std::vector<double> sum = exact, slope = exact;
      for (std::int64_t i = 0; i < m * n; ++i) {
        sum[static_cast<std::size_t>(i)] += bias[i % n] + residual[i];
        slope[static_cast<std::size_t>(i)] *= reference::gelu_derivative(pre[i]);
      }
      cuda::Product<T> with_sums = product, with_slope = product;
      with_sums.bias = gbias.cview().data();
      with_sums.residual = gresidual.cview().data();
      with_slope.pre = gpre.cview().data();
      CHECK(reference::error(run(with_sums), sum, scale) < limit);
      CHECK(reference::error(run(with_slope), slope, scale) < limit);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, the plain product matches three loops", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (Size size : {Size{1, 1, 1}, Size{65, 37, 5}, Size{17, 300, 129}, Size{130, 33, 100}, Size{3, 0, 70}})
    plain_product_matches<T>(gpu, size);
}

TEST_CASE_TEMPLATE("on a GPU, column sums of many rows, also in pieces", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (std::int64_t columns : {1, 45, 1032}) {
    std::int64_t const rows = columns == 1 ? 70001 : 3001;
    CAPTURE(columns);
    reference::Array<T> const x = reference::random<T>({rows, columns}, 7);
    OnGpu<T> gx(x);
    std::vector<double> want(static_cast<std::size_t>(columns), 0.0);
    for (std::int64_t i = 0; i < rows * columns; ++i) want[static_cast<std::size_t>(i % columns)] += x[i];
    reference::Array<T> const whole = twice<T>(gpu, {columns}, [&](Tensor<T, Cuda> sums) {
      cuda::run_column_sums(gpu.context, gx.cview().data(), rows, columns, sums.data());
    });
    CHECK(reference::error(whole, want, std::sqrt(static_cast<double>(rows))) < reference::tolerance<T>());
    reference::Array<T> const pieces = twice<T>(gpu, {columns}, [&](Tensor<T, Cuda> sums) {
      cuda::run_column_sums(gpu.context, gx.cview().data(), rows, columns, sums.data(), 512 * 300);
    });
    CHECK(reference::same_bits(pieces.values, whole.values));
  }
}

namespace {

/// Computes bias gradients of many sizes and returns their values in one array. Each bias gradient is a sum
/// of partial sums. If `in_batch`, the sums of all gradients are computed in one batch, otherwise one after
/// the other. One of the gradients has the type float, the others bfloat16.
std::vector<float> bias_gradients(bool in_batch) {
  Gpu gpu;
  std::deque<OnGpu<bfloat16>> results, dy;
  std::deque<OnGpu<float>> partials, float_results, float_dy;
  auto const enqueue = [&]<class T>(std::deque<OnGpu<T>>& to, std::deque<OnGpu<T>>& unread,
                                    std::int64_t blocks, std::int64_t columns) {
    partials.emplace_back(reference::random<float>({blocks, columns}, static_cast<std::uint32_t>(blocks)));
    unread.emplace_back(poison<T>({7, columns}));
    to.emplace_back(poison<T>({columns}));
    ops::linear_backward_weight(gpu.context, Tensor<T, Cuda>(), unread.back().cview(), Tensor<T, Cuda>(),
                                {.dbias = to.back().view(), .partials = partials.back().cview()});
  };
  {
    std::optional<ops::RowSumBatch<Cuda, bfloat16>> batch;
    if (in_batch) batch.emplace(gpu.context);
    for (std::int64_t i = 0; i < 11; ++i) {
      enqueue(results, dy, 1 + 37 * i, 8 + 61 * (i % 5));
      CHECK((gpu.context.row_sums().size > 0) == in_batch);
      if (i == 3) enqueue(float_results, float_dy, 40, 100);
    }
  }
  gpu.finish();
  std::vector<float> all = float_results.front().back().values;
  for (OnGpu<bfloat16> const& each : results)
    for (bfloat16 const value : each.back().values) all.push_back(static_cast<float>(value));
  return all;
}

}  // namespace

TEST_CASE("GPU: bias gradients of a batch have the bits of sums that run one by one") {
  TESSERA_NEEDS_GPU();
  std::vector<float> const want = bias_gradients(false);
  CHECK(reference::same_bits(bias_gradients(true), want));
  for (float const value : want) CHECK(std::fabs(value) < 1e6f);
}
