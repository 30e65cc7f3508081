// SPDX-License-Identifier: Apache-2.0
// Tests layer normalization on a GPU against the CPU, for every mapping of rows to threads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/ops/layer_norm.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using reference::same_bits;
using test::adds_up;
using test::Gpu;
using test::OnGpu;
using test::poison;
using test::Shifted;

namespace {

constexpr double epsilon = 1e-5;

template <class T>
std::vector<double> doubles(Array<T> const& values) {
  return {values.values.begin(), values.values.end()};
}

/// The results of the two passes.
template <class T>
struct Results {
  Array<T> y, dx, dgamma, dbeta;
  Array<compute_t<T>> mean, rstd;
};
template <class T>
bool operator==(Results<T> const& a, Results<T> const& b) {
  return same_bits(a.y.values, b.y.values) && same_bits(a.dx.values, b.dx.values) &&
         same_bits(a.dgamma.values, b.dgamma.values) && same_bits(a.dbeta.values, b.dbeta.values) &&
         same_bits(a.mean.values, b.mean.values) && same_bits(a.rstd.values, b.rstd.values);
}

template <class T>
struct Problem {
  Problem(std::int64_t rows, std::int64_t columns)
      : x(reference::random<T>({rows, columns}, 1, 2.0)),
        gamma(reference::random<T>({columns}, 2)),
        beta(reference::random<T>({columns}, 3)),
        dy(reference::random<T>({rows, columns}, 4)),
        residual(reference::random<T>({rows, columns}, 5)) {}
  Array<T> x, gamma, beta, dy, residual;
};

/// The operand that dx overwrites, if any.
enum class InPlace { no, dy, residual };

template <class T>
Results<T> on_cpu(Machine& machine, Problem<T> p, bool with_residual) {
  using S = compute_t<T>;
  std::int64_t const rows = p.x.shape.rows();
  Results<T> r{p.x, p.x, p.gamma, p.gamma, Array<S>({rows}), Array<S>({rows})};
  ops::layer_norm_forward(machine.context, p.x.view(), p.gamma.view(), p.beta.view(), epsilon, r.y.view(),
                          r.mean.view(), r.rstd.view());
  Array<S> partials({2, ops::layer_norm_partial_rows(rows), p.x.shape.columns()});
  ops::layer_norm_backward_input(machine.context, p.dy.view(), p.x.view(), p.gamma.view(), r.mean.view(),
                                 r.rstd.view(), with_residual ? p.residual.view() : Tensor<T>(), r.dx.view(),
                                 partials.view());
  ops::layer_norm_backward_weight(machine.context, partials.view(), rows, r.dgamma.view(), r.dbeta.view());
  return r;
}

template <class T>
Results<T> on_gpu(Gpu& gpu, Problem<T> const& p, bool with_residual, std::int64_t offset = 0,
                  InPlace in_place = InPlace::no, bool sums = false) {
  using S = compute_t<T>;
  std::int64_t const rows = p.x.shape.rows(), columns = p.x.shape.columns();
  Shifted<T> x(p.x, offset), gamma(p.gamma, offset), beta(p.beta, offset), dy(p.dy, offset),
      residual(p.residual, offset), y(poison<T>({rows, columns}), offset),
      dx(poison<T>({rows, columns}), offset), dgamma(poison<T>({columns}), offset),
      dbeta(poison<T>({columns}), offset);
  Shifted<S> mean(poison<S>({rows}), offset), rstd(poison<S>({rows}), offset),
      partials(poison<S>({2, ops::layer_norm_partial_rows(rows), columns}), offset),
      residual_sums(poison<S>({ops::layer_norm_partial_rows(rows), columns}), offset),
      dx_sums(residual_sums.back(), offset);
  Shifted<T>& result = in_place == InPlace::dy ? dy : in_place == InPlace::residual ? residual : dx;
  ops::layer_norm_forward(gpu.context, x.view(), gamma.view(), beta.view(), epsilon, y.view(), mean.view(),
                          rstd.view());
  ops::layer_norm_backward_input(gpu.context, dy.view(), x.view(), gamma.view(), mean.view(), rstd.view(),
                                 with_residual ? residual.view() : Tensor<T, Cuda>(), result.view(),
                                 partials.view(),
                                 {sums && with_residual ? residual_sums.view() : Tensor<S, Cuda>(),
                                  sums ? dx_sums.view() : Tensor<S, Cuda>()});
  ops::layer_norm_backward_weight(gpu.context, partials.view(), rows, dgamma.view(), dbeta.view());
  gpu.finish();
  if (sums) CHECK(adds_up(dx_sums.back(), result.back()));
  if (sums && with_residual) CHECK(adds_up(residual_sums.back(), p.residual));
  return {y.back(), result.back(), dgamma.back(), dbeta.back(), mean.back(), rstd.back()};
}

/// The largest |got - want| / (1 + rstd of the row + |want|).
template <class T>
double row_error(Array<T> const& got, Array<T> const& want, Array<compute_t<T>> const& rstd) {
  std::int64_t const columns = want.shape.columns();
  double worst = 0;
  for (std::int64_t i = 0; i < want.shape.elements(); ++i) {
    double const difference = std::fabs(got[i] - want[i]) / (1 + rstd[i / columns] + std::fabs(want[i]));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

template <class T>
void matches_the_cpu(Machine& machine, Gpu& gpu, std::int64_t rows, std::int64_t columns) {
  using S = compute_t<T>;
  CAPTURE(rows);
  CAPTURE(columns);
  Problem<T> const problem(rows, columns);
  double const limit = reference::tolerance<T>(), tall = std::sqrt(static_cast<double>(rows));
  for (bool with_residual : {false, true}) {
    CAPTURE(with_residual);
    Results<T> const want = on_cpu(machine, problem, with_residual),
                     got = on_gpu(gpu, problem, with_residual);
    CHECK(reference::error(got.y, doubles(want.y)) < limit);
    CHECK(reference::error(got.mean, doubles(want.mean)) < reference::tolerance<S>());
    CHECK(reference::error(got.rstd, doubles(want.rstd)) < 4 * reference::tolerance<S>());
    CHECK(row_error(got.dx, want.dx, want.rstd) < limit);
    CHECK(reference::error(got.dgamma, doubles(want.dgamma), tall) < limit);
    CHECK(reference::error(got.dbeta, doubles(want.dbeta), tall) < limit);
    CHECK(got == on_gpu(gpu, problem, with_residual));
    CHECK(got == on_gpu(gpu, problem, with_residual, 1));  // alignment changes no sum
    CHECK(got == on_gpu(gpu, problem, with_residual, 0, InPlace::dy));
    if (with_residual) CHECK(got == on_gpu(gpu, problem, true, 0, InPlace::residual));
    for (InPlace const in_place : {InPlace::no, InPlace::residual})
      if (with_residual || in_place == InPlace::no)
        for (std::int64_t offset : {0, 1})
          CHECK(got == on_gpu(gpu, problem, with_residual, offset, in_place, /*sums=*/true));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: layer norm matches the CPU", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (std::int64_t rows : {1, 7, 65, 130})
    for (std::int64_t columns : {2, 7, 33, 128, 129, 768, 1032})
      matches_the_cpu<T>(machine, gpu, rows, columns);
}

TEST_CASE_TEMPLATE("GPU: layer norm of many rows takes several rows a block", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  matches_the_cpu<T>(machine, gpu, 5003, 40);
  matches_the_cpu<T>(machine, gpu, 2117, 264);
  matches_the_cpu<T>(machine, gpu, 2117, 600);  // one warp per row; some lanes have fewer values
  matches_the_cpu<T>(machine, gpu, 601, 1600);
}

TEST_CASE_TEMPLATE("GPU: layer norm of long rows", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  // The longest rows that fit into registers, the first that do not, and one that is read in three pieces.
  for (std::int64_t columns : {2048, 2050, 4096, 4104, 8192, 8193, 16384, 16400, 33001})
    matches_the_cpu<T>(machine, gpu, 5, columns);
  matches_the_cpu<T>(machine, gpu, 1100, 2050);  // too long for registers in fp64
}

TEST_CASE("GPU: layer norm keeps NaN in its row and takes no rows at all") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  Problem<float> problem(9, 40);
  problem.x.at(3 * 40 + 5) = std::numeric_limits<float>::quiet_NaN();
  Results<float> const got = on_gpu(gpu, problem, true);
  int wrong = 0;
  for (std::int64_t i = 0; i < 360; ++i) {
    wrong += std::isnan(got.y[i]) != (i / 40 == 3);
    wrong += std::isnan(got.dx[i]) != (i / 40 == 3);
  }
  CHECK(wrong == 0);

  Results<float> const none = on_gpu(gpu, Problem<float>(0, 40), false);
  for (std::int64_t i = 0; i < 40; ++i) {
    CHECK(none.dgamma[i] == 0.0);
    CHECK(none.dbeta[i] == 0.0);
  }
}
