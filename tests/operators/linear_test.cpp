// SPDX-License-Identifier: Apache-2.0
// Tests linear layers and activations against scalar code in double and against numerical derivatives.
#include "tessera/ops/linear.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/activation.hpp"

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

struct LinearSize {
  std::int64_t m, k, n;
};

template <class T>
struct LinearInput {
  LinearInput(LinearSize const& size, bool transposed)
      : x(reference::random<T>({size.m, size.k}, 1)),
        w(reference::random<T>(transposed ? Shape{size.n, size.k} : Shape{size.k, size.n}, 2)),
        bias(reference::random<T>({size.n}, 3)),
        residual(reference::random<T>({size.m, size.n}, 4)),
        dy(reference::random<T>({size.m, size.n}, 5)),
        before(reference::random<T>({size.m, size.k}, 6, 3.0)),
        dx_residual(reference::random<T>({size.m, size.k}, 7)) {
    if (before.values.size() > 3) before.at(3) = T(0.0f);
  }
  Array<T> x, w, bias, residual, dy;
  // `before` is the input of the activation that made x. `dx_residual` is added to dx.
  Array<T> before, dx_residual;
};

template <class T>
struct LinearOutput {
  Array<T> y, pre, dx, dw, dbias;
  // `dbias_alone` is dbias from a call that does not compute dw. `dbias_before` is the bias gradient of the
  // previous layer, whose dy is dx.
  Array<T> dbias_alone, dbias_before;
  Array<compute_t<T>> dw_sums;

  bool operator==(LinearOutput const&) const = default;
};

/// The options of one test of a linear layer. `residual`, `activation` and `scale` apply to y in forward and
/// to dx in backward.
struct LinearVariant {
  bool transposed = false, bias = false, residual = false;
  Activation activation = Activation::none;
  double scale = 1.0;
  std::int64_t offset = 0;  // every operand starts this many elements after an aligned address
  bool in_place = false;    // writes results over the residuals
};

/// Runs forward and backward of a linear layer and returns all results. Also checks that the bits of a result
/// do not depend on the other results that are computed in the same call.
template <class T>
LinearOutput<T> linear(Machine& machine, LinearInput<T> const& in, LinearVariant const& variant = {}) {
  using S = compute_t<T>;
  bool const activates = variant.activation != Activation::none;
  std::int64_t const offset = variant.offset, m = in.x.shape.rows(), k = in.x.shape.columns();
  Shape const y_shape = in.dy.shape, x_shape = in.x.shape, w_shape = in.w.shape, b_shape = in.bias.shape;
  OnPlace<T> x(in.x, offset), w(in.w, offset), bias(in.bias, offset), residual(in.residual, offset),
      dy(in.dy, offset), before(in.before, offset), dx_residual(in.dx_residual, offset);
  OnPlace<T> own_y(poison<T>(y_shape), offset), own_pre(poison<T>(y_shape), offset),
      again(poison<T>(y_shape), offset), own_dx(poison<T>(x_shape), offset),
      dx_alone(poison<T>(x_shape), offset), dw(poison<T>(w_shape), offset),
      dw_alone(poison<T>(w_shape), offset), dbias(poison<T>(b_shape), offset),
      dbias_alone(poison<T>(b_shape), offset), dbias_before(poison<T>({k}), offset);
  OnPlace<S> dw_sums(poison<S>(w_shape), offset),
      partials(poison<S>({ops::linear_partial_rows(m), k}), offset);
  bool const transposed = variant.transposed, in_place = variant.in_place && variant.residual;
  OnPlace<T>& y = in_place && !activates ? residual : own_y;
  OnPlace<T>& pre = in_place && activates ? residual : own_pre;
  OnPlace<T>& dx = in_place ? dx_residual : own_dx;
  Tensor<T, Place> const none;
  ops::linear(machine.context, x.view(), w.view(), y.view(),
              {.transposed = transposed,
               .bias = variant.bias ? bias.view() : none,
               .residual = variant.residual ? residual.view() : none,
               .activation = variant.activation,
               .pre = pre.view(),
               .scale = variant.scale});
  if (activates) ops::activate(machine.context, variant.activation, pre.view(), again.view());
  ops::LinearInputOptions<T, Place> to_dx{.transposed = transposed,
                                          .residual = variant.residual ? dx_residual.view() : none,
                                          .activation = variant.activation,
                                          .pre = before.view(),
                                          .scale = variant.scale};
  ops::linear_backward_input(machine.context, dy.view(), w.view(), dx_alone.view(), to_dx);
  to_dx.partials = partials.view();
  ops::linear_backward_input(machine.context, dy.view(), w.view(), dx.view(), to_dx);
  ops::linear_backward_weight(machine.context, none, dx.view(), none,
                              {.dbias = dbias_before.view(), .partials = partials.view()});
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view(),
                              {.transposed = transposed, .dbias = dbias.view()});
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw_alone.view(),
                              {.transposed = transposed});
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw_sums.view(),
                              {.transposed = transposed});
  ops::linear_backward_weight(machine.context, none, dy.view(), none, {.dbias = dbias_alone.view()});
  machine.finish();
  if (activates) CHECK(same_bits(again.back().values, y.back().values));
  if (!in_place) CHECK(same_bits(dx_alone.back().values, dx.back().values));
  CHECK(same_bits(dw_alone.back().values, dw.back().values));
  return {y.back(),     pre.back(),         dx.back(),           dw.back(),
          dbias.back(), dbias_alone.back(), dbias_before.back(), dw_sums.back()};
}

double activation_value(Activation activation, double x) {
  return activation == Activation::gelu   ? reference::gelu(x)
         : activation == Activation::relu ? std::fmax(x, 0.0)
                                          : x;
}
double activation_slope(Activation activation, double x) {
  return activation == Activation::gelu   ? reference::gelu_derivative(x)
         : activation == Activation::relu ? static_cast<double>(x > 0)
                                          : 1.0;
}

template <class T>
std::vector<double> column_sums(Array<T> const& of) {
  std::vector<double> sums(static_cast<std::size_t>(of.shape.columns()), 0.0);
  for (std::size_t i = 0; i < of.values.size(); ++i)
    sums[i % sums.size()] += static_cast<double>(of.values[i]);
  return sums;
}

/// Compares all results of a linear layer with scalar code, for many combinations of options, and for a
/// weight that is stored transposed and one that is not. `limit` is the allowed error of a matrix product.
template <class T>
void check_linear(Machine& machine, LinearSize const& size, double limit = reference::tolerance<T>()) {
  using S = compute_t<T>;
  CAPTURE(size.m);
  CAPTURE(size.k);
  CAPTURE(size.n);
  auto const [m, k, n] = size;
  double const deep = std::sqrt(double(k)), wide = std::sqrt(double(n)), tall = std::sqrt(double(m));
  for (bool const transposed : {false, true}) {
    LinearInput<T> const in(size, transposed);
    std::vector<double> const xw = reference::product(in.x, false, in.w, transposed, m, n, k),
                              dyw = reference::product(in.dy, false, in.w, !transposed, m, k, n),
                              dw = transposed ? reference::product(in.dy, true, in.x, false, n, k, m)
                                              : reference::product(in.x, true, in.dy, false, k, n, m),
                              dbias = column_sums(in.dy);
    for (LinearVariant variant :
         {LinearVariant{}, LinearVariant{.bias = true}, LinearVariant{.scale = -1.75},
          LinearVariant{.bias = true, .activation = Activation::gelu},
          LinearVariant{.bias = true, .activation = Activation::relu},
          LinearVariant{.bias = true, .residual = true}, LinearVariant{.residual = true, .scale = 0.75},
          LinearVariant{.bias = true, .residual = true, .activation = Activation::gelu, .scale = -1.75},
          LinearVariant{.bias = true, .residual = true, .activation = Activation::relu, .scale = 0.75}}) {
      variant.transposed = transposed;
      CAPTURE(transposed);
      CAPTURE(variant.bias);
      CAPTURE(variant.residual);
      CAPTURE(static_cast<int>(variant.activation));
      CAPTURE(variant.scale);
      std::vector<double> pre, dx;
      for (std::int64_t i = 0; i < m * n; ++i)
        pre.push_back(variant.scale * xw[static_cast<std::size_t>(i)] + (variant.bias ? in.bias[i % n] : 0) +
                      (variant.residual ? in.residual[i] : 0));
      for (std::int64_t i = 0; i < m * k; ++i)
        dx.push_back(
            (variant.scale * dyw[static_cast<std::size_t>(i)] + (variant.residual ? in.dx_residual[i] : 0)) *
            activation_slope(variant.activation, in.before[i]));
      auto const check = [&](LinearOutput<T> const& got) {
        if (variant.activation == Activation::none) {
          CHECK(reference::error(got.y, pre, deep) < limit);
        } else {
          CHECK(reference::error(got.pre, pre, deep) < limit);
          std::vector<double> y;
          for (T const value : got.pre.values)
            y.push_back(activation_value(variant.activation, static_cast<double>(value)));
          CHECK(reference::error(got.y, y) < reference::tolerance<T>());
        }
        CHECK(reference::error(got.dx, dx, wide) < limit);
        CHECK(reference::error(got.dw, dw, tall) < limit);
        CHECK(reference::error(got.dw_sums, dw, tall) <
              (std::is_same_v<S, T> ? limit : reference::tolerance<S>()));
        CHECK(reference::error(got.dbias, dbias, tall) < reference::tolerance<T>());
        CHECK(reference::error(got.dbias_alone, dbias, tall) < reference::tolerance<T>());
        CHECK(reference::error(got.dbias_before, column_sums(got.dx), tall) < reference::tolerance<T>());
      };
      LinearOutput<T> const got = linear(machine, in, variant);
      check(got);
      CHECK(got == linear(machine, in, variant));
      // If operands are not aligned or results overwrite operands, a GPU may sum in another order.
      for (auto const& [offset, in_place] : {std::pair{0, true}, {1, false}, {1, true}}) {
        variant.offset = offset;
        variant.in_place = in_place;
        LinearOutput<T> const other = linear(machine, in, variant);
        if (test::on_gpu)
          check(other);
        else
          CHECK(other == got);
      }
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("linear layers match scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (LinearSize const& size :
       {LinearSize{1, 1, 1}, LinearSize{1, 37, 5}, LinearSize{7, 17, 33}, LinearSize{33, 48, 49},
        LinearSize{300, 1, 7}, LinearSize{49, 129, 7}, LinearSize{130, 33, 100}, LinearSize{17, 300, 129}})
    check_linear<T>(machine, size);
}

#ifdef __CUDACC__
TEST_CASE_TEMPLATE("linear layers whose rows are whole vectors of 16 bytes match scalar code", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (LinearSize const& size :
       {LinearSize{1, 128, 256}, LinearSize{70, 64, 72}, LinearSize{129, 64, 72}, LinearSize{257, 768, 384}})
    check_linear<T>(machine, size);
}

TEST_CASE("products of fp32 values are in tf32 where the context asks for it") {
  TESSERA_NEEDS_PLACE();
  Machine plain, fast(1 << 16, {.product = DType::tf32});
  LinearSize const size{256, 512, 128};
  // Tf32 and half both have 10 mantissa bits, so products in tf32 have the tolerance of half.
  check_linear<float>(fast, size, reference::tolerance<tessera::half>());
  LinearInput<float> const in(size, false);
  CHECK_FALSE(same_bits(linear(fast, in).y.values, linear(plain, in).y.values));
}
#endif

TEST_CASE("gradients of two linear layers and GELU match central differences") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (bool const transposed : {false, true}) {
    LinearVariant const variant{.transposed = transposed, .bias = true, .activation = Activation::gelu};
    LinearInput<double> first({5, 7, 9}, transposed), second({5, 9, 3}, transposed);
    auto const forward = [&] {
      for (std::size_t i = 0; i < first.x.values.size(); ++i)
        first.x.values[i] = reference::gelu(first.before.values[i]);
      LinearOutput<double> const out = linear(machine, first, variant);
      second.x = out.y;
      second.before = out.pre;
      return linear(machine, second, variant);
    };
    auto const loss = [&] { return reference::weighted(second.dy, forward().pre); };
    LinearOutput<double> const of_second = forward();
    first.dy = of_second.dx;
    LinearOutput<double> const of_first = linear(machine, first, variant);
    auto const check = [&](Array<double> const& gradient, Array<double>& parameter) {
      CHECK(reference::error(gradient, reference::central_differences(parameter, loss)) < 1e-8);
    };
    check(of_second.dw, second.w);
    check(of_second.dbias, second.bias);
    check(of_first.dx, first.before);
    check(of_first.dw, first.w);
    check(of_first.dbias, first.bias);
  }
}

TEST_CASE_TEMPLATE("linear layers have the same bits every time", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  LinearInput<T> const in({130, 129, 301}, false);
  CHECK(test::same_bits_every_time(
      [&](Machine& machine) { return linear(machine, in, {.bias = true, .activation = Activation::gelu}); }));
}

TEST_CASE_TEMPLATE("a linear layer takes no rows at all, and its gradients are zero", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  OnPlace<T> x(Array<T>({0, 5})), w(Array<T>({5, 9})), dy(Array<T>({0, 9})), dw(poison<T>({5, 9})),
      dbias(poison<T>({9})), dbias_of_partials(poison<T>({9}));
  OnPlace<S> partials(poison<S>({1, 9}));
  ops::linear(machine.context, x.view(), w.view(), dy.view());
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), dw.view(), {.dbias = dbias.view()});
  ops::linear_backward_weight(machine.context, Tensor<T, Place>(), dy.view(), Tensor<T, Place>(),
                              {.dbias = dbias_of_partials.view(), .partials = partials.view()});
  machine.finish();
  CHECK(reference::error(dw.back(), std::vector<double>(45, 0.0)) == 0);
  CHECK(reference::error(dbias.back(), std::vector<double>(9, 0.0)) == 0);
  CHECK(reference::error(dbias_of_partials.back(), std::vector<double>(9, 0.0)) == 0);
}

// The weight is 1, so y is the activation of x. dx is the derivative of the activation at `before`, which has
// the same values as x.
TEST_CASE_TEMPLATE("activations and their derivatives keep NaN and have their limits", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  LinearInput<T> in({6, 1, 1}, false);
  in.x.values = {T(std::numeric_limits<float>::quiet_NaN()), T(-30000.0f), T(30000.0f), T(0.0f), T(-1.0f),
                 T(sizeof(T) == 2 ? 60000.0f : 1e30f)};
  in.before = in.x;
  in.w.at(0) = T(1.0f);
  in.dy = Array<T>({6, 1}, T(1.0f));
  double const limit = reference::tolerance<T>();
  for (Activation const activation : {Activation::gelu, Activation::relu}) {
    CAPTURE(static_cast<int>(activation));
    LinearOutput<T> const got = linear(machine, in, {.activation = activation});
    CHECK(std::isnan(got.y[0]));
    CHECK(std::fabs(got.y[1]) < 1e-30);
    CHECK(got.dx[1] == 0.0);
    for (std::int64_t const large : {2, 5}) {
      CHECK(got.y[large] == in.x[large]);
      CHECK(got.dx[large] == 1.0);
    }
    CHECK(got.y[3] == 0.0);
    CHECK(got.dx[3] == activation_slope(activation, 0.0));
    CHECK(std::fabs(got.y[4] - activation_value(activation, -1.0)) < limit);
    CHECK(std::fabs(got.dx[4] - activation_slope(activation, -1.0)) < limit);
    if (activation == Activation::gelu) CHECK(std::isnan(got.dx[0]));
  }
}

TEST_CASE("linear layers refuse a number that is no activation, and shapes and weights that do not fit") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OnPlace<float> x(Array<float>({4, 3})), w(Array<float>({3, 2})), other(Array<float>({5, 2})),
      y(Array<float>({4, 2})), pre(Array<float>({4, 2})), scale(Array<float>({1}, 1.0f));
  auto const unknown = static_cast<Activation>(7);
  char const* const refusal = "got the activation 7, which does not exist";
  CHECK_THROWS_WITH_AS(ops::activate(machine.context, unknown, pre.view(), y.view()),
                       doctest::Contains(refusal), Error);
  CHECK_THROWS_WITH_AS(
      ops::linear(machine.context, x.view(), w.view(), y.view(), {.activation = unknown, .pre = pre.view()}),
      doctest::Contains(refusal), Error);
  CHECK_THROWS_WITH_AS(ops::linear_backward_input(machine.context, y.view(), w.view(), x.view(),
                                                  {.activation = unknown, .pre = x.view()}),
                       doctest::Contains(refusal), Error);

  bool thrown = false;
  try {
    ops::linear(machine.context, x.view(), other.view(), y.view());
  } catch (Error const& error) {
    thrown = true;
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find("linear got shapes [4, 3] [5, 2]") == 0);
  }
  CHECK(thrown);

  ops::Operand<float, Place> weights = w.view();
  weights.twin = x.view();  // the twin is a second copy of w in the transposed layout, which products may use
  ops::linear(machine.context, x.view(), weights, y.view());
  machine.finish();
  weights.scales = scale.view();
  CHECK_THROWS_WITH_AS(
      ops::linear(machine.context, x.view(), weights, y.view()),
      "linear: weights in fp32 with scales are not part of this build; give weights of the type of x", Error);
  weights.scales = {};
  weights.format = DType::f16;
  CHECK_THROWS_WITH_AS(
      ops::linear_backward_input(machine.context, y.view(), weights, x.view()),
      "linear_backward_input: weights in fp16 are not part of this build; give weights of the type of x",
      Error);
}
