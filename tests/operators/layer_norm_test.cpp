// SPDX-License-Identifier: Apache-2.0
// Tests layer normalization against scalar code in double and against numerical derivatives.
#include "tessera/ops/layer_norm.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

constexpr double layer_norm_epsilon = 1e-5;

template <class T>
struct LayerNormInput {
  LayerNormInput(std::int64_t rows, std::int64_t columns)
      : x(reference::random<T>({rows, columns}, 1, 2.0)),
        gamma(reference::random<T>({columns}, 2)),
        beta(reference::random<T>({columns}, 3)),
        dy(reference::random<T>({rows, columns}, 4)),
        residual(reference::random<T>({rows, columns}, 5)) {}
  Array<T> x, gamma, beta, dy, residual;
};

template <class T>
struct LayerNormOutput {
  Array<T> y, dx, dgamma, dbeta;
  Array<compute_t<T>> mean, rstd;

  bool operator==(LayerNormOutput const&) const = default;
};

struct LayerNormVariant {
  // dx is written to separate memory, over dy, or over the residual's gradient.
  enum Result { separate, in_dy, in_residual };
  bool residual = false;
  std::int64_t offset = 0;  // every operand starts this many elements after an aligned address
  Result dx = separate;
  bool sums = false;  // also computes column sums of blocks of rows, which a GPU can do in the same pass
};

template <class T>
LayerNormOutput<T> layer_norm(Machine& machine, LayerNormInput<T> const& in,
                              LayerNormVariant const& variant = {}) {
  using S = compute_t<T>;
  std::int64_t const rows = in.x.shape.rows(), columns = in.x.shape.columns(),
                     blocks = ops::layer_norm_partial_rows(rows), offset = variant.offset;
  OnPlace<T> x(in.x, offset), gamma(in.gamma, offset), beta(in.beta, offset), dy(in.dy, offset),
      residual(in.residual, offset), y(poison<T>(in.x.shape), offset), own_dx(poison<T>(in.x.shape), offset),
      dgamma(poison<T>({columns}), offset), dbeta(poison<T>({columns}), offset);
  OnPlace<S> mean(poison<S>({rows}), offset), rstd(poison<S>({rows}), offset),
      partials(poison<S>({2, blocks, columns}), offset), residual_sums(poison<S>({blocks, columns}), offset),
      dx_sums(poison<S>({blocks, columns}), offset);
  OnPlace<T>& dx = variant.dx == variant.in_dy ? dy : variant.dx == variant.in_residual ? residual : own_dx;
  ops::NormSums<S, Place> sums;
  if (variant.sums) sums.dx = dx_sums.view();
  if (variant.sums && variant.residual) sums.residual_gradient = residual_sums.view();
  ops::layer_norm_forward(machine.context, x.view(), gamma.view(), beta.view(), layer_norm_epsilon, y.view(),
                          mean.view(), rstd.view());
  ops::layer_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(),
                                 variant.residual ? residual.view() : Tensor<T, Place>(), dx.view(),
                                 partials.view(), sums);
  ops::layer_norm_backward_weight(machine.context, partials.view(), rows, dgamma.view(), dbeta.view());
  machine.finish();
  if (variant.sums) CHECK(reference::sum_error(dx_sums.back(), dx.back()) <= 16);
  if (variant.sums && variant.residual) CHECK(reference::sum_error(residual_sums.back(), in.residual) <= 16);
  return {y.back(), dx.back(), dgamma.back(), dbeta.back(), mean.back(), rstd.back()};
}

/// Compares all results of layer normalization with scalar code, first without and then with a residual
/// gradient. A residual gradient is added to dx.
template <class T>
void check_layer_norm(Machine& machine, std::int64_t rows, std::int64_t columns) {
  CAPTURE(rows);
  CAPTURE(columns);
  LayerNormInput<T> const in(rows, columns);
  auto const& [x, gamma, beta, dy, residual] = in;
  auto const width = static_cast<std::size_t>(columns);
  std::vector<double> y, mean, rstd, dx, dx_floor, dgamma(width), dbeta(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    double average = 0, squares = 0, sum = 0, dot = 0;
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) average += x[i] / double(columns);
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      squares += (x[i] - average) * (x[i] - average) / double(columns);
    double const r = 1 / std::sqrt(squares + layer_norm_epsilon);
    mean.push_back(average);
    rstd.push_back(r);
    auto const normal = [&, row](std::int64_t i) { return (in.x[row * columns + i] - average) * r; };
    for (std::int64_t i = 0; i < columns; ++i) {
      double const slope = dy[row * columns + i];
      y.push_back(normal(i) * gamma[i] + beta[i]);
      sum += slope * gamma[i] / double(columns);
      dot += slope * gamma[i] * normal(i) / double(columns);
      dgamma[static_cast<std::size_t>(i)] += slope * normal(i);
      dbeta[static_cast<std::size_t>(i)] += slope;
    }
    for (std::int64_t i = 0; i < columns; ++i)
      dx.push_back(r * (dy[row * columns + i] * gamma[i] - sum - normal(i) * dot));
    dx_floor.insert(dx_floor.end(), width, 1 + r);
  }
  double const limit = reference::tolerance<T>(), tall = std::sqrt(double(rows));
  for (bool const with_residual : {false, true}) {
    CAPTURE(with_residual);
    if (with_residual)
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += residual[static_cast<std::int64_t>(i)];
    LayerNormOutput<T> const got = layer_norm(machine, in, {.residual = with_residual});
    CHECK(reference::error(got.y, y) < limit);
    CHECK(reference::error(got.mean, mean) < reference::tolerance<compute_t<T>>());
    CHECK(reference::error(got.rstd, rstd) < 4 * reference::tolerance<compute_t<T>>());
    CHECK(reference::error(got.dx, dx, dx_floor) < limit);
    CHECK(reference::error(got.dgamma, dgamma, tall) < limit);
    CHECK(reference::error(got.dbeta, dbeta, tall) < limit);
    // Further calls must give the same bits, also if the operands are not aligned, if dx overwrites dy or the
    // residual gradient, and if additional sums are computed.
    for (std::int64_t const offset : {0, 1})
      for (int sums = 0; sums <= int(test::on_gpu); ++sums)
        for (auto const result :
             {LayerNormVariant::separate, LayerNormVariant::in_dy, LayerNormVariant::in_residual})
          if (with_residual || result != LayerNormVariant::in_residual)
            CHECK(got == layer_norm(machine, in, {with_residual, offset, result, sums != 0}));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("layer norm matches scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const rows : {1, 7, 65, 130})
    for (std::int64_t const columns : {2, 7, 33, 128, 129, 768, 1032})
      check_layer_norm<T>(machine, rows, columns);
}

#ifdef __CUDACC__
TEST_CASE_TEMPLATE("layer norm of many rows and of long rows matches scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  check_layer_norm<T>(machine, 5003, 40);  // one thread block of a GPU handles several of these short rows
  check_layer_norm<T>(machine, 2117, 264);
  // A GPU uses one warp per row, and some threads of the warp have fewer values.
  check_layer_norm<T>(machine, 2117, 600);
  check_layer_norm<T>(machine, 601, 1600);
  // These lengths include the longest rows that fit into a GPU's registers, the shortest rows that do not
  // fit, and rows that are read in three parts.
  for (std::int64_t const columns : {2048, 2050, 4096, 4104, 8192, 8193, 16384, 16400, 33001})
    check_layer_norm<T>(machine, 5, columns);
  check_layer_norm<T>(machine, 1100, 2050);  // in fp64, these rows do not fit into registers
}
#endif

TEST_CASE("layer norm gradients match central differences") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  LayerNormInput<double> in(4, 9);
  LayerNormOutput<double> const got = layer_norm(machine, in);
  auto const loss = [&] { return reference::weighted(in.dy, layer_norm(machine, in).y); };
  CHECK(reference::error(got.dx, reference::central_differences(in.x, loss)) < 1e-8);
  CHECK(reference::error(got.dgamma, reference::central_differences(in.gamma, loss)) < 1e-8);
  CHECK(reference::error(got.dbeta, reference::central_differences(in.beta, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("layer norm has the same bits every time", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  LayerNormInput<T> const in(201, 77);
  CHECK(test::same_bits_every_time([&](Machine& machine) { return layer_norm(machine, in); }));
}

TEST_CASE("layer norm keeps NaN in its row and takes no rows at all") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  LayerNormInput<float> in(9, 40);
  in.x.at(3 * 40 + 5) = std::numeric_limits<float>::quiet_NaN();
  LayerNormOutput<float> const got = layer_norm(machine, in, {.residual = true});
  int wrong = 0;
  for (std::int64_t i = 0; i < 360; ++i) {
    wrong += std::isnan(got.y[i]) != (i / 40 == 3);
    wrong += std::isnan(got.dx[i]) != (i / 40 == 3);
  }
  CHECK(wrong == 0);
  LayerNormOutput<float> const none = layer_norm(machine, LayerNormInput<float>(0, 40));
  for (std::int64_t i = 0; i < 40; ++i) {
    CHECK(none.dgamma[i] == 0.0);
    CHECK(none.dbeta[i] == 0.0);
  }
}
