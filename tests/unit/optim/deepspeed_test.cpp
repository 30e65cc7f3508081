// SPDX-License-Identifier: Apache-2.0
// Tests the learning rate schedules and the loss scale that imitate DeepSpeed. The expected numbers were
// computed by lr_schedules.py and loss_scaler.py of DeepSpeed 0.19.6. Also compares Adam with L2
// regularization with the formula of PyTorch.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/optim/adamw_formula.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/schedule.hpp"

namespace {

using namespace tessera;

void check_rates(RateSchedule const& schedule, std::span<double const> expected) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(schedule.at(static_cast<std::int64_t>(step)) == doctest::Approx(expected[step]).epsilon(1e-13));
  }
}

/// Returns the loss scale after each step. Each letter of `steps` is one step: 'g' has finite gradients, and
/// the gradients of 'o' overflow.
std::vector<double> scales_after(LossScaleOptions const& options, std::string_view steps) {
  StepRule rule;
  rule.loss_scale = LossScaleKind::dynamic;
  rule.scale = options;
  rule.tokens = 1;
  StepState state;
  state.loss_scale = options.initial;
  std::vector<double> scales;
  for (char const step : steps) {
    begin_step(state, rule, 1e-3);
    finish_step(state, rule, step == 'o' ? std::numeric_limits<double>::infinity() : 1.0, 1.0, 1);
    scales.push_back(state.loss_scale);
  }
  return scales;
}

}  // namespace

TEST_CASE("WarmupLR, WarmupDecayLR and WarmupCosineLR have DeepSpeed's rates") {
  // These are the rates of DeepSpeed's WarmupLR(warmup_min_lr=1e-5, warmup_max_lr=1e-3, warmup_num_steps=5):
  // rates_1 with a logarithmic warm-up, rates_2 with a linear warm-up.
  static constexpr double rates_1[] = {
      1e-05, 1e-05, 0.00043636979249265915, 0.0006857801325411255, 0.0008627395849853183, 0.001,
      0.001, 0.001};
  check_rates({1e-3, RateShape::warmup_lr, 5, 0, 0.0, 1e-5}, rates_1);
  static constexpr double rates_2[] = {1e-05, 1e-05, 0.000208, 0.000406, 0.000604, 0.000802, 0.001, 0.001};
  check_rates({1e-3, RateShape::warmup_lr, 5, 0, 0.0, 1e-5, false}, rates_2);
  // rates_3 is from DeepSpeed's WarmupDecayLR with total_num_steps=12 and the arguments of the first WarmupLR
  // above. rates_4 is from WarmupDecayLR(6, 0.0, 1e-3, warmup_num_steps=1, 'linear').
  static constexpr double rates_3[] = {1e-05,
                                       1e-05,
                                       0.00043636979249265915,
                                       0.0006857801325411255,
                                       0.0008627395849853183,
                                       0.001,
                                       0.001,
                                       0.0008585714285714286,
                                       0.0007171428571428572,
                                       0.0005757142857142857,
                                       0.0004342857142857143,
                                       0.0002928571428571429,
                                       0.00015142857142857143,
                                       1e-05,
                                       1e-05,
                                       1e-05};
  check_rates({1e-3, RateShape::warmup_decay_lr, 5, 12, 0.0, 1e-5}, rates_3);
  static constexpr double rates_4[] = {0.0, 0.0, 0.0005, 0.001, 0.00075, 0.0005, 0.00025, 0.0, 0.0};
  check_rates({1e-3, RateShape::warmup_decay_lr, 1, 6, 0.0, 0.0, false}, rates_4);
  // DeepSpeed's WarmupCosineLR(total_num_steps=12, warmup_min_ratio=0.1, warmup_num_steps=5,
  // cos_min_ratio=0.01) with the rate 7e-4, then WarmupCosineLR(3, 0.0, 4, 0.0001, 'linear'), whose warm-up
  // is longer than the whole schedule.
  static constexpr double rates_5[] = {0.0,
                                       7.000000000000001e-05,
                                       0.00034132623158623763,
                                       0.0005000419025261708,
                                       0.0006126524631724753,
                                       0.0007,
                                       0.0006656857127281882,
                                       0.0005695392163440512,
                                       0.00043060350361586293,
                                       0.00027639649638413707,
                                       0.00013746078365594886,
                                       4.1314287271811805e-05,
                                       7e-06,
                                       7e-06,
                                       7e-06,
                                       7e-06};
  check_rates({7e-4, RateShape::warmup_cosine_lr, 5, 12, 0.01, 7e-5}, rates_5);
  static constexpr double rates_6[] = {0.0, 0.0, 0.000175, 0.00035, 0.000525, 7e-08, 7e-08, 7e-08, 7e-08};
  check_rates({7e-4, RateShape::warmup_cosine_lr, 4, 3, 0.0001, 0.0, false}, rates_6);
}

TEST_CASE("DeepSpeed's schedules stand still while steps are skipped") {
  StepRule rule;
  rule.loss_scale = LossScaleKind::dynamic;
  rule.tokens = 1;
  rule.rates = {1e-3, RateShape::warmup_lr, 5, 0, 0.0, 1e-5};
  StepState state;
  state.loss_scale = rule.scale.initial;
  std::int64_t applied = 0;
  for (bool const good : {true, true, false, false, true, true, false, true}) {
    // The argument 77.0 has no effect, because the rule has a schedule of learning rates.
    begin_step(state, rule, 77.0);
    CHECK(state.learning_rate == rule.rates.at(applied));
    finish_step(state, rule, good ? 1.0 : std::nan(""), 1.0, 1);
    applied += good;
  }
  rule.rates.shape = RateShape::linear;
  begin_step(state, rule, 77.0);
  CHECK(state.learning_rate == 77.0);
}

TEST_CASE("the loss scale with hysteresis has DeepSpeed's history") {
  using Scales = std::vector<double>;
  // The expected scales are from DeepSpeed's DynamicLossScaler(init_scale=16, scale_window=3, min_scale=1,
  // delayed_shift=2). delayed_shift is the hysteresis. With 2, the first overflow does not lower the scale,
  // but the next overflows do. When the scale grows, the hysteresis starts again.
  LossScaleOptions options{.initial = 16, .growth_interval = 3, .growth_delay = 1, .hysteresis = 2};
  CHECK(scales_after(options, "gggoogogggggggooo") ==
        Scales{16, 16, 16, 16, 8, 8, 4, 4, 4, 4, 8, 8, 8, 16, 16, 8, 4});
  // Now delayed_shift=3 and consecutive_hysteresis=True: every good step starts the hysteresis again.
  options.hysteresis = 3;
  options.consecutive_hysteresis = true;
  CHECK(scales_after(options, "ogogoooggggoogooggggg") ==
        Scales{16, 16, 16, 16, 16, 16, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16, 16, 32, 32});
  // Now scale_window=2, min_scale=4 and delayed_shift=1. Before the scale grows for the first time, one more
  // good step is needed than before each later growth.
  options = {.initial = 16, .growth_interval = 2, .growth_delay = 1, .minimum = 4};
  CHECK(scales_after(options, "gggggooggggg") == Scales{16, 16, 32, 32, 64, 32, 16, 16, 16, 32, 32, 64});
}

TEST_CASE("Adam adds the decay to the gradient, AdamW does not") {
  // The expected values follow torch.optim.Adam (_single_tensor_adam) in double precision: the decay is added
  // to the gradient, grad = grad + weight_decay * param.
  double weight = 0.7, first = 0, second = 0;
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .decoupled = false};
  double mine = weight, mine_first = 0, mine_second = 0;
  float narrow = 0.7f, narrow_first = 0, narrow_second = 0;
  for (int step = 1; step <= 100; ++step) {
    double const clipped = 0.5, raw = std::sin(step * 0.7) + 0.2;
    double const gradient = raw * clipped + 0.1 * weight;
    first = 0.9 * first + 0.1 * gradient;
    second = 0.95 * second + 0.05 * gradient * gradient;
    double const denominator = std::sqrt(second) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8;
    weight -= 3e-3 / (1 - std::pow(0.9, step)) * (first / denominator);
    detail::adamw_formula(
        raw, mine, mine_first, mine_second,
        adamw_factors<double>(options, 3e-3, std::pow(0.9, step), std::pow(0.95, step), clipped, true));
    detail::adamw_formula(
        static_cast<float>(raw), narrow, narrow_first, narrow_second,
        adamw_factors<float>(options, 3e-3, std::pow(0.9, step), std::pow(0.95, step), clipped, true));
    REQUIRE(mine == doctest::Approx(weight).epsilon(1e-13));
    REQUIRE(narrow == doctest::Approx(weight).epsilon(1e-5));
  }
  // The last argument says whether this parameter group has weight decay. Without weight decay it has no L2
  // term.
  CHECK(adamw_factors<float>(options, 1e-3, 0.9, 0.95, 1.0, false).l2 == 0.0f);
  CHECK(adamw_factors<float>(options, 1e-3, 0.9, 0.95, 1.0, true).keep == 1.0f);
  CHECK(adamw_factors<float>({}, 1e-3, 0.9, 0.95, 1.0, true).l2 == 0.0f);
}
