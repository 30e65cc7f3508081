// SPDX-License-Identifier: Apache-2.0
// Tests layer normalization against scalar code in double, central differences, and other numbers of threads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/layer_norm.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

constexpr double epsilon = 1e-5;

struct Norm {
  std::vector<double> y, mean, rstd;
};

template <class T>
Norm norm_reference(Array<T> const& x, Array<T> const& gamma, Array<T> const& beta) {
  std::int64_t const rows = x.shape.rows(), n = x.shape.columns();
  Norm result;
  for (std::int64_t row = 0; row < rows; ++row) {
    double mean = 0, squares = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += x[row * n + i] / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i)
      squares += std::pow(x[row * n + i] - mean, 2) / static_cast<double>(n);
    double const rstd = 1 / std::sqrt(squares + epsilon);
    result.mean.push_back(mean);
    result.rstd.push_back(rstd);
    for (std::int64_t i = 0; i < n; ++i)
      result.y.push_back((x[row * n + i] - mean) * rstd * gamma[i] + beta[i]);
  }
  return result;
}

/// Both passes of the gradient.
template <class T>
void backward(Machine& machine, Tensor<T> dy, Tensor<T> x, Tensor<T> gamma, Tensor<compute_t<T>> mean,
              Tensor<compute_t<T>> rstd, Tensor<T> residual, Tensor<T> dx, Tensor<T> dgamma,
              Tensor<T> dbeta) {
  std::int64_t const rows = x.shape().rows();
  Array<compute_t<T>> partials({2, ops::layer_norm_partial_rows(rows), x.shape().columns()});
  ops::layer_norm_backward_input(machine.context, dy, x, gamma, mean, rstd, residual, dx, partials.view());
  ops::layer_norm_backward_weight(machine.context, partials.view(), rows, dgamma, dbeta);
}

struct NormGradient {
  std::vector<double> dx, dgamma, dbeta;
};

template <class T>
NormGradient gradient_reference(Array<T> const& dy, Array<T> const& x, Array<T> const& gamma,
                                Norm const& norm) {
  std::int64_t const rows = x.shape.rows(), n = x.shape.columns();
  NormGradient result;
  result.dgamma.assign(static_cast<std::size_t>(n), 0.0);
  result.dbeta.assign(static_cast<std::size_t>(n), 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    double const mean = norm.mean[static_cast<std::size_t>(row)],
                 rstd = norm.rstd[static_cast<std::size_t>(row)];
    double sum = 0, dot = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double const normal = (x[row * n + i] - mean) * rstd, slope = dy[row * n + i];
      sum += slope * gamma[i] / static_cast<double>(n);
      dot += slope * gamma[i] * normal / static_cast<double>(n);
      result.dgamma[static_cast<std::size_t>(i)] += slope * normal;
      result.dbeta[static_cast<std::size_t>(i)] += slope;
    }
    for (std::int64_t i = 0; i < n; ++i)
      result.dx.push_back(rstd * (dy[row * n + i] * gamma[i] - sum - (x[row * n + i] - mean) * rstd * dot));
  }
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("layer norm matches the scalar form", T, float, double, half, bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  double const limit = reference::tolerance<T>();
  for (std::int64_t rows : {1, 7, 65, 130})
    for (std::int64_t n : {2, 7, 33, 128, 129, 768}) {
      Array<T> x = reference::random<T>({rows, n}, 1, 2.0), gamma = reference::random<T>({n}, 2),
               beta = reference::random<T>({n}, 3), dy = reference::random<T>({rows, n}, 4),
               residual = reference::random<T>({rows, n}, 5);
      Array<T> y({rows, n}), dx({rows, n}), dgamma({n}), dbeta({n});
      Array<S> mean({rows}), rstd({rows});
      ops::layer_norm_forward(machine.context, x.view(), gamma.view(), beta.view(), epsilon, y.view(),
                              mean.view(), rstd.view());
      Norm const want = norm_reference(x, gamma, beta);
      CHECK(reference::error(y, want.y) < limit);
      CHECK(reference::error(mean, want.mean) < reference::tolerance<S>());
      CHECK(reference::error(rstd, want.rstd) < 4 * reference::tolerance<S>());

      NormGradient gradient = gradient_reference(dy, x, gamma, want);
      backward<T>(machine, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(), {}, dx.view(),
                  dgamma.view(), dbeta.view());
      double const tall = std::sqrt(static_cast<double>(rows));
      CHECK(reference::error(dx, gradient.dx, 1 + want.rstd[0]) < limit);
      CHECK(reference::error(dgamma, gradient.dgamma, tall) < limit);
      CHECK(reference::error(dbeta, gradient.dbeta, tall) < limit);

      for (std::int64_t i = 0; i < rows * n; ++i) gradient.dx[static_cast<std::size_t>(i)] += residual[i];
      backward<T>(machine, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(), residual.view(),
                  dx.view(), dgamma.view(), dbeta.view());
      CHECK(reference::error(dx, gradient.dx, 1 + want.rstd[0]) < limit);
      backward<T>(machine, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(), residual.view(),
                  residual.view(), dgamma.view(), dbeta.view());
      CHECK(reference::same_bits(residual.values, dx.values));
      backward<T>(machine, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(), {}, dy.view(),
                  dgamma.view(), dbeta.view());
      CHECK(reference::error(dgamma, gradient.dgamma, tall) < limit);
    }
}

TEST_CASE("layer norm gradients match central differences") {
  Machine machine(2);
  std::int64_t const rows = 4, n = 9;
  Array<double> x = reference::random<double>({rows, n}, 1, 2.0), gamma = reference::random<double>({n}, 2),
                beta = reference::random<double>({n}, 3), weights = reference::random<double>({rows, n}, 4);
  Array<double> y({rows, n}), mean({rows}), rstd({rows}), dx({rows, n}), dgamma({n}), dbeta({n});
  auto const loss = [&] {
    ops::layer_norm_forward(machine.context, x.view(), gamma.view(), beta.view(), epsilon, y.view(),
                            mean.view(), rstd.view());
    return reference::weighted(weights, y);
  };
  loss();
  backward<double>(machine, weights.view(), x.view(), gamma.view(), mean.view(), rstd.view(), {}, dx.view(),
                   dgamma.view(), dbeta.view());
  CHECK(reference::error(dx, reference::central_differences(x, loss)) < 1e-8);
  CHECK(reference::error(dgamma, reference::central_differences(gamma, loss)) < 1e-8);
  CHECK(reference::error(dbeta, reference::central_differences(beta, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("layer norm has the same bits for every number of threads", T, float, double, half,
                   bfloat16) {
  using S = compute_t<T>;
  std::int64_t const rows = 201, n = 77;
  Array<T> x = reference::random<T>({rows, n}, 1), gamma = reference::random<T>({n}, 2),
           beta = reference::random<T>({n}, 3), dy = reference::random<T>({rows, n}, 4);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> y({rows, n}), dx({rows, n}), dgamma({n}), dbeta({n});
    Array<S> mean({rows}), rstd({rows});
    ops::layer_norm_forward(machine.context, x.view(), gamma.view(), beta.view(), epsilon, y.view(),
                            mean.view(), rstd.view());
    backward<T>(machine, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(), {}, dx.view(),
                dgamma.view(), dbeta.view());
    for (Array<T> const* more : {&dx, &dgamma, &dbeta})
      y.values.insert(y.values.end(), more->values.begin(), more->values.end());
    return y.values;
  }));
}

TEST_CASE("layer norm keeps NaN in its row") {
  Machine machine(2);
  Array<float> x = reference::random<float>({3, 20}, 1), gamma({20}, 1.0f), beta({20}), y({3, 20}), mean({3}),
               rstd({3});
  x.at(25) = std::numeric_limits<float>::quiet_NaN();
  ops::layer_norm_forward(machine.context, x.view(), gamma.view(), beta.view(), epsilon, y.view(),
                          mean.view(), rstd.view());
  int wrong = 0;
  for (std::int64_t i = 0; i < 60; ++i) wrong += std::isnan(y[i]) != (i / 20 == 1);
  CHECK(wrong == 0);
}
