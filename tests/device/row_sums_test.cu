// SPDX-License-Identifier: Apache-2.0
// Tests that sums over the rows of several tensors, computed in one kernel launch, have the bits of separate
// sums.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/row_sums.hpp"

#include "device/device.hpp"

using namespace tessera;
using reference::poison;
using test::Gpu;
using test::OnGpu;

namespace {

/// Computes the bias gradients and norm gradients of `layers` layers, and returns their values in one array.
/// The last operation for each gradient is a sum of partial sums over rows. If `in_batch`, the sums of all
/// gradients are computed in one batch, otherwise one after another.
std::vector<bfloat16> summed(bool in_batch, int layers) {
  constexpr std::int64_t rows = 3000, columns = 200;
  Gpu gpu;
  OnGpu<float> const norm_sums(reference::random<float>({2, ops::layer_norm_partial_rows(rows), columns}, 3)),
      bias_sums(reference::random<float>({24, columns}, 4));
  OnGpu<bfloat16> const x(reference::random<bfloat16>({rows, columns}, 5)),
      dy(reference::random<bfloat16>({rows, columns}, 6));
  std::vector<std::unique_ptr<OnGpu<bfloat16>>> results;
  auto const result = [&](Shape const& shape) {
    results.push_back(std::make_unique<OnGpu<bfloat16>>(poison<bfloat16>(shape)));
    return results.back()->view();
  };
  {
    std::optional<ops::RowSumBatch<Cuda, bfloat16>> batch;
    if (in_batch) batch.emplace(gpu.context);
    for (int i = 0; i < layers; ++i) {
      ops::linear_backward_weight(gpu.context, x.cview(), dy.cview(), result({columns, columns}),
                                  {.dbias = result({columns}), .partials = bias_sums.cview()});
      // This call computes its own partial sums in the workspace, which the next call overwrites. The call
      // therefore computes the bias gradient at once, not in the batch.
      ops::linear_backward_weight(gpu.context, x.cview(), dy.cview(), result({columns, columns}),
                                  {.dbias = result({columns})});
      Tensor<bfloat16, Cuda> const dgamma = result({columns}), dbeta = result({columns});
      ops::layer_norm_backward_weight(gpu.context, norm_sums.cview(), rows, dgamma, dbeta);
    }
    CHECK((gpu.context.row_sums().size > 0) == in_batch);
  }
  CHECK(gpu.context.row_sums().size == 0);
  gpu.finish();
  std::vector<bfloat16> all;
  for (auto const& each : results) {
    auto const values = each->back().values;
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("GPU: sums over rows in a batch have the bits of sums without one") {
  TESSERA_NEEDS_GPU();
  for (int const layers : {1, 4})  // 1 layer has 3 sums; the sums of 4 layers need several kernel launches
    CHECK(reference::same_bits(summed(true, layers), summed(false, layers)));
}

TEST_CASE("GPU: one batch within another joins it, and one that an exception ends leaves none open") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  try {
    ops::RowSumBatch<Cuda, float> const outer(gpu.context);
    { ops::RowSumBatch<Cuda, float> const inner(gpu.context); }
    CHECK(gpu.context.collects_row_sums());
    throw 1;
  } catch (int) {
  }
  CHECK_FALSE(gpu.context.collects_row_sums());
  gpu.finish();
}
