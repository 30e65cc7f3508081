// SPDX-License-Identifier: Apache-2.0
// Tests fold, norm partials, conversion, filling, copying and inspection, recorded operations, and that none
// of them allocates.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/activation.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/swiglu.hpp"

#include "reference.hpp"
#include "unit/allocation_support.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

std::int64_t const lengths[] = {1, 15, 16, 17, 4095, 4096, 4097, 13001};

template <class T>
void run_every_operation(Context<Cpu>& context, bool check_allocations) {
  using S = compute_t<T>;
  std::int64_t const b = 2, t = 70, c = 48, v = 300, m = b * t;
  Array<std::int32_t> tokens({b, t}, 3);
  Array<T> wte = reference::random<T>({v, c}, 1), wpe = reference::random<T>({t, c}, 2), x({b, t, c}),
           y({b, t, c}), w = reference::random<T>({c, 4 * c}, 3), w2 = reference::random<T>({4 * c, c}, 4),
           bias({4 * c}), bias2({c}), pre({m, 4 * c}), wide({m, 4 * c}), gamma({c}), dgamma({c}),
           w3 = reference::random<T>({c, 3 * c}, 5), qkv({b, t, 3 * c}), dqkv({b, t, 3 * c}), logits({m, v});
  Array<S> mean({m}), rstd({m}), lse({b, 3, t}), losses({m}), partial({v, c}), accumulator({v * c}),
      blocks({4}), sums({2, ops::layer_norm_partial_rows(m), c});
  S const scale = 1;
  auto const frequencies = ops::rotary_frequencies(16);
  double loss = 0;
  std::int64_t count = 0;
  auto const run = [&] {
    ops::embedding_forward(context, tokens.view(), wte.view(), wpe.view(), x.view());
    ops::layer_norm_forward(context, x.view(), gamma.view(), dgamma.view(), 1e-5, y.view(), mean.view(),
                            rstd.view());
    ops::linear(context, y.view(), w3.view(), qkv.view());
    ops::attention_forward(context, qkv.view(), 3, x.view(), lse.view());
    ops::attention_backward(context, y.view(), qkv.view(), x.view(), lse.view(), 3, dqkv.view());
    ops::linear(context, y.view(), w.view(), wide.view(),
                {.bias = bias.view(), .activation = Activation::gelu, .pre = pre.view()});
    ops::activate(context, Activation::gelu, pre.view(), wide.view());
    ops::linear(context, wide.view(), w2.view(), y.view(), {.bias = bias2.view(), .residual = x.view()});
    ops::linear(context, y.view(), wte.view(), logits.view(), {.transposed = true});
    ops::cross_entropy(context, logits.view(), tokens.view(), losses.view(), true, &scale);
    ops::sum_losses(context, losses.view(), tokens.view(), &loss, &count);
    ops::linear_backward_input(context, logits.view(), wte.view(), x.view(), {.transposed = true});
    ops::linear_backward_weight(context, y.view(), logits.view(), partial.view(), {.transposed = true});
    ops::linear_backward_input(context, x.view(), w2.view(), wide.view(),
                               {.activation = Activation::gelu, .pre = pre.view()});
    ops::linear_backward_weight(context, wide.view(), x.view(), w2.view(), {.dbias = bias2.view()});
    ops::linear_backward_input(context, wide.view(), w.view(), x.view());
    ops::layer_norm_backward_input(context, x.view(), y.view(), gamma.view(), mean.view(), rstd.view(),
                                   y.view(), y.view(), sums.view());
    ops::layer_norm_backward_weight(context, sums.view(), m, gamma.view(), dgamma.view());
    ops::embedding_backward(context, tokens.view(), y.view(), partial.view(), false, wte.view(), wpe.view());
    ops::rms_norm_forward(context, x.view(), gamma.view(), 1e-6, y.view(), rstd.view());
    ops::rms_norm_backward_input(context, x.view(), y.view(), gamma.view(), rstd.view(), {}, y.view(),
                                 Tensor<S>{sums.values.data(), {1, ops::layer_norm_partial_rows(m), c}});
    ops::rms_norm_backward_weight(
        context, Tensor<S>{sums.values.data(), {1, ops::layer_norm_partial_rows(m), c}}, m, gamma.view());
    ops::rotary(context, x.view(), x.view(), frequencies);
    ops::swiglu_forward(context, pre.view(), wide.view(), wide.view());
    ops::swiglu_backward(context, pre.view(), wide.view(), wide.view(), pre.view(), wide.view());
    ops::fold(context, accumulator.view(), static_cast<T const*>(wte.values.data()), 1, v * c, true);
    ops::norm_partials(context, wte.view(), blocks.view());
    ops::convert(context, wte.view(), partial.view());
    ops::fill(context, wpe.view(), 0);
    ops::copy(context, x.view(), y.view());
    ops::first_non_finite(context, wte.view(), &count);
  };
  std::int64_t const before = allocation_support::count();
  run();
  if (check_allocations) CHECK(allocation_support::count() - before == 0);
}

struct Log : Recorder {
  void operation(Operation const& operation) override {
    names.push_back(operation.name);
    if (!(operation.bytes > 0) || !(operation.flops >= 0)) ++wrong;
  }
  void violation(char const* what) override { violations.push_back(what); }
  std::vector<std::string> names, violations;
  int wrong = 0;
};

}  // namespace

TEST_CASE_TEMPLATE("no operation allocates", T, float, double, half, bfloat16) {
  Machine machine(2);
  run_every_operation<T>(machine.context, true);
}

TEST_CASE("a recording context reports every operation and runs none") {
  Log log;
  Context<Cpu> context(2, {}, &log);
  run_every_operation<float>(context, false);
  CHECK(log.names.size() == 31);
  CHECK(log.names[2] == "linear");
  CHECK(log.wrong == 0);
  CHECK(log.violations.empty());
  Array<float> x({4}, 1.0f), y({4}, 2.0f);
  ops::copy(context, x.view(), y.view());
  CHECK(y[0] == 2.0);
  context.synchronize();
  CHECK(log.violations == std::vector<std::string>{"synchronize"});
}

TEST_CASE("a context refuses a workspace that is too small") {
  std::vector<std::byte> small(100);
  CHECK_THROWS_AS(Context<Cpu>(1, small), Error);
}

TEST_CASE_TEMPLATE("fold adds gradients in order", T, float, double, half, bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  for (std::int64_t n : lengths)
    for (int count : {1, 2, 5}) {
      std::int64_t const stride = n + 3;
      Array<T> pieces = reference::random<T>({count * stride}, 1);
      Array<S> accumulator = reference::random<S>({n}, 2), from_zero({n});
      std::vector<S> want = accumulator.values, want_first(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < want.size(); ++i)
        for (int piece = 0; piece < count; ++piece) {
          S const value = static_cast<S>(pieces.values[static_cast<std::size_t>(piece * stride) + i]);
          want[i] += value;
          want_first[i] = piece == 0 ? value : want_first[i] + value;
        }
      T const* const data = pieces.values.data();
      ops::fold(machine.context, accumulator.view(), data, count, stride, false);
      CHECK(reference::same_bits(accumulator.values, want));
      ops::fold(machine.context, from_zero.view(), data, count, stride, true);
      CHECK(reference::same_bits(from_zero.values, want_first));
      Array<float> norms({(n + 4095) / 4096}), want_norms = norms;
      ops::norm_partials(machine.context, from_zero.view(), want_norms.view());
      Array<S> normed({n});
      ops::fold(machine.context, normed.view(), data, count, stride, true, norms.view());
      CHECK(reference::same_bits(normed.values, want_first));
      CHECK(reference::same_bits(norms.values, want_norms.values));
      if constexpr (std::is_same_v<S, T>) {
        ops::fold(machine.context, Tensor<S>{pieces.values.data(), {n}}, data, count, stride, true);
        pieces.values.resize(static_cast<std::size_t>(n));
        CHECK(reference::same_bits(pieces.values, want_first));
      }
    }
}

TEST_CASE_TEMPLATE("norm partials sum squares by blocks of 4096", T, float, double, half, bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  for (std::int64_t n : lengths) {
    Array<T> values = reference::random<T>({n}, 1, 3.0);
    std::int64_t const blocks = (n + 4095) / 4096;
    Array<S> partials({blocks});
    ops::norm_partials(machine.context, values.view(), partials.view());
    // The documented order: 16 running sums by index, then halves added.
    for (std::int64_t block = 0; block < blocks; ++block) {
      S sums[16] = {};
      for (std::int64_t i = block * 4096; i < std::min(n, (block + 1) * 4096); ++i) {
        S const value = static_cast<S>(values.values[static_cast<std::size_t>(i)]);
        sums[i % 16] = std::fma(value, value, sums[i % 16]);
      }
      for (int half_lanes = 8; half_lanes > 0; half_lanes /= 2)
        for (int lane = 0; lane < half_lanes; ++lane) sums[lane] += sums[lane + half_lanes];
      CHECK(partials.values[static_cast<std::size_t>(block)] == sums[0]);
    }
    for (float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Array<T> copy = values;
      copy.at(n - 1) = T(broken);
      ops::norm_partials(machine.context, copy.view(), partials.view());
      CHECK(!std::isfinite(partials[blocks - 1]));
      std::int64_t index = 0;
      ops::first_non_finite(machine.context, copy.view(), &index);
      CHECK(index == n - 1);
    }
    std::int64_t index = 0;
    ops::first_non_finite(machine.context, values.view(), &index);
    CHECK(index == -1);
  }
}

TEST_CASE("norm partials note the first value that is not finite, of the unit that backward met first") {
  Machine machine(2);
  std::int64_t const n = 3 * 4096 + 17, begin = 1000;
  auto const noted = [&](auto T, std::vector<std::pair<std::int64_t, double>> const& there,
                         BadElement before) {
    using V = decltype(T);
    Array<V> values = reference::random<V>({n}, 5, 3.0);
    for (auto const& [at, value] : there) values.at(at) = static_cast<V>(value);
    Array<float> partials({4});
    ops::norm_partials(machine.context, values.view(), partials.view(), {&before, 3, begin});
    return before;
  };
  double const infinity = std::numeric_limits<double>::infinity();
  CHECK(noted(0.0f, {}, {}).element == -1);
  CHECK(noted(0.0f, {{n - 1, infinity}, {4100, infinity}}, {}).element == begin + 4100);
  CHECK(noted(0.0f, {{4100, infinity}}, {2, 7}).element == begin + 4100);
  CHECK(noted(0.0f, {{4100, infinity}}, {4, 7}).element == 7);
  // Squares that overflow: the block's first value, in the type of the sums or only when stored.
  CHECK(noted(0.0f, {{4100, 1e25}}, {}).element == begin + 4096);
  CHECK(noted(0.0, {{4100, 1e25}}, {}).element == begin + 4096);
}

TEST_CASE_TEMPLATE("norm partials of rows have the bits of norms one by one", T, float, double, half,
                   bfloat16) {
  Machine machine(2);
  std::int64_t const sizes[] = {0, 1, 4096, 0, 4097, 33000, 0};
  std::int64_t const all = 1 + 4096 + 4097 + 33000, blocks = 1 + 1 + 2 + 9;
  Array<T> values = reference::random<T>({all}, 5, 3.0);
  values.at(all - 20000) = T(std::numeric_limits<float>::infinity());
  values.at(3000) = T(std::numeric_limits<float>::infinity());
  Array<float> want({blocks}), got({blocks});
  BadElement want_bad, got_bad;
  std::vector<ops::NormRow> rows;
  std::int64_t at = 0, block = 0;
  for (std::int64_t const n : sizes) {
    std::int64_t const unit = static_cast<std::int64_t>(rows.size());
    ops::norm_partials(machine.context, Tensor<T>{values.values.data() + at, {n}},
                       Tensor<float>{want.values.data() + block, {(n + 4095) / 4096}},
                       {&want_bad, unit, 100 * unit});
    rows.push_back(
        {values.values.data() + at, got.values.data() + block, n, 0, {&got_bad, unit, 100 * unit}});
    at += n;
    block += (n + 4095) / 4096;
  }
  auto const numbered = ops::number_rows<ops::NormRow>(rows, rows.data());
  CHECK(numbered.elements == all);
  CHECK(numbered.blocks == blocks);
  ops::norm_partials<T, float>(machine.context, numbered);
  CHECK(reference::same_bits(got.values, want.values));
  CHECK(want_bad.unit == 5);
  CHECK(got_bad.unit == want_bad.unit);
  CHECK(got_bad.element == want_bad.element);
  ops::norm_partials<T, float>(machine.context, ops::Rows<ops::NormRow>());
  CHECK(reference::same_bits(got.values, want.values));

  Log log;
  Context<Cpu> recording(1, {}, &log);
  ops::norm_partials<T, float>(recording, numbered);
  CHECK(log.names == std::vector<std::string>{"norm_partials"});
}

TEST_CASE("the first value that is not finite is found among many") {
  Machine machine(3);
  Array<float> values({50000}, 1.0f);
  for (std::int64_t i : {12345, 12346, 20000, 49999}) values.at(i) = std::numeric_limits<float>::infinity();
  std::int64_t index = 0;
  ops::first_non_finite(machine.context, values.view(), &index);
  CHECK(index == 12345);
}

TEST_CASE_TEMPLATE("convert matches the scalar conversions", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (std::int64_t n : lengths) {
    Array<float> from = reference::random<float>({n}, 1, 70000.0), back({n});
    Array<T> to({n});
    ops::convert(machine.context, from.view(), to.view());
    ops::convert(machine.context, to.view(), back.view());
    int wrong = 0;
    for (std::size_t i = 0; i < from.values.size(); ++i) {
      T const want = static_cast<T>(from.values[i]);
      wrong += std::memcmp(&want, &to.values[i], sizeof(T)) != 0;
      wrong += back.values[i] != static_cast<float>(want);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("fill and copy write every element", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (std::int64_t n : lengths) {
    Array<T> filled({n}), copied({n});
    ops::fill(machine.context, filled.view(), 1.5f);
    ops::copy(machine.context, filled.view(), copied.view());
    int wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) wrong += copied[i] != 1.5;
    CHECK(wrong == 0);
  }
}
