// SPDX-License-Identifier: Apache-2.0
// Tests linear layers and GELU: forward against three loops, gradients against central differences, and
// identical bits for all numbers of threads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/activation.hpp"
#include "tessera/ops/linear.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

struct Size {
  std::int64_t m, k, n;
};
constexpr Size sizes[] = {{1, 1, 1}, {7, 17, 33}, {33, 48, 49}, {49, 129, 7}, {130, 33, 100}, {17, 300, 129}};

template <class T>
void forward_matches(Machine& machine, Size size) {
  auto const [m, k, n] = size;
  double const limit = reference::tolerance<T>(), scale = std::sqrt(static_cast<double>(k));
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           wt = reference::random<T>({n, k}, 3), bias = reference::random<T>({n}, 4),
           residual = reference::random<T>({m, n}, 5);
  Array<T> y({m, n}), pre({m, n}), again({m, n});
  std::vector<double> want = reference::product(x, false, w, false, m, n, k);
  ops::linear(machine.context, x.view(), w.view(), y.view());
  CHECK(reference::error(y, want, scale) < limit);
  for (std::int64_t i = 0; i < m * n; ++i) want[static_cast<std::size_t>(i)] += bias[i % n];
  ops::linear(machine.context, x.view(), w.view(), y.view(), {.bias = bias.view()});
  CHECK(reference::error(y, want, scale) < limit);

  ops::linear(machine.context, x.view(), w.view(), y.view(),
              {.bias = bias.view(), .activation = Activation::gelu, .pre = pre.view()});
  CHECK(reference::error(pre, want, scale) < limit);
  std::vector<double> activated;
  for (std::int64_t i = 0; i < m * n; ++i) activated.push_back(reference::gelu(pre[i]));
  CHECK(reference::error(y, activated) < limit);
  ops::activate(machine.context, Activation::gelu, pre.view(), again.view());
  CHECK(reference::same_bits(again.values, y.values));

  for (std::int64_t i = 0; i < m * n; ++i) want[static_cast<std::size_t>(i)] += residual[i];
  ops::linear(machine.context, x.view(), w.view(), y.view(),
              {.bias = bias.view(), .residual = residual.view()});
  CHECK(reference::error(y, want, scale) < limit);
  ops::linear(machine.context, x.view(), w.view(), residual.view(),
              {.bias = bias.view(), .residual = residual.view()});
  CHECK(reference::same_bits(residual.values, y.values));

  ops::linear(machine.context, x.view(), wt.view(), y.view(), {.transposed = true});
  CHECK(reference::error(y, reference::product(x, false, wt, true, m, n, k), scale) < limit);
}

template <class T>
void backward_matches(Machine& machine, Size size) {
  using S = compute_t<T>;
  auto const [m, k, n] = size;
  double const limit = reference::tolerance<T>(), wide = std::sqrt(static_cast<double>(n)),
               tall = std::sqrt(static_cast<double>(m));
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           wt = reference::random<T>({n, k}, 3), dy = reference::random<T>({m, n}, 4),
           pre = reference::random<T>({m, k}, 5, 3.0);
  Array<T> dx({m, k}), dw({k, n}), dbias({n}), dwt({n, k});
  Array<S> dwt_sums({n, k});
  std::vector<double> want = reference::product(dy, false, w, true, m, k, n);
  ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view());
  CHECK(reference::error(dx, want, wide) < limit);
  for (std::int64_t i = 0; i < m * k; ++i)
    want[static_cast<std::size_t>(i)] *= reference::gelu_derivative(pre[i]);
  ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view(),
                             {.activation = Activation::gelu, .pre = pre.view()});
  CHECK(reference::error(dx, want, wide) < limit);
  ops::linear_backward_input(machine.context, dy.view(), wt.view(), dx.view(), {.transposed = true});
  want = reference::product(dy, false, wt, false, m, k, n);
  CHECK(reference::error(dx, want, wide) < limit);
  Array<T> sum = pre;  // result of another product
  for (std::int64_t i = 0; i < m * k; ++i) want[static_cast<std::size_t>(i)] += pre[i];
  ops::linear_backward_input(machine.context, dy.view(), wt.view(), dx.view(),
                             {.transposed = true, .residual = pre.view()});
  CHECK(reference::error(dx, want, wide) < limit);
  ops::linear_backward_input(machine.context, dy.view(), wt.view(), sum.view(),
                             {.transposed = true, .residual = sum.view()});
  CHECK(reference::same_bits(sum.values, dx.values));

  std::vector<double> const want_weight = reference::product(x, true, dy, false, k, n, m);
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view());
  CHECK(reference::error(dw, want_weight, tall) < limit);
  std::fill(dw.values.begin(), dw.values.end(), T(9.0f));
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view(), {.dbias = dbias.view()});
  CHECK(reference::error(dw, want_weight, tall) < limit);
  std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
  for (std::int64_t i = 0; i < m * n; ++i) sums[static_cast<std::size_t>(i % n)] += dy[i];
  CHECK(reference::error(dbias, sums, tall) < limit);
  Array<T> alone({n});
  ops::linear_backward_weight(machine.context, Tensor<T>{}, dy.view(), Tensor<T>{}, {.dbias = alone.view()});
  CHECK(reference::error(alone, sums, tall) < limit);  // a bias gradient does not read x

  std::vector<double> const want_transposed = reference::product(dy, true, x, false, n, k, m);
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dwt.view(), {.transposed = true});
  CHECK(reference::error(dwt, want_transposed, tall) < limit);
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dwt_sums.view(), {.transposed = true});
  CHECK(reference::error(dwt_sums, want_transposed, tall) < reference::tolerance<S>());
}

}  // namespace

TEST_CASE_TEMPLATE("linear forward operations match three loops", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (Size size : sizes) forward_matches<T>(machine, size);
}

TEST_CASE_TEMPLATE("linear backward operations match three loops", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (Size size : sizes) backward_matches<T>(machine, size);
}

TEST_CASE_TEMPLATE("a linear layer takes its options together", T, float, double, half, bfloat16) {
  Machine machine(2);
  std::int64_t const m = 33, k = 17, n = 41;
  double const limit = reference::tolerance<T>(), scale = std::sqrt(static_cast<double>(k));
  for (bool transposed : {false, true})
    for (Activation activation : {Activation::gelu, Activation::relu}) {
      auto const value = [&](double x) {
        return activation == Activation::gelu ? reference::gelu(x) : std::fmax(x, 0.0);
      };
      auto const slope = [&](double x) {
        return activation == Activation::gelu ? reference::gelu_derivative(x) : static_cast<double>(x > 0);
      };
      Shape const shape = transposed ? Shape{n, k} : Shape{k, n};
      Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>(shape, 2),
               bias = reference::random<T>({n}, 3), residual = reference::random<T>({m, n}, 4),
               dy = reference::random<T>({m, n}, 5), before = reference::random<T>({m, k}, 6, 2.0);
      Array<T> y({m, n}), pre({m, n}), again({m, n}), dx({m, k}), dw(shape), dbias({n});
      std::vector<double> want = reference::product(x, false, w, transposed, m, n, k), activated;
      for (std::int64_t i = 0; i < m * n; ++i) want[static_cast<std::size_t>(i)] += bias[i % n];
      ops::linear(
          machine.context, x.view(), w.view(), y.view(),
          {.transposed = transposed, .bias = bias.view(), .activation = activation, .pre = pre.view()});
      CHECK(reference::error(pre, want, scale) < limit);
      for (std::int64_t i = 0; i < m * n; ++i) activated.push_back(value(pre[i]));
      CHECK(reference::error(y, activated) < limit);
      ops::activate(machine.context, activation, pre.view(), again.view());
      CHECK(reference::same_bits(again.values, y.values));
      for (std::int64_t i = 0; i < m * n; ++i) want[static_cast<std::size_t>(i)] += residual[i];
      ops::linear(machine.context, x.view(), w.view(), y.view(),
                  {.transposed = transposed, .bias = bias.view(), .residual = residual.view()});
      CHECK(reference::error(y, want, scale) < limit);

      before.at(3) = T(0.0f);
      want = reference::product(dy, false, w, !transposed, m, k, n);
      for (std::int64_t i = 0; i < m * k; ++i) want[static_cast<std::size_t>(i)] *= slope(before[i]);
      ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view(),
                                 {.transposed = transposed, .activation = activation, .pre = before.view()});
      CHECK(reference::error(dx, want, std::sqrt(static_cast<double>(n))) < limit);
      want = transposed ? reference::product(dy, true, x, false, n, k, m)
                        : reference::product(x, true, dy, false, k, n, m);
      ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view(),
                                  {.transposed = transposed, .dbias = dbias.view()});
      CHECK(reference::error(dw, want, std::sqrt(static_cast<double>(m))) < limit);
      std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
      for (std::int64_t i = 0; i < m * n; ++i) sums[static_cast<std::size_t>(i % n)] += dy[i];
      CHECK(reference::error(dbias, sums, std::sqrt(static_cast<double>(m))) < limit);
    }
}

TEST_CASE("gradients through a linear layer with GELU match central differences") {
  Machine machine(2);
  std::int64_t const m = 5, k = 7, n = 9, o = 3;
  Array<double> x = reference::random<double>({m, k}, 1), w = reference::random<double>({k, n}, 2),
                bias = reference::random<double>({n}, 3), w2 = reference::random<double>({n, o}, 4),
                weights = reference::random<double>({m, o}, 5);
  Array<double> pre({m, n}), y({m, n}), z({m, o});
  auto const loss = [&] {
    ops::linear(machine.context, x.view(), w.view(), y.view(),
                {.bias = bias.view(), .activation = Activation::gelu, .pre = pre.view()});
    ops::linear(machine.context, y.view(), w2.view(), z.view(), {.residual = weights.view()});
    return reference::weighted(weights, z);
  };
  loss();
  Array<double> dw2({n, o}), dpre({m, n}), dx({m, k}), dw({k, n}), dbias({n});
  ops::linear_backward_weight(machine.context, y.view(), weights.view(), dw2.view());
  ops::linear_backward_input(machine.context, weights.view(), w2.view(), dpre.view(),
                             {.activation = Activation::gelu, .pre = pre.view()});
  ops::linear_backward_input(machine.context, dpre.view(), w.view(), dx.view());
  ops::linear_backward_weight(machine.context, x.view(), dpre.view(), dw.view(), {.dbias = dbias.view()});
  CHECK(reference::error(dw2, reference::central_differences(w2, loss)) < 1e-8);
  CHECK(reference::error(dx, reference::central_differences(x, loss)) < 1e-8);
  CHECK(reference::error(dw, reference::central_differences(w, loss)) < 1e-8);
  CHECK(reference::error(dbias, reference::central_differences(bias, loss)) < 1e-8);
}

TEST_CASE("gradients through a transposed linear layer match central differences") {
  Machine machine(2);
  std::int64_t const m = 5, k = 7, n = 11;
  Array<double> x = reference::random<double>({m, k}, 1), w = reference::random<double>({n, k}, 2),
                weights = reference::random<double>({m, n}, 3);
  Array<double> y({m, n}), dx({m, k}), dw({n, k});
  auto const loss = [&] {
    ops::linear(machine.context, x.view(), w.view(), y.view(), {.transposed = true});
    return reference::weighted(weights, y);
  };
  ops::linear_backward_input(machine.context, weights.view(), w.view(), dx.view(), {.transposed = true});
  ops::linear_backward_weight(machine.context, x.view(), weights.view(), dw.view(), {.transposed = true});
  CHECK(reference::error(dx, reference::central_differences(x, loss)) < 1e-8);
  CHECK(reference::error(dw, reference::central_differences(w, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("linear operations have the same bits for every number of threads", T, float, double, half,
                   bfloat16) {
  std::int64_t const m = 130, k = 129, n = 301;
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           bias = reference::random<T>({n}, 3), dy = reference::random<T>({m, n}, 4),
           before = reference::random<T>({m, k}, 5);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> pre({m, n}), y({m, n});
    ops::linear(machine.context, x.view(), w.view(), y.view(),
                {.bias = bias.view(), .activation = Activation::gelu, .pre = pre.view()});
    return y.values;
  }));
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> dx({m, k});
    ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view(),
                               {.activation = Activation::gelu, .pre = before.view()});
    return dx.values;
  }));
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> dw({k, n}), dbias({n});
    ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view(), {.dbias = dbias.view()});
    dw.values.insert(dw.values.end(), dbias.values.begin(), dbias.values.end());
    return dw.values;
  }));
}

TEST_CASE_TEMPLATE("activations keep NaN and have their limits", T, float, double, half, bfloat16) {
  Machine machine(1);
  Array<T> x({5}), y({5});
  x.at(0) = T(std::numeric_limits<float>::quiet_NaN());
  x.at(1) = T(-30000.0f);
  x.at(2) = T(30000.0f);
  x.at(3) = T(0.0f);
  x.at(4) = T(-1.0f);
  ops::activate(machine.context, Activation::gelu, x.view(), y.view());
  CHECK(std::isnan(y[0]));
  CHECK(std::fabs(y[1]) < 1e-30);
  CHECK(y[2] == x[2]);
  CHECK(y[3] == 0.0);
  CHECK(std::fabs(y[4] - reference::gelu(-1.0)) < reference::tolerance<T>());
  ops::activate(machine.context, Activation::relu, x.view(), y.view());
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 0.0);
  CHECK(y[2] == x[2]);
}

TEST_CASE("a number that is no activation is refused") {
  Machine machine(1);
  Array<float> x({2, 4}), w({4, 4}), y({2, 4}), pre({2, 4});
  auto const unknown = static_cast<Activation>(7);
  char const* const refusal = "got the activation 7, which does not exist";
  CHECK_THROWS_WITH_AS(ops::activate(machine.context, unknown, x.view(), y.view()),
                       doctest::Contains(refusal), Error);
  CHECK_THROWS_WITH_AS(
      ops::linear(machine.context, x.view(), w.view(), y.view(), {.activation = unknown, .pre = pre.view()}),
      doctest::Contains(refusal), Error);
  CHECK_THROWS_WITH_AS(ops::linear_backward_input(machine.context, y.view(), w.view(), x.view(),
                                                  {.activation = unknown, .pre = pre.view()}),
                       doctest::Contains(refusal), Error);
}

TEST_CASE_TEMPLATE("a product is scaled and joins a residual before the activation", T, float, double, half,
                   bfloat16) {
  Machine machine(2);
  for (auto const& [m, k, n] : sizes) {
    double const limit = reference::tolerance<T>(), depth = std::sqrt(static_cast<double>(k)),
                 wide = std::sqrt(static_cast<double>(n));
    Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({n, k}, 2),
             bias = reference::random<T>({n}, 3), residual = reference::random<T>({m, n}, 4),
             dy = reference::random<T>({m, n}, 5), pre = reference::random<T>({m, k}, 6, 3.0),
             d_residual = reference::random<T>({m, k}, 7);
    Array<T> y({m, n}), kept({m, n}), dx({m, k});
    std::vector<double> want = reference::product(x, false, w, true, m, n, k);
    for (double& value : want) value *= -1.75;
    ops::linear(machine.context, x.view(), w.view(), y.view(), {.transposed = true, .scale = -1.75});
    CHECK(reference::error(y, want, depth) < limit);
    for (std::int64_t i = 0; i < m * n; ++i)
      want[static_cast<std::size_t>(i)] +=
          static_cast<double>(bias[i % n]) + static_cast<double>(residual[i]);
    ops::linear(machine.context, x.view(), w.view(), y.view(),
                {.transposed = true,
                 .bias = bias.view(),
                 .residual = residual.view(),
                 .activation = Activation::gelu,
                 .pre = kept.view(),
                 .scale = -1.75});
    CHECK(reference::error(kept, want, depth) < limit);
    Array<T> const apart = y;
    ops::linear(machine.context, x.view(), w.view(), y.view(),  // residual in the sum's buffer
                {.transposed = true,
                 .bias = bias.view(),
                 .residual = residual.view(),
                 .activation = Activation::gelu,
                 .pre = residual.view(),
                 .scale = -1.75});
    CHECK(reference::same_bits(residual.values, kept.values));
    CHECK(reference::same_bits(y.values, apart.values));

    want = reference::product(dy, false, w, false, m, k, n);
    for (std::int64_t i = 0; i < m * k; ++i) {
      double& value = want[static_cast<std::size_t>(i)];
      value = (0.75 * value + static_cast<double>(d_residual[i])) * reference::gelu_derivative(pre[i]);
    }
    ops::linear_backward_input(machine.context, dy.view(), w.view(), d_residual.view(),
                               {.transposed = true,
                                .residual = d_residual.view(),
                                .activation = Activation::gelu,
                                .pre = pre.view(),
                                .scale = 0.75});
    CHECK(reference::error(d_residual, want, wide) < limit);
    want = reference::product(dy, false, w, false, m, k, n);
    for (double& value : want) value *= 0.75;
    ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view(),
                               {.transposed = true, .scale = 0.75});
    CHECK(reference::error(dx, want, wide) < limit);
  }
}

TEST_CASE("operations refuse shapes that do not fit and say which") {
  Machine machine(1);
  Array<float> x({4, 3}), w({5, 2}), y({4, 2});
  bool thrown = false;
  try {
    ops::linear(machine.context, x.view(), w.view(), y.view());
  } catch (Error const& error) {
    thrown = true;
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find("linear got shapes [4, 3] [5, 2]") == 0);
  }
  CHECK(thrown);
}

TEST_CASE("weights of another format or with scales are refused by name") {
  Machine machine(1);
  Array<float> x({4, 3}), w({3, 2}), y({4, 2}), scale({1}, 1.0f);
  ops::Operand<float, Cpu> weights = w.view();
  weights.twin = x.view();  // products may use it
  ops::linear(machine.context, x.view(), weights, y.view());
  weights.scales = scale.view();
  CHECK_THROWS_WITH_AS(ops::linear(machine.context, x.view(), weights, y.view()),
                       "linear: weights in fp32 with scales are not part of this build: give values of the "
                       "type of x alone",
                       Error);
  weights.scales = {};
  weights.format = DType::f16;
  CHECK_THROWS_WITH_AS(
      ops::linear_backward_input(machine.context, y.view(), weights, x.view()),
      "linear_backward_input: weights in fp16 are not part of this build: give values of the "
      "type of x alone",
      Error);
}
