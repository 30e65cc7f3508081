// SPDX-License-Identifier: Apache-2.0
// Tests linear layers on a GPU: every operation against its CPU implementation, the plain product kernel and
// the column sums separately, and identical bits in a second run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/row_sums.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using test::distance;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

struct Size {
  std::int64_t m, k, n;
};
// The last three have rows that consist of whole 16-byte vectors, as in real models.
constexpr Size sizes[] = {{1, 1, 1},     {1, 37, 5},     {7, 17, 33},    {33, 48, 49},
                          {300, 1, 7},   {130, 33, 100}, {65, 37, 5},    {17, 300, 129},
                          {1, 128, 256}, {129, 64, 72},  {257, 768, 384}};

std::string text(Size size) {
  return std::to_string(size.m) + " " + std::to_string(size.k) + " " + std::to_string(size.n);
}

/// The result of `run(output)` in an output filled with NaN. A second run must give the same bits.
template <class T, class F>
Array<T> twice(Gpu& gpu, Shape const& shape, F const& run) {
  OnGpu<T> first(poison<T>(shape)), second(poison<T>(shape));
  run(first.view());
  run(second.view());
  gpu.finish();
  Array<T> const result = first.back();
  CHECK(reference::same_bits(result.values, second.back().values));
  return result;
}

template <class T>
void forward_matches(Machine& machine, Gpu& gpu, Size size) {
  CAPTURE(text(size));
  auto const [m, k, n] = size;
  double const limit = reference::tolerance<T>(), scale = std::sqrt(static_cast<double>(k));
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           wt = reference::random<T>({n, k}, 3), bias = reference::random<T>({n}, 4),
           residual = reference::random<T>({m, n}, 5);
  Array<T> want({m, n}), want_pre({m, n});
  OnGpu<T> gx(x), gw(w), gwt(wt), gbias(bias), gresidual(residual);

  ops::linear(machine.context, x.view(), w.view(), want.view());
  Array<T> got = twice<T>(gpu, want.shape,
                          [&](Tensor<T, Cuda> y) { ops::linear(gpu.context, gx.cview(), gw.cview(), y); });
  CHECK(distance(got, want.values, scale) < limit);

  ops::linear(machine.context, x.view(), w.view(), want.view(), {.bias = bias.view()});
  got = twice<T>(gpu, want.shape, [&](Tensor<T, Cuda> y) {
    ops::linear(gpu.context, gx.cview(), gw.cview(), y, {.bias = gbias.cview()});
  });
  CHECK(distance(got, want.values, scale) < limit);

  ops::linear(machine.context, x.view(), w.view(), want.view(),
              {.bias = bias.view(), .activation = Activation::gelu, .pre = want_pre.view()});
  OnGpu<T> pre(poison<T>(want.shape));
  got = twice<T>(gpu, want.shape, [&](Tensor<T, Cuda> y) {
    ops::linear(gpu.context, gx.cview(), gw.cview(), y,
                {.bias = gbias.cview(), .activation = Activation::gelu, .pre = pre.view()});
  });
  CHECK(distance(pre.back(), want_pre.values, scale) < limit);
  CHECK(distance(got, want.values, scale) < limit);
  std::vector<double> activated;
  for (T value : pre.back().values) activated.push_back(reference::gelu(static_cast<double>(value)));
  CHECK(distance(got, activated, 1.0) < limit);
  Array<T> const recomputed = twice<T>(gpu, want.shape, [&](Tensor<T, Cuda> y) {
    ops::activate(gpu.context, Activation::gelu, pre.cview(), y);
  });
  CHECK(reference::same_bits(recomputed.values, got.values));

  ops::linear(machine.context, x.view(), w.view(), want.view(),
              {.bias = bias.view(), .residual = residual.view()});
  got = twice<T>(gpu, want.shape, [&](Tensor<T, Cuda> y) {
    ops::linear(gpu.context, gx.cview(), gw.cview(), y,
                {.bias = gbias.cview(), .residual = gresidual.cview()});
  });
  CHECK(distance(got, want.values, scale) < limit);
  ops::linear(gpu.context, gx.cview(), gw.cview(), gresidual.view(),
              {.bias = gbias.cview(), .residual = gresidual.cview()});
  gpu.finish();
  CHECK(distance(gresidual.back(), want.values, scale) < limit);  // in place: the plan may differ

  ops::linear(machine.context, x.view(), wt.view(), want.view(), {.transposed = true});
  got = twice<T>(gpu, want.shape, [&](Tensor<T, Cuda> y) {
    ops::linear(gpu.context, gx.cview(), gwt.cview(), y, {.transposed = true});
  });
  CHECK(distance(got, want.values, scale) < limit);
}

template <class T>
void backward_matches(Machine& machine, Gpu& gpu, Size size) {
  using S = compute_t<T>;
  CAPTURE(text(size));
  auto const [m, k, n] = size;
  double const limit = reference::tolerance<T>(), wide = std::sqrt(static_cast<double>(n)),
               tall = std::sqrt(static_cast<double>(m));
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           wt = reference::random<T>({n, k}, 3), dy = reference::random<T>({m, n}, 4),
           pre = reference::random<T>({m, k}, 5, 3.0);
  Array<T> want_dx({m, k}), want_dw({k, n}), want_dbias({n}), want_dwt({n, k});
  Array<S> want_sums({n, k});
  OnGpu<T> gx(x), gw(w), gwt(wt), gdy(dy), gpre(pre);

  ops::linear_backward_input(machine.context, dy.view(), w.view(), want_dx.view());
  Array<T> got = twice<T>(gpu, want_dx.shape, [&](Tensor<T, Cuda> dx) {
    ops::linear_backward_input(gpu.context, gdy.cview(), gw.cview(), dx);
  });
  CHECK(distance(got, want_dx.values, wide) < limit);

  ops::linear_backward_input(machine.context, dy.view(), w.view(), want_dx.view(),
                             {.activation = Activation::gelu, .pre = pre.view()});
  got = twice<T>(gpu, want_dx.shape, [&](Tensor<T, Cuda> dpre) {
    ops::linear_backward_input(gpu.context, gdy.cview(), gw.cview(), dpre,
                               {.activation = Activation::gelu, .pre = gpre.cview()});
  });
  CHECK(distance(got, want_dx.values, wide) < limit);

  Array<T> share = reference::random<T>({m, k}, 6);  // result of another product
  OnGpu<T> gshare(share);
  for (Activation const activation : {Activation::none, Activation::gelu, Activation::relu}) {
    ops::linear_backward_input(machine.context, dy.view(), wt.view(), want_dx.view(),
                               {.transposed = true,
                                .residual = share.view(),
                                .activation = activation,
                                .pre = pre.view(),
                                .scale = 1.75});
    got = twice<T>(gpu, want_dx.shape, [&](Tensor<T, Cuda> dpre) {
      ops::linear_backward_input(gpu.context, gdy.cview(), gwt.cview(), dpre,
                                 {.transposed = true,
                                  .residual = gshare.cview(),
                                  .activation = activation,
                                  .pre = gpre.cview(),
                                  .scale = 1.75});
    });
    CHECK(distance(got, want_dx.values, 2.0 * wide) < limit);

    OnGpu<T> dpre(poison<T>({m, k}));
    OnGpu<S> partials(poison<S>({ops::linear_partial_rows(m), k}));
    ops::linear_backward_input(gpu.context, gdy.cview(), gwt.cview(), dpre.view(),
                               {.transposed = true,
                                .residual = gshare.cview(),
                                .activation = activation,
                                .pre = gpre.cview(),
                                .scale = 1.75,
                                .partials = partials.view()});
    Array<T> const dbias = twice<T>(gpu, {k}, [&](Tensor<T, Cuda> to) {
      ops::linear_backward_weight(gpu.context, Tensor<T, Cuda>(), dpre.cview(), Tensor<T, Cuda>(),
                                  {.dbias = to, .partials = partials.cview()});
    });
    CHECK(reference::same_bits(dpre.back().values, got.values));
    std::vector<double> want(static_cast<std::size_t>(k), 0.0);
    for (std::int64_t i = 0; i < m * k; ++i) want[static_cast<std::size_t>(i % k)] += got[i];
    CHECK(distance(dbias, want, tall) < limit);
  }

  ops::linear_backward_input(machine.context, dy.view(), wt.view(), want_dx.view(), {.transposed = true});
  got = twice<T>(gpu, want_dx.shape, [&](Tensor<T, Cuda> dx) {
    ops::linear_backward_input(gpu.context, gdy.cview(), gwt.cview(), dx, {.transposed = true});
  });
  CHECK(distance(got, want_dx.values, wide) < limit);

  ops::linear_backward_weight(machine.context, x.view(), dy.view(), want_dw.view(),
                              {.dbias = want_dbias.view()});
  got = twice<T>(gpu, want_dw.shape, [&](Tensor<T, Cuda> dw) {
    ops::linear_backward_weight(gpu.context, gx.cview(), gdy.cview(), dw);
  });
  CHECK(distance(got, want_dw.values, tall) < limit);
  OnGpu<T> dw(poison<T>(want_dw.shape));
  Array<T> const dbias = twice<T>(gpu, want_dbias.shape, [&](Tensor<T, Cuda> to) {
    ops::linear_backward_weight(gpu.context, gx.cview(), gdy.cview(), dw.view(), {.dbias = to});
  });
  CHECK(reference::same_bits(dw.back().values, got.values));
  CHECK(distance(dbias, want_dbias.values, tall) < limit);

  ops::linear_backward_weight(machine.context, x.view(), dy.view(), want_dwt.view(), {.transposed = true});
  got = twice<T>(gpu, want_dwt.shape, [&](Tensor<T, Cuda> to) {
    ops::linear_backward_weight(gpu.context, gx.cview(), gdy.cview(), to, {.transposed = true});
  });
  CHECK(distance(got, want_dwt.values, tall) < limit);
  ops::linear_backward_weight(machine.context, x.view(), dy.view(), want_sums.view(), {.transposed = true});
  Array<S> const sums = twice<S>(gpu, want_sums.shape, [&](Tensor<S, Cuda> to) {
    ops::linear_backward_weight(gpu.context, gx.cview(), gdy.cview(), to, {.transposed = true});
  });
  CHECK(distance(sums, want_sums.values, tall) < reference::tolerance<S>());
}

/// Tests the options in the combinations that the sizes above do not cover.
template <class T>
void options_match(Machine& machine, Gpu& gpu, bool transposed, Activation activation) {
  CAPTURE(transposed);
  CAPTURE(static_cast<int>(activation));
  std::int64_t const m = 70, k = 64, n = 72;
  double const limit = reference::tolerance<T>(), scale = std::sqrt(static_cast<double>(n));
  Shape const shape = transposed ? Shape{n, k} : Shape{k, n};
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>(shape, 2),
           bias = reference::random<T>({n}, 3), residual = reference::random<T>({m, n}, 4),
           dy = reference::random<T>({m, n}, 5), before = reference::random<T>({m, k}, 6, 2.0);
  Array<T> y({m, n}), pre({m, n}), sum({m, n}), dx({m, k}), dw(shape), dbias({n}), added = before;
  OnGpu<T> gx(x), gw(w), gbias(bias), gresidual(residual), gdy(dy), gbefore(before), gy(poison<T>({m, n})),
      gpre(poison<T>({m, n})), gsum(poison<T>({m, n})), gdx(poison<T>({m, k})), gdw(poison<T>(shape)),
      gdbias(poison<T>({n})), gadded(before);
  auto const run = [&](auto& context, auto x_, auto w_, auto bias_, auto residual_, auto dy_, auto before_,
                       auto pre_, auto y_, auto sum_, auto dx_, auto added_, auto dw_, auto dbias_) {
    ops::linear(context, x_, w_, y_,
                {.transposed = transposed, .bias = bias_, .activation = activation, .pre = pre_});
    ops::linear(context, x_, w_, sum_, {.transposed = transposed, .bias = bias_, .residual = residual_});
    ops::linear_backward_input(context, dy_, w_, dx_,
                               {.transposed = transposed, .activation = activation, .pre = before_});
    ops::linear_backward_input(context, dy_, w_, added_, {.transposed = transposed, .residual = added_});
    ops::linear_backward_weight(context, x_, dy_, dw_, {.transposed = transposed, .dbias = dbias_});
  };
  run(machine.context, x.view(), w.view(), bias.view(), residual.view(), dy.view(), before.view(), pre.view(),
      y.view(), sum.view(), dx.view(), added.view(), dw.view(), dbias.view());
  run(gpu.context, gx.view(), gw.view(), gbias.view(), gresidual.view(), gdy.view(), gbefore.view(),
      gpre.view(), gy.view(), gsum.view(), gdx.view(), gadded.view(), gdw.view(), gdbias.view());
  gpu.finish();
  CHECK(distance(gpre.back(), pre.values, scale) < limit);
  CHECK(distance(gy.back(), y.values, scale) < limit);
  CHECK(distance(gsum.back(), sum.values, scale) < limit);
  CHECK(distance(gdx.back(), dx.values, scale) < limit);
  CHECK(distance(gadded.back(), added.values, scale) < limit);
  CHECK(distance(gdw.back(), dw.values, scale) < limit);
  CHECK(distance(gdbias.back(), dbias.values, scale) < limit);
}

/// A copy of an array that starts one element after an aligned address.
template <class T>
class Shifted {
 public:
  explicit Shifted(Array<T> const& from) : memory_(padded(from)), shape_(from.shape) {}
  Tensor<T, Cuda> view() { return {memory_.view().data() + 1, shape_}; }
  Tensor<T const, Cuda> cview() const { return {memory_.cview().data() + 1, shape_}; }
  Array<T> back() const {
    Array<T> const all = memory_.back();
    Array<T> result(shape_);
    result.values.assign(all.values.begin() + 1, all.values.end());
    return result;
  }

 private:
  static Array<T> padded(Array<T> const& from) {
    Array<T> result({from.shape.elements() + 1});
    std::copy(from.values.begin(), from.values.end(), result.values.begin() + 1);
    return result;
  }
  OnGpu<T> memory_;
  Shape shape_;
};

/// Tests the plain kernel with all its fusions, in all four storage orders.
template <class T>
void plain_product_matches(Gpu& gpu, Size size) {
  CAPTURE(text(size));
  auto const [m, k, n] = size;
  double const limit = reference::tolerance<T>(), scale = 1 + std::sqrt(static_cast<double>(k));
  for (bool a_transposed : {false, true})
    for (bool b_transposed : {false, true}) {
      Array<T> a = reference::random<T>({m, k}, 1), b = reference::random<T>({k, n}, 2),
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
      CHECK(distance(run(product), exact, scale) < limit);
      std::vector<double> sum = exact, slope = exact;
      for (std::int64_t i = 0; i < m * n; ++i) {
        sum[static_cast<std::size_t>(i)] += bias[i % n] + residual[i];
        slope[static_cast<std::size_t>(i)] *= reference::gelu_derivative(pre[i]);
      }
      cuda::Product<T> with_sums = product, with_slope = product;
      with_sums.bias = gbias.cview().data();
      with_sums.residual = gresidual.cview().data();
      with_slope.pre = gpre.cview().data();
      CHECK(distance(run(with_sums), sum, scale) < limit);
      CHECK(distance(run(with_slope), slope, scale) < limit);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, linear forward operations match the CPU", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (Size size : sizes) forward_matches<T>(machine, gpu, size);
}

TEST_CASE_TEMPLATE("on a GPU, linear backward operations match the CPU", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (Size size : sizes) backward_matches<T>(machine, gpu, size);
}

TEST_CASE_TEMPLATE("on a GPU, a linear layer takes its options together", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (bool transposed : {false, true})
    for (Activation activation : {Activation::gelu, Activation::relu})
      options_match<T>(machine, gpu, transposed, activation);
}

TEST_CASE("on a GPU, products of fp32 values are in tf32 where the context asks for it") {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu, fast(1 << 16, {.product = DType::tf32});
  std::int64_t const m = 256, k = 512, n = 128;
  Array<float> x = reference::random<float>({m, k}, 1), w = reference::random<float>({k, n}, 2), want({m, n});
  ops::linear(machine.context, x.view(), w.view(), want.view());
  OnGpu<float> gx(x), gw(w), y(poison<float>({m, n})), coarse(poison<float>({m, n}));
  ops::linear(gpu.context, gx.cview(), gw.cview(), y.view());
  ops::linear(fast.context, gx.cview(), gw.cview(), coarse.view());
  gpu.finish();
  fast.finish();
  double const scale = std::sqrt(static_cast<double>(k));
  CHECK(distance(y.back(), want.values, scale) < reference::tolerance<float>());
  CHECK(distance(coarse.back(), want.values, scale) <
        reference::tolerance<tessera::half>());  // both have 10 mantissa bits
  CHECK_FALSE(reference::same_bits(coarse.back().values, y.back().values));
}

TEST_CASE_TEMPLATE("on a GPU, the plain product matches three loops", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (Size size : {Size{1, 1, 1}, Size{65, 37, 5}, Size{17, 300, 129}, Size{130, 33, 100}, Size{3, 0, 70}})
    plain_product_matches<T>(gpu, size);
}

TEST_CASE_TEMPLATE("on a GPU, linear operations take operands that are not aligned", T, float, double,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  std::int64_t const m = 70, k = 64, n = 72;
  double const limit = reference::tolerance<T>(), scale = std::sqrt(static_cast<double>(n));
  Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({k, n}, 2),
           bias = reference::random<T>({n}, 3), dy = reference::random<T>({m, n}, 4),
           before = reference::random<T>({m, k}, 5, 3.0);
  Array<T> pre({m, n}), y({m, n}), dx({m, k}), dw({k, n}), dbias({n});
  Shifted<T> gx(x), gw(w), gbias(bias), gdy(dy), gbefore(before);
  Shifted<T> gpre(poison<T>({m, n})), gy(poison<T>({m, n})), gdx(poison<T>({m, k})), gdw(poison<T>({k, n})),
      gdbias(poison<T>({n}));
  auto const run = [](auto& context, auto const& x_, auto const& w_, auto const& bias_, auto const& dy_,
                      auto const& before_, auto pre_, auto y_, auto dx_, auto dw_, auto dbias_) {
    ops::linear(context, x_, w_, y_, {.bias = bias_, .activation = Activation::gelu, .pre = pre_});
    ops::linear_backward_input(context, dy_, w_, dx_, {.activation = Activation::gelu, .pre = before_});
    ops::linear_backward_weight(context, x_, dy_, dw_, {.dbias = dbias_});
  };
  run(machine.context, x.view(), w.view(), bias.view(), dy.view(), before.view(), pre.view(), y.view(),
      dx.view(), dw.view(), dbias.view());
  run(gpu.context, gx.cview(), gw.cview(), gbias.cview(), gdy.cview(), gbefore.cview(), gpre.view(),
      gy.view(), gdx.view(), gdw.view(), gdbias.view());
  gpu.finish();
  CHECK(distance(gpre.back(), pre.values, scale) < limit);
  CHECK(distance(gy.back(), y.values, scale) < limit);
  CHECK(distance(gdx.back(), dx.values, scale) < limit);
  CHECK(distance(gdw.back(), dw.values, scale) < limit);
  CHECK(distance(gdbias.back(), dbias.values, scale) < limit);
}

TEST_CASE_TEMPLATE("on a GPU, column sums of many rows, also in pieces", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (std::int64_t columns : {1, 45, 1032}) {
    std::int64_t const rows = columns == 1 ? 70001 : 3001;
    CAPTURE(columns);
    Array<T> const x = reference::random<T>({rows, columns}, 7);
    OnGpu<T> gx(x);
    std::vector<double> want(static_cast<std::size_t>(columns), 0.0);
    for (std::int64_t i = 0; i < rows * columns; ++i) want[static_cast<std::size_t>(i % columns)] += x[i];
    Array<T> const whole = twice<T>(gpu, {columns}, [&](Tensor<T, Cuda> sums) {
      cuda::run_column_sums(gpu.context, gx.cview().data(), rows, columns, sums.data());
    });
    CHECK(distance(whole, want, std::sqrt(static_cast<double>(rows))) < reference::tolerance<T>());
    Array<T> const pieces = twice<T>(gpu, {columns}, [&](Tensor<T, Cuda> sums) {
      cuda::run_column_sums(gpu.context, gx.cview().data(), rows, columns, sums.data(), 512 * 300);
    });
    CHECK(reference::same_bits(pieces.values, whole.values));
  }
}

TEST_CASE_TEMPLATE("on a GPU, gradients of no rows are zero", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  OnGpu<T> x(Array<T>({0, 5})), dy(Array<T>({0, 9}));
  OnGpu<T> dw(poison<T>({5, 9})), dbias(poison<T>({9})), y(poison<T>({0, 9})), w(poison<T>({5, 9}));
  ops::linear(gpu.context, x.cview(), w.cview(), y.view());
  ops::linear_backward_weight(gpu.context, x.cview(), dy.cview(), dw.view(), {.dbias = dbias.view()});
  gpu.finish();
  CHECK(distance(dw.back(), std::vector<double>(45, 0.0), 1.0) == 0);
  CHECK(distance(dbias.back(), std::vector<double>(9, 0.0), 1.0) == 0);
  OnGpu<compute_t<T>> partials(poison<compute_t<T>>({1, 9}));
  OnGpu<T> also(poison<T>({9}));
  ops::linear_backward_weight(gpu.context, Tensor<T, Cuda>(), dy.cview(), Tensor<T, Cuda>(),
                              {.dbias = also.view(), .partials = partials.cview()});
  gpu.finish();
  CHECK(distance(also.back(), std::vector<double>(9, 0.0), 1.0) == 0);
}

TEST_CASE_TEMPLATE("on a GPU, GELU keeps NaN and has its limits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  Array<T> x({6});
  x.at(0) = T(std::numeric_limits<float>::quiet_NaN());
  x.at(1) = T(-30000.0f);
  x.at(2) = T(30000.0f);
  x.at(3) = T(0.0f);
  x.at(4) = T(-1.0f);
  x.at(5) = T(sizeof(T) == 2 ? 60000.0f : 1e30f);
  OnGpu<T> gx(x), gy(poison<T>({6})), slopes(Array<T>({6}, T(1.0f)));
  using S = compute_t<T>;
  cuda::run_transform<S>(gpu.context.stream(), 6, cuda::AssignGelu<T>{}, gx.cview().data(), gy.view().data());
  cuda::run_transform<S>(gpu.context.stream(), 6, cuda::TimesGeluDerivative<T>{}, gx.cview().data(),
                         slopes.view().data());
  gpu.finish();
  Array<T> const y = gy.back(), slope = slopes.back();
  double const limit = reference::tolerance<T>();
  CHECK(std::isnan(y[0]));
  CHECK(std::isnan(slope[0]));
  CHECK(std::fabs(y[1]) < 1e-30);
  CHECK(slope[1] == 0.0);
  CHECK(y[2] == x[2]);
  CHECK(slope[2] == 1.0);
  CHECK(y[3] == 0.0);
  CHECK(slope[3] == 0.5);
  CHECK(std::fabs(y[4] - reference::gelu(-1.0)) < limit);
  CHECK(std::fabs(slope[4] - reference::gelu_derivative(-1.0)) < limit);
  CHECK(y[5] == x[5]);
  CHECK(slope[5] == 1.0);
}

namespace {

/// Computes a bias gradient from the partial sums of another operation.
template <class T>
struct BiasSum {
  BiasSum(std::int64_t blocks, std::int64_t columns)
      : partials(reference::random<compute_t<T>>({blocks, columns}, static_cast<std::uint32_t>(blocks))),
        dy(poison<T>({7, columns})),
        dbias(poison<T>({columns})) {}
  void enqueue(Context<Cuda>& context) {
    ops::linear_backward_weight(context, Tensor<T, Cuda>(), dy.cview(), Tensor<T, Cuda>(),
                                {.dbias = dbias.view(), .partials = partials.cview()});
  }
  OnGpu<compute_t<T>> partials;
  OnGpu<T> dy, dbias;
};

/// The results of the same sums, batched or one by one. One sum of another type comes in between.
std::vector<Array<bfloat16>> sums_of_many(Gpu& gpu, bool in_batch, Array<float>& of_floats) {
  std::vector<std::unique_ptr<BiasSum<bfloat16>>> sums;
  for (std::int64_t i = 0; i < 11; ++i)
    sums.push_back(std::make_unique<BiasSum<bfloat16>>(1 + 37 * i, 8 + 61 * (i % 5)));
  BiasSum<float> floats(40, 100);
  {
    std::optional<ops::RowSumBatch<Cuda, bfloat16>> batch;
    if (in_batch) batch.emplace(gpu.context);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i]->enqueue(gpu.context);
      CHECK((gpu.context.row_sums().size > 0) == in_batch);
      if (i == 3) floats.enqueue(gpu.context);
    }
  }
  gpu.finish();
  of_floats = floats.dbias.back();
  std::vector<Array<bfloat16>> results;
  for (auto const& sum : sums) results.push_back(sum->dbias.back());
  return results;
}

}  // namespace

TEST_CASE("GPU: bias gradients of a batch have the bits of sums that run one by one") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  Array<float> want_floats({1}), got_floats({1});
  auto const want = sums_of_many(gpu, false, want_floats), got = sums_of_many(gpu, true, got_floats);
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(reference::same_bits(got[i].values, want[i].values));
    for (bfloat16 const value : want[i].values) CHECK(std::fabs(static_cast<float>(value)) < 1e6f);
  }
  CHECK(reference::same_bits(got_floats.values, want_floats.values));
}
