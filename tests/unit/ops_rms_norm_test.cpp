// SPDX-License-Identifier: Apache-2.0
// Tests RMS normalization against scalar code in double, central differences, and other numbers of threads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/rms_norm.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

constexpr double epsilon = 1e-5;

/// All results of the passes; dx includes a residual's gradient if one is given.
template <class T>
struct Results {
  Array<T> y, dx, dgamma;
  Array<compute_t<T>> rstd;

  Results(Machine& machine, Array<T>& x, Array<T>& gamma, Array<T>& dy, Tensor<T> residual = {})
      : y(x.shape), dx(x.shape), dgamma(gamma.shape), rstd({x.shape.rows()}) {
    std::int64_t const rows = x.shape.rows();
    Array<compute_t<T>> partials({1, ops::layer_norm_partial_rows(rows), x.shape.columns()});
    ops::rms_norm_forward(machine.context, x.view(), gamma.view(), epsilon, y.view(), rstd.view());
    ops::rms_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(), rstd.view(), residual,
                                 dx.view(), partials.view());
    ops::rms_norm_backward_weight(machine.context, partials.view(), rows, dgamma.view());
  }
};

struct Reference {
  std::vector<double> y, rstd, dx, dgamma;

  template <class T>
  Reference(Array<T> const& x, Array<T> const& gamma, Array<T> const& dy) : dgamma(gamma.values.size(), 0.0) {
    std::int64_t const rows = x.shape.rows(), n = x.shape.columns();
    for (std::int64_t at = 0; at < rows * n; at += n) {
      double squares = 0, dot = 0;
      for (std::int64_t i = 0; i < n; ++i) squares += x[at + i] * x[at + i] / static_cast<double>(n);
      double const r = 1 / std::sqrt(squares + epsilon);
      rstd.push_back(r);
      for (std::int64_t i = 0; i < n; ++i) {
        y.push_back(x[at + i] * r * gamma[i]);
        dot += dy[at + i] * gamma[i] * x[at + i] * r / static_cast<double>(n);
        dgamma[static_cast<std::size_t>(i)] += dy[at + i] * x[at + i] * r;
      }
      for (std::int64_t i = 0; i < n; ++i) dx.push_back(r * (dy[at + i] * gamma[i] - x[at + i] * r * dot));
    }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("rms norm matches the scalar form", T, float, double, half, bfloat16) {
  Machine machine(2);
  double const limit = reference::tolerance<T>();
  for (std::int64_t rows : {1, 7, 65, 130})
    for (std::int64_t n : {1, 2, 33, 128, 129, 768}) {
      Array<T> x = reference::random<T>({rows, n}, 1, 2.0), gamma = reference::random<T>({n}, 2),
               dy = reference::random<T>({rows, n}, 4), residual = reference::random<T>({rows, n}, 5);
      Reference want(x, gamma, dy);
      double const tall = std::sqrt(static_cast<double>(rows));
      Results<T> const got(machine, x, gamma, dy);
      CHECK(reference::error(got.y, want.y) < limit);
      CHECK(reference::error(got.rstd, want.rstd) < 4 * reference::tolerance<compute_t<T>>());
      CHECK(reference::error(got.dx, want.dx, 1 + want.rstd[0]) < limit);
      CHECK(reference::error(got.dgamma, want.dgamma, tall) < limit);

      for (std::int64_t i = 0; i < rows * n; ++i) want.dx[static_cast<std::size_t>(i)] += residual[i];
      Results<T> const added(machine, x, gamma, dy, residual.view());
      CHECK(reference::error(added.dx, want.dx, 1 + want.rstd[0]) < limit);
      CHECK(reference::same_bits(added.dgamma.values, got.dgamma.values));
      ops::rms_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(),
                                   Array<compute_t<T>>(got.rstd).view(), residual.view(), residual.view(),
                                   {});
      CHECK(reference::same_bits(residual.values, added.dx.values));
      ops::rms_norm_backward_input(machine.context, dy.view(), x.view(), gamma.view(),
                                   Array<compute_t<T>>(got.rstd).view(), {}, dy.view(), {});
      CHECK(reference::same_bits(dy.values, got.dx.values));
    }
}

TEST_CASE("rms norm gradients match central differences") {
  Machine machine(2);
  Array<double> x = reference::random<double>({4, 9}, 1, 2.0), gamma = reference::random<double>({9}, 2),
                weights = reference::random<double>({4, 9}, 3);
  Results<double> const got(machine, x, gamma, weights);
  auto const loss = [&] {
    return reference::weighted(weights, Results<double>(machine, x, gamma, weights).y);
  };
  CHECK(reference::error(got.dx, reference::central_differences(x, loss)) < 1e-8);
  CHECK(reference::error(got.dgamma, reference::central_differences(gamma, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("rms norm has the same bits for every number of threads", T, float, double, half,
                   bfloat16) {
  Array<T> x = reference::random<T>({201, 77}, 1), gamma = reference::random<T>({77}, 2),
           dy = reference::random<T>({201, 77}, 4);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Results<T> got(machine, x, gamma, dy);
    for (Array<T> const* more : {&got.dx, &got.dgamma})
      got.y.values.insert(got.y.values.end(), more->values.begin(), more->values.end());
    return got.y.values;
  }));
}

TEST_CASE("rms norm keeps NaN in its row and has a finite row of zeros") {
  Machine machine(2);
  Array<float> x = reference::random<float>({3, 20}, 1), gamma({20}, 1.0f), dy({3, 20}, 1.0f);
  x.at(25) = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = 40; i < 60; ++i) x.at(i) = 0.0f;
  Results<float> const got(machine, x, gamma, dy);
  int wrong = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    wrong += std::isnan(got.y[i]) != (i / 20 == 1);
    wrong += std::isnan(got.dx[i]) != (i / 20 == 1);
  }
  CHECK(wrong == 0);
  CHECK(got.y[45] == 0.0);
}
