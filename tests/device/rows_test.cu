// SPDX-License-Identifier: Apache-2.0
// Tests that operations over rows have the bits of one-by-one operations, and batched sums over rows those of
// separate ones.
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/ops/row_sums.hpp"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/adamw.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

enum class Run { one_by_one, rows, rows_in_a_graph };

template <class T>
void append_bits(std::vector<std::uint64_t>& bits, std::vector<T> const& values) {
  for (T const& value : values) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    bits.push_back(0);
    std::memcpy(&bits.back(), &value, sizeof value);
  }
}

/// Updates and norms of `count` arrays of many lengths. Every fifth array is not aligned, every ninth is
/// empty, and two gradients have a value that is not finite. With T void, the master is the weights.
template <class G, class S, class T>
struct Updated {
  using W = std::conditional_t<std::is_void_v<T>, S, T>;

  Updated(Run run, std::uint32_t count, std::int64_t skipped) {
    AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    auto const factors_of = [&](bool decayed) {
      return Array<AdamWFactors<S>>({1}, adamw_factors<S>(options, 3e-3, 0.9, 0.95, 0.3, decayed));
    };
    OnGpu<AdamWFactors<S>> const decayed(factors_of(true)), plain(factors_of(false));
    OnGpu<std::int64_t> const skip(Array<std::int64_t>({1}, skipped));
    OnGpu<BadElement> bad(Array<BadElement>({1}, BadElement{}));
    constexpr std::int64_t lengths[] = {1, 7, 4096, 4097, 33000, 65536, 12289};
    std::vector<ops::UpdateRow> updates;
    std::vector<ops::NormRow> norms;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::int64_t const n = lengths[i % 7], from = i % 5 == 4 && n > 1;
      arrays.push_back(std::make_unique<Arrays>(n, i, i == 16 || i == 52));
      Arrays& at = *arrays.back();
      updates.push_back({i % 9 == 8 ? 0 : n - from,
                         0,
                         at.gradient.view().data() + from,
                         at.master.view().data() + from,
                         {at.first.view().data() + from, at.second.view().data() + from},
                         std::is_void_v<T> ? nullptr : at.weights.view().data() + from,
                         (i % 2 ? decayed : plain).cview().data()});
      norms.push_back({at.gradient.view().data() + from,
                       at.partials.view().data(),
                       updates.back().elements,
                       0,
                       {bad.view().data(), i, 1000 * i}});
    }
    if (run == Run::one_by_one) {
      for (ops::UpdateRow const& row : updates)
        ops::adamw(gpu.context, row.elements, static_cast<G const*>(row.gradient),
                   static_cast<S*>(row.master), static_cast<S*>(row.states[0]),
                   static_cast<S*>(row.states[1]), static_cast<W*>(row.weights),
                   static_cast<AdamWFactors<S> const*>(row.factors), skip.cview().data());
      for (ops::NormRow const& row : norms)
        ops::norm_partials(
            gpu.context, Tensor<G const, Cuda>{static_cast<G const*>(row.values), {row.elements}},
            Tensor<float, Cuda>{static_cast<float*>(row.partials), {(row.elements + 4095) / 4096}}, row.note);
    } else {
      test::DeviceBytes update_bytes(count * sizeof(ops::UpdateRow)),
          norm_bytes(count * sizeof(ops::NormRow));
      auto const update_rows = placed(updates, update_bytes);
      auto const norm_rows = placed(norms, norm_bytes);
      gpu.context.replay(0, run == Run::rows_in_a_graph, [&] {
        gpu.context.begin(0, Lane::compute, {});
        ops::adamw<G, S, T>(gpu.context, update_rows, skip.cview().data());
        ops::norm_partials<G, float>(gpu.context, norm_rows);
        gpu.context.end(0, false);
      });
      gpu.finish();
    }
    gpu.finish();
    for (auto& at : arrays) {
      append_bits(bits, at->master.back().values);
      append_bits(bits, at->first.back().values);
      append_bits(bits, at->second.back().values);
      append_bits(bits, at->weights.back().values);
      append_bits(bits, at->partials.back().values);
    }
    BadElement const found = bad.back().values[0];
    unit = found.unit;
    element = found.element;
  }

  template <class Row>
  static ops::Rows<Row> placed(std::vector<Row>& rows, test::DeviceBytes const& memory) {
    auto const result = ops::number_rows<Row>(rows, reinterpret_cast<Row const*>(memory.data()));
    cuda::require(cudaMemcpy(memory.data(), rows.data(), rows.size() * sizeof(Row), cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // lanes ignore the default stream
    return result;
  }

  struct Arrays {
    Arrays(std::int64_t n, std::uint32_t seed, bool broken)
        : gradient(drawn(n, seed, broken)),
          weights(poison<W>({n})),
          master(reference::random<S>({n}, seed + 1000)),
          first(reference::random<S>({n}, seed + 2000, 1e-3)),
          second(Array<S>({n}, S(1e-4f))),
          partials(poison<float>({(n + 4095) / 4096})) {}
    static Array<G> drawn(std::int64_t n, std::uint32_t seed, bool broken) {
      Array<G> result = reference::random<G>({n}, seed, 0.5);
      if (broken) result.at(n - 1) = G(std::numeric_limits<float>::infinity());
      return result;
    }
    OnGpu<G> gradient;
    OnGpu<W> weights;
    OnGpu<S> master, first, second;
    OnGpu<float> partials;
  };
  Gpu gpu;
  std::vector<std::unique_ptr<Arrays>> arrays;
  std::vector<std::uint64_t> bits;
  std::int64_t unit = -1, element = -1;
};

template <class G, class S, class T>
void rows_are_like_one_by_one(std::uint32_t count, std::int64_t skipped) {
  Updated<G, S, T> const want(Run::one_by_one, count, skipped);
  for (Run const run : {Run::rows, Run::rows_in_a_graph}) {
    Updated<G, S, T> const got(run, count, skipped);
    CHECK(got.bits == want.bits);
    CHECK(got.unit == want.unit);
    CHECK(got.element == want.element);
  }
  CHECK(want.unit == (count > 52 ? 52 : count > 16 ? 16 : -1));
}

/// Sums over rows for the layers of a block, batched or not.
struct Summed {
  explicit Summed(bool in_batch, int layers) {
    constexpr std::int64_t rows = 3000, columns = 200;
    std::int64_t const count = ops::layer_norm_partial_rows(rows);
    OnGpu<float> const norm_sums(reference::random<float>({2, count, columns}, 3)),
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
        // This one forms partial sums in the workspace and adds them up at once.
        ops::linear_backward_weight(gpu.context, x.cview(), dy.cview(), result({columns, columns}),
                                    {.dbias = result({columns})});
        Tensor<bfloat16, Cuda> const dgamma = result({columns}), dbeta = result({columns});
        ops::layer_norm_backward_weight(gpu.context, norm_sums.cview(), rows, dgamma, dbeta);
      }
      CHECK((gpu.context.row_sums().size > 0) == in_batch);
    }
    CHECK(gpu.context.row_sums().size == 0);
    gpu.finish();
    for (auto const& each : results) append_bits(bits, each->back().values);
  }
  Gpu gpu;
  std::vector<std::uint64_t> bits;
};

}  // namespace

TEST_CASE("GPU: updates and norms of rows have the bits of calls one by one") {
  TESSERA_NEEDS_GPU();
  for (std::int64_t const skipped : {0, 1}) {
    rows_are_like_one_by_one<bfloat16, float, bfloat16>(120, skipped);
    rows_are_like_one_by_one<bfloat16, float, void>(120, skipped);
    rows_are_like_one_by_one<float, float, void>(120, skipped);
    rows_are_like_one_by_one<double, double, void>(30, skipped);
    rows_are_like_one_by_one<bfloat16, float, bfloat16>(1, skipped);
  }
  rows_are_like_one_by_one<float, float, bfloat16>(300, 0);  // more rows than one block of threads handles
}

TEST_CASE("GPU: operations of no rows do nothing") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  ops::adamw<float, float, void>(gpu.context, ops::Rows<ops::UpdateRow>(), nullptr);
  ops::norm_partials<float, float>(gpu.context, ops::Rows<ops::NormRow>());
  gpu.finish();
}

TEST_CASE("GPU: sums over rows in a batch have the bits of sums without one") {
  TESSERA_NEEDS_GPU();
  for (int const layers : {1, 4}) {  // 3 sums, and more than one launch takes
    Summed const want(false, layers), got(true, layers);
    CHECK(got.bits == want.bits);
  }
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
