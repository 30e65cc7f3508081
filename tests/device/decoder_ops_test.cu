// SPDX-License-Identifier: Apache-2.0
// Tests RMSNorm, SwiGLU, rotary positions and the options of the embedding on a GPU against the CPU. Each
// test prints the largest difference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/embedding.cuh"
#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/kernels/rotary.cuh"
#include "tessera/backend/cuda/kernels/swiglu.cuh"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/swiglu.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using reference::same_bits;
using test::Gpu;
using test::OnGpu;
using test::poison;
using test::Shifted;

namespace {

/// Records the largest difference, in units of the tolerance of T, and prints it at the end.
template <class T>
struct Worst {
  std::string what;
  double value = 0;

  explicit Worst(char const* operation)
      : what(std::string(operation) + " in " + std::string(name_of(dtype_of<T>))) {}
  Worst(Worst const&) = delete;
  ~Worst() { MESSAGE(what << ": the largest difference is " << value << " of the tolerance"); }

  /// got - want| / (floor + |want|), for results in U; infinite if only one side is NaN.
  template <class U>
  void take(Array<U> const& got, Array<U> const& want, double floor = 1.0) {
    for (std::int64_t i = 0; i < want.shape.elements(); ++i) {
      double const difference = std::fabs(got[i] - want[i]) / (floor + std::fabs(want[i]));
      value = std::isfinite(difference) ? std::max(value, difference / reference::tolerance<U>())
                                        : std::numeric_limits<double>::infinity();
    }
  }
};

template <class T>
struct Normed {
  Array<T> y, dx, dgamma;
  Array<compute_t<T>> rstd;

  bool operator==(Normed const& other) const {
    return same_bits(y.values, other.y.values) && same_bits(dx.values, other.dx.values) &&
           same_bits(dgamma.values, other.dgamma.values) && same_bits(rstd.values, other.rstd.values);
  }
};

template <class T>
struct NormProblem {
  NormProblem(std::int64_t rows, std::int64_t columns)
      : x(reference::random<T>({rows, columns}, 1, 2.0)),
        gamma(reference::random<T>({columns}, 2)),
        dy(reference::random<T>({rows, columns}, 4)),
        residual(reference::random<T>({rows, columns}, 5)) {}
  Array<T> x, gamma, dy, residual;
};

template <class T>
Normed<T> norm_on_cpu(Machine& machine, NormProblem<T> p, bool with_residual) {
  std::int64_t const rows = p.x.shape.rows();
  Normed<T> r{p.x, p.x, p.gamma, Array<compute_t<T>>({rows})};
  Array<compute_t<T>> partials({1, ops::layer_norm_partial_rows(rows), p.x.shape.columns()});
  ops::rms_norm_forward(machine.context, p.x.view(), p.gamma.view(), 1e-6, r.y.view(), r.rstd.view());
  ops::rms_norm_backward_input(machine.context, p.dy.view(), p.x.view(), p.gamma.view(), r.rstd.view(),
                               with_residual ? p.residual.view() : Tensor<T>(), r.dx.view(), partials.view());
  ops::rms_norm_backward_weight(machine.context, partials.view(), rows, r.dgamma.view());
  return r;
}

template <class T>
Normed<T> norm_on_gpu(Gpu& gpu, NormProblem<T> const& p, bool with_residual, std::int64_t offset,
                      bool in_place) {
  using S = compute_t<T>;
  std::int64_t const rows = p.x.shape.rows(), columns = p.x.shape.columns();
  Shifted<T> x(p.x, offset), gamma(p.gamma, offset), dy(p.dy, offset), residual(p.residual, offset),
      y(poison<T>(p.x.shape), offset), dx(poison<T>(p.x.shape), offset), dgamma(poison<T>({columns}), offset);
  Shifted<S> rstd(poison<S>({rows}), offset),
      partials(poison<S>({1, ops::layer_norm_partial_rows(rows), columns}), offset);
  Shifted<T>& result = in_place ? (with_residual ? residual : dy) : dx;
  ops::rms_norm_forward(gpu.context, x.view(), gamma.view(), 1e-6, y.view(), rstd.view());
  ops::rms_norm_backward_input(gpu.context, dy.view(), x.view(), gamma.view(), rstd.view(),
                               with_residual ? residual.view() : Tensor<T, Cuda>(), result.view(),
                               partials.view());
  ops::rms_norm_backward_weight(gpu.context, partials.view(), rows, dgamma.view());
  gpu.finish();
  return {y.back(), result.back(), dgamma.back(), rstd.back()};
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: rms norm matches the CPU", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  struct Size {
    std::int64_t rows, columns;
  };
  Machine machine(2);
  Gpu gpu;
  Worst<T> worst("rms_norm");
  // Rows that fit in one warp, in several warps, several rows per block, and rows too long for the registers.
  for (Size const size :
       {Size{1, 1}, Size{7, 33}, Size{65, 128}, Size{130, 129}, Size{5, 768}, Size{9, 1032}, Size{5003, 40},
        Size{601, 1600}, Size{33, 4096}, Size{5, 8192}, Size{5, 8193}, Size{3, 33001}, Size{1100, 2050}}) {
    CAPTURE(size.rows);
    CAPTURE(size.columns);
    NormProblem<T> const problem(size.rows, size.columns);
    for (bool with_residual : {false, true}) {
      Normed<T> const want = norm_on_cpu(machine, problem, with_residual),
                      got = norm_on_gpu(gpu, problem, with_residual, 0, false);
      double const steep = 1 + *std::max_element(want.rstd.values.begin(), want.rstd.values.end());
      worst.take(got.y, want.y);
      worst.take(got.rstd, want.rstd, 3.0);
      worst.take(got.dx, want.dx, steep);
      worst.take(got.dgamma, want.dgamma, std::sqrt(static_cast<double>(size.rows)));
      CHECK(worst.value < 1);
      CHECK(got == norm_on_gpu(gpu, problem, with_residual, 0, true));
      CHECK(got == norm_on_gpu(gpu, problem, with_residual, 1, false));  // alignment changes no sum
    }
  }
}

TEST_CASE("GPU: rms norm keeps NaN in its row and takes no rows at all") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  NormProblem<float> problem(9, 40);
  problem.x.at(3 * 40 + 5) = std::numeric_limits<float>::quiet_NaN();
  Normed<float> const got = norm_on_gpu(gpu, problem, true, 0, false);
  int wrong = 0;
  for (std::int64_t i = 0; i < 360; ++i)
    wrong += std::isnan(got.y[i]) != (i / 40 == 3) || std::isnan(got.dx[i]) != (i / 40 == 3);
  CHECK(wrong == 0);
  Normed<float> const none = norm_on_gpu(gpu, NormProblem<float>(0, 40), false, 0, false);
  for (std::int64_t i = 0; i < 40; ++i) wrong += none.dgamma[i] != 0.0;
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("GPU: swiglu matches the CPU, in place too", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  Worst<T> worst("swiglu");
  for (std::int64_t n : {1, 7, 17, 255, 2047, 4096, 13001, 100003})
    for (std::int64_t offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      Array<T> gate = reference::random<T>({n}, 1, 6.0), up = reference::random<T>({n}, 2, 2.0),
               dy = reference::random<T>({n}, 3), y({n}), dgate({n}), dup({n});
      gate.at(0) = T(-1000.0f);
      gate.at(n / 2) = T(1000.0f);
      ops::swiglu_forward(machine.context, gate.view(), up.view(), y.view());
      ops::swiglu_backward(machine.context, gate.view(), up.view(), dy.view(), dgate.view(), dup.view());
      Shifted<T> g(gate, offset), u(up, offset), slope(dy, offset), got(poison<T>({n}), offset),
          got_gate(poison<T>({n}), offset), got_up(poison<T>({n}), offset);
      ops::swiglu_forward(gpu.context, g.view(), u.view(), got.view());
      ops::swiglu_backward(gpu.context, g.view(), u.view(), slope.view(), got_gate.view(), got_up.view());
      ops::swiglu_backward(gpu.context, g.view(), u.view(), slope.view(), slope.view(), u.view());
      gpu.finish();
      worst.take(got.back(), y);
      worst.take(got_gate.back(), dgate);
      worst.take(got_up.back(), dup);
      CHECK(worst.value < 1);
      CHECK(same_bits(slope.back().values, got_gate.back().values));
      CHECK(same_bits(u.back().values, got_up.back().values));
    }
}

TEST_CASE_TEMPLATE("GPU: rotary matches the CPU, in place, at offsets and in columns of wider rows", T, float,
                   double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  Worst<T> worst("rotary");
  for (std::int64_t head : {2, 6, 32, 64, 80, 96, 128, 130, 512})
    for (std::int64_t first : {0, 4000})
      for (bool transposed : {false, true}) {
        CAPTURE(head);
        CAPTURE(first);
        CAPTURE(transposed);
        std::int64_t const b = 2, t = 19, c = 3 * head;
        auto const frequencies = ops::rotary_frequencies(head);
        ops::RotaryOptions const with{first, transposed};
        Array<T> x = reference::random<T>({b, t, c}, 1, 2.0), want({b, t, c});
        ops::rotary(machine.context, x.view(), want.view(), frequencies, with);
        OnGpu<T> from(x), got(poison<T>({b, t, c})), in_place(x);
        ops::rotary(gpu.context, from.cview(), got.view(), frequencies, with);
        ops::rotary(gpu.context, in_place.view(), in_place.view(), frequencies, with);
        Array<T> wide({b, t, c + 24}, T(3.0f));
        for (std::int64_t row = 0; row < b * t; ++row)
          for (std::int64_t i = 0; i < c; ++i)
            wide.at(row * (c + 24) + 8 + i) = x.values[static_cast<std::size_t>(row * c + i)];
        OnGpu<T> rows(wide);
        ops::Columns<T, Cuda> const columns(rows.view(), 8, c);
        ops::rotary(gpu.context, columns, columns, t, frequencies, with);
        gpu.finish();
        Array<T> const result = got.back(), in_rows = rows.back();
        worst.take(result, want);
        CHECK(worst.value < 1);
        CHECK(same_bits(in_place.back().values, result.values));
        int wrong = 0;
        for (std::int64_t row = 0; row < b * t; ++row)
          for (std::int64_t i = 0; i < c + 24; ++i)
            wrong += in_rows[row * (c + 24) + i] != (i < 8 || i >= c + 8 ? 3.0 : result[row * c + i - 8]);
        CHECK(wrong == 0);
      }
}

TEST_CASE_TEMPLATE("GPU: the embedding's offset and padding token have the CPU's bits", T, float, double,
                   tessera::half, bfloat16) {
  using S = compute_t<T>;
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  ops::EmbeddingOptions const with{.first_position = 2, .padding_token = 1};
  for (std::int64_t n : {1, 33, 64, 768}) {
    CAPTURE(n);
    std::int64_t const b = 3, t = 130, v = 50, p = 140;
    Array<std::int32_t> tokens({b, t}, 0);
    for (std::int64_t i = 0; i < b * t; ++i) tokens.at(i) = static_cast<std::int32_t>(i * 7 % 11 % v);
    Array<T> wte = reference::random<T>({v, n}, 1), wpe = reference::random<T>({p, n}, 2),
             dy = reference::random<T>({b, t, n}, 3), y = poison<T>({b, t, n}), dwte = poison<T>({v, n}),
             dwpe = poison<T>({p, n});
    Array<S> partial = reference::random<S>({v, n}, 4);
    OnGpu<std::int32_t> gpu_tokens(tokens);
    OnGpu<T> gpu_wte(wte), gpu_wpe(wpe), gpu_dy(dy), got(y), got_dwte(dwte), got_dwpe(dwpe);
    OnGpu<S> got_partial(partial);
    ops::embedding_forward(machine.context, tokens.view(), wte.view(), wpe.view(), y.view(), with);
    ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), false, dwte.view(),
                            dwpe.view(), with);
    ops::embedding_forward(gpu.context, gpu_tokens.cview(), gpu_wte.view(), gpu_wpe.view(), got.view(), with);
    ops::embedding_backward(gpu.context, gpu_tokens.cview(), gpu_dy.view(), got_partial.view(), false,
                            got_dwte.view(), got_dwpe.view(), with);
    gpu.finish();
    CHECK(same_bits(got.back().values, y.values));
    CHECK(same_bits(got_partial.back().values, partial.values));
    CHECK(same_bits(got_dwte.back().values, dwte.values));
    CHECK(same_bits(got_dwpe.back().values, dwpe.values));
  }
}
