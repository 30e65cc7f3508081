// SPDX-License-Identifier: Apache-2.0
// Tests that no operation allocates memory. Also tests that a context with a recorder reports each operation
// to the recorder and does not execute the operation.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/accumulate.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/axpy.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/sum.hpp"
#include "tessera/ops/swiglu.hpp"
#include "tessera/optim/adamw.hpp"

#include "operators/reference.hpp"
#include "unit/allocation_support.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

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
      second({v * c}), blocks({4}), sums({2, ops::layer_norm_partial_rows(m), c});
  S const scale = 1;
  auto const frequencies = ops::rotary_frequencies(16);
  double loss = 0, total = 0;
  Tensor<double> const result{&total, {1}};
  std::int64_t count = 0, skip = 0;
  auto const factors = adamw_factors<S>({}, 1e-3, 0.9, 0.999, 1.0, true);
  ops::NormRow norm_row{wte.values.data(), blocks.values.data(), v * c};
  ops::UpdateRow update_row{v * c,
                            0,
                            wte.values.data(),
                            accumulator.values.data(),
                            {partial.values.data(), second.values.data()},
                            nullptr,
                            &factors};
  auto const norm_rows = ops::number_rows<ops::NormRow>({&norm_row, 1}, &norm_row);
  auto const update_rows = ops::number_rows<ops::UpdateRow>({&update_row, 1}, &update_row);
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
    ops::accumulate(context, accumulator.view(), static_cast<T const*>(wte.values.data()), 1, v * c, true);
    ops::norm_partials(context, wte.view(), blocks.view());
    ops::norm_partials<T, S>(context, norm_rows);
    ops::sum(context, wte.view(), blocks.view(), result);
    ops::sum_of_squares(context, wte.view(), blocks.view(), result);
    ops::norm(context, wte.view(), blocks.view(), result);
    ops::axpy(context, 0.5f, y.view(), x.view());
    ops::adamw(context, v * c, wte.values.data(), accumulator.values.data(), partial.values.data(),
               second.values.data(), static_cast<T*>(nullptr), &factors, &skip);
    ops::adamw<T, S, void>(context, update_rows, &skip);
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
  CHECK(log.names.size() == 38);
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
