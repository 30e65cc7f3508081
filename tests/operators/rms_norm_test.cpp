// SPDX-License-Identifier: Apache-2.0
// Tests RMS normalization against scalar code in double and against numerical derivatives.
#include "tessera/ops/rms_norm.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

constexpr double rms_norm_epsilon = 1e-5;

template <class T>
struct RmsNormInput {
  RmsNormInput(std::int64_t rows, std::int64_t columns)
      : x(reference::random<T>({rows, columns}, 1, 2.0)),
        gamma(reference::random<T>({columns}, 2)),
        dy(reference::random<T>({rows, columns}, 4)),
        residual(reference::random<T>({rows, columns}, 5)) {}
  Array<T> x, gamma, dy, residual;
};

template <class T>
struct RmsNormOutput {
  Array<T> y, dx, dgamma;
  Array<compute_t<T>> rstd;

  bool operator==(RmsNormOutput const&) const = default;
};

struct RmsNormVariant {
  bool residual = false;
  std::int64_t offset = 0;  // every operand starts this many elements after an aligned address
  bool in_place = false;    // writes dx over the residual's gradient if there is one, otherwise over dy
};

/// Runs forward and backward of RMS normalization and returns the results. Also checks that dx has the same
/// bits whether or not the partial sums for the weight gradient are requested.
template <class T>
RmsNormOutput<T> rms_norm(Machine& machine, RmsNormInput<T> const& in, RmsNormVariant const& variant = {}) {
  using S = compute_t<T>;
  std::int64_t const rows = in.x.shape.rows(), columns = in.x.shape.columns(), offset = variant.offset;
  OnPlace<T> x(in.x, offset), gamma(in.gamma, offset), dy(in.dy, offset), residual(in.residual, offset),
      y(poison<T>(in.x.shape), offset), own_dx(poison<T>(in.x.shape), offset),
      dx_alone(poison<T>(in.x.shape), offset), dgamma(poison<T>({columns}), offset);
  OnPlace<S> rstd(poison<S>({rows}), offset),
      partials(poison<S>({1, ops::layer_norm_partial_rows(rows), columns}), offset);
  OnPlace<T>& dx = !variant.in_place ? own_dx : variant.residual ? residual : dy;
  auto const added = variant.residual ? residual.view() : Tensor<T, Place>();
  ops::rms_norm_forward(machine.context, x.view(), gamma.view(), rms_norm_epsilon, y.view(), rstd.view());
  ops::rms_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(), rstd.view(), added,
                               dx_alone.view(), {});
  ops::rms_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(), rstd.view(), added,
                               dx.view(), partials.view());
  ops::rms_norm_backward_weight(machine.context, partials.view(), rows, dgamma.view());
  machine.finish();
  if (rows > 0) CHECK(same_bits(dx_alone.back().values, dx.back().values));
  return {y.back(), dx.back(), dgamma.back(), rstd.back()};
}

/// Compares all results of RMS normalization with scalar code, first without and then with a residual
/// gradient. A residual gradient is added to dx.
template <class T>
void check_rms_norm(Machine& machine, std::int64_t rows, std::int64_t columns) {
  CAPTURE(rows);
  CAPTURE(columns);
  RmsNormInput<T> const in(rows, columns);
  auto const width = static_cast<std::size_t>(columns);
  std::vector<double> y, rstd, dx, dx_floor, dgamma(width);
  for (std::int64_t begin = 0; begin < rows * columns; begin += columns) {
    double squares = 0, dot = 0;
    for (std::int64_t i = begin; i < begin + columns; ++i) squares += in.x[i] * in.x[i] / double(columns);
    double const r = 1 / std::sqrt(squares + rms_norm_epsilon);
    rstd.push_back(r);
    for (std::int64_t i = 0; i < columns; ++i) {
      double const normal = in.x[begin + i] * r, slope = in.dy[begin + i];
      y.push_back(normal * in.gamma[i]);
      dot += slope * in.gamma[i] * normal / double(columns);
      dgamma[static_cast<std::size_t>(i)] += slope * normal;
    }
    for (std::int64_t i = 0; i < columns; ++i)
      dx.push_back(r * (in.dy[begin + i] * in.gamma[i] - in.x[begin + i] * r * dot));
    dx_floor.insert(dx_floor.end(), width, 1 + r);
  }
  double const limit = reference::tolerance<T>();
  for (bool const with_residual : {false, true}) {
    CAPTURE(with_residual);
    if (with_residual)
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += in.residual[static_cast<std::int64_t>(i)];
    RmsNormOutput<T> const got = rms_norm(machine, in, {.residual = with_residual});
    CHECK(reference::error(got.y, y) < limit);
    CHECK(reference::error(got.rstd, rstd, 3.0) < reference::tolerance<compute_t<T>>());
    CHECK(reference::error(got.dx, dx, dx_floor) < limit);
    CHECK(reference::error(got.dgamma, dgamma, std::sqrt(double(rows))) < limit);
    // Further calls must give the same bits, also if the operands are not aligned or if dx overwrites an
    // operand.
    for (std::int64_t const offset : {0, 1})
      for (bool const in_place : {false, true})
        CHECK(got == rms_norm(machine, in, {with_residual, offset, in_place}));
    CHECK(same_bits(got.dgamma.values, rms_norm(machine, in).dgamma.values));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("rms norm matches scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const rows : {1, 7, 65, 130})
    for (std::int64_t const columns : {1, 2, 33, 128, 129, 768, 1032})
      check_rms_norm<T>(machine, rows, columns);
}

#ifdef __CUDACC__
TEST_CASE_TEMPLATE("rms norm of many rows and of long rows matches scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  check_rms_norm<T>(machine, 5003, 40);  // one thread block of a GPU handles several of these short rows
  check_rms_norm<T>(machine, 601, 1600);
  check_rms_norm<T>(machine, 33, 4096);
  // The first two lengths are the longest row that fits into a GPU's registers and the shortest row that does
  // not fit. A row of the third length is read in three parts.
  for (std::int64_t const columns : {8192, 8193, 33001}) check_rms_norm<T>(machine, 5, columns);
  check_rms_norm<T>(machine, 1100, 2050);  // in fp64, these rows do not fit into registers
}
#endif

TEST_CASE("rms norm gradients match central differences") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  RmsNormInput<double> in(4, 9);
  RmsNormOutput<double> const got = rms_norm(machine, in);
  auto const loss = [&] { return reference::weighted(in.dy, rms_norm(machine, in).y); };
  CHECK(reference::error(got.dx, reference::central_differences(in.x, loss)) < 1e-8);
  CHECK(reference::error(got.dgamma, reference::central_differences(in.gamma, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("rms norm has the same bits every time", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  RmsNormInput<T> const in(201, 77);
  CHECK(test::same_bits_every_time([&](Machine& machine) { return rms_norm(machine, in); }));
}

TEST_CASE("rms norm keeps NaN in its row, has finite results for a row of zeros and takes no rows at all") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  RmsNormInput<float> in(9, 40);
  in.x.at(3 * 40 + 5) = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = 5 * 40; i < 6 * 40; ++i) in.x.at(i) = 0.0f;
  for (bool const with_residual : {false, true}) {
    RmsNormOutput<float> const got = rms_norm(machine, in, {.residual = with_residual});
    int wrong = 0;
    for (std::int64_t i = 0; i < 360; ++i) {
      wrong += i / 40 == 3 ? !std::isnan(got.y[i]) : !std::isfinite(got.y[i]);
      wrong += i / 40 == 3 ? !std::isnan(got.dx[i]) : !std::isfinite(got.dx[i]);
      if (i / 40 == 5) wrong += got.y[i] != 0.0;
    }
    CHECK(wrong == 0);
  }
  RmsNormOutput<float> const none = rms_norm(machine, RmsNormInput<float>(0, 40));
  for (std::int64_t i = 0; i < 40; ++i) CHECK(none.dgamma[i] == 0.0);
}
