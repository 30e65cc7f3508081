// SPDX-License-Identifier: Apache-2.0
// Tests learning rate schedules, the loss scale, and the sums over all ranks at the end of a step.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/schedule.hpp"

using namespace tessera;

TEST_CASE("learning rates follow their closed forms") {
  RateSchedule const constant{.learning_rate = 0.5};
  for (std::int64_t const step : {0, 1, 1000000}) CHECK(constant.at(step) == 0.5);

  RateSchedule linear{0.5, RateShape::linear, 4, 14, 0.2};
  // This schedule has 4 warm-up steps. Step 0 has a quarter of the full rate, and step 3 has the full rate.
  CHECK(linear.at(0) == doctest::Approx(0.125));
  CHECK(linear.at(3) == 0.5);
  CHECK(linear.at(4) == 0.5);
  CHECK(linear.at(9) == doctest::Approx(0.5 * (0.2 + 0.8 * 0.5)));
  CHECK(linear.at(14) == doctest::Approx(0.1));
  CHECK(linear.at(1000) == doctest::Approx(0.1));

  RateSchedule cosine{0.5, RateShape::cosine, 4, 14, 0.0};
  for (std::int64_t step = 4; step <= 14; ++step)
    CHECK(cosine.at(step) ==
          doctest::Approx(0.25 * (1 + std::cos(std::numbers::pi * static_cast<double>(step - 4) / 10)))
              .epsilon(1e-12));
  CHECK(cosine.at(14) == doctest::Approx(0.0).epsilon(1e-12));
  CHECK(cosine.at(50) == doctest::Approx(0.0).epsilon(1e-12));
  for (std::int64_t step = 5; step < 14; ++step) CHECK(cosine.at(step) < cosine.at(step - 1));

  // With 0 as the last step, the rate is constant after the warm-up.
  RateSchedule const no_end{0.5, RateShape::cosine, 4, 0, 0.0};
  CHECK(no_end.at(100) == 0.5);
}

TEST_CASE("the loss scale halves on overflow and grows after enough good steps") {
  StepRule rule;
  rule.loss_scale = LossScaleKind::dynamic;
  rule.scale = {.initial = 8.0, .growth_interval = 3, .minimum = 2.0, .maximum = 16.0};
  rule.tokens = 10;
  StepState state;
  state.loss_scale = rule.scale.initial;
  double const infinity = std::numeric_limits<double>::infinity();
  auto const step = [&](double square_sum) {
    begin_step(state, rule, 1e-3);
    finish_step(state, rule, square_sum, 5.0, 10);
    return state.loss_scale;
  };
  CHECK(step(1.0) == 8.0);
  CHECK(state.used_scale == 8.0);
  CHECK(step(infinity) == 4.0);
  CHECK(state.skipped == 1);
  CHECK(state.used_scale == 8.0);
  CHECK(step(std::nan("")) == 2.0);
  CHECK(step(infinity) == 2.0);  // 2 is the minimum of the loss scale
  CHECK(state.skips_in_row == 3);
  CHECK(state.attempted == 4);
  CHECK(state.applied == 1);
  CHECK(state.beta1_power == doctest::Approx(0.9));  // only the applied step changes the power of beta1
  for (double const scale : {2.0, 2.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0, 16.0})
    CHECK(step(1.0) == scale);
  CHECK(state.skips_in_row == 0);
  CHECK(step(1.0) == 16.0);
  CHECK(step(infinity) == 8.0);  // an overflow restarts the count of good steps
  CHECK(step(1.0) == 8.0);
  CHECK(step(1.0) == 8.0);
  CHECK(step(1.0) == 16.0);

  rule.loss_scale = LossScaleKind::fixed;
  CHECK(step(infinity) == 16.0);
  CHECK(state.skipped == 1);
  rule.loss_scale = LossScaleKind::none;
  step(infinity);
  // A step that overflows is skipped even if no loss scale is used. The engine then stops with an error,
  // because no scale can be lowered.
  CHECK(state.skipped == 1);
  CHECK(state.used_scale == 1.0);
}

TEST_CASE("the update's factor holds scale token count and clipping") {
  StepRule rule;
  rule.loss_scale = LossScaleKind::fixed;
  rule.scale.initial = 4.0;
  rule.tokens = 12;
  StepState state;
  state.loss_scale = 4.0;
  begin_step(state, rule, 1e-3);
  CHECK(state.backward_scale_double == 4.0 / 12);
  finish_step(state, rule, 36.0, 30.0, 6);  // the sum of losses is 30, and 6 of the 12 tokens have targets
  CHECK(state.loss == 5.0);
  CHECK(state.norm == 6.0 * 2 / 4);
  CHECK(state.gradient_factor == 0.5);
  rule.clip = 1.5;
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 36.0, 30.0, 6);
  CHECK(state.norm == 3.0);  // the reported norm is the norm before clipping
  CHECK(state.gradient_factor == doctest::Approx(0.25).epsilon(1e-6));
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 144.0, 30.0, 6);
  // The norm is now twice as large as in the previous step, so the clip factor must be half as large.
  CHECK(state.gradient_factor == doctest::Approx(0.125).epsilon(1e-6));
  rule.clip = 100.0;
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 36.0, 30.0, 6);
  CHECK(state.gradient_factor == 0.5);
  finish_step(state, rule, 0.0, 0.0, 0);  // this step has no targets
  CHECK(state.loss == 0.0);
  CHECK(state.gradient_factor == 0.0);
  CHECK(state.skipped == 1);
}

TEST_CASE("each norm block and each loss counts once whoever else has it") {
  // The gradient norm is computed from three flat groups (flat buffers of parameters). Rank 3 owns the whole
  // first group. Each of the four ranks has its own shard of the second group. The third group is replicated:
  // ranks 0 and 1 have the same values, and ranks 2 and 3 have the same values. Ranks 0 and 1 also train on
  // the same samples, as do ranks 2 and 3.
  constexpr int ranks = 4;
  std::array<NormRange, 3> const groups{{{0, 3, {3, 1, 1}}, {3, 2, {0, 1, 4}}, {5, 300, {0, 2, 2}}}};
  std::int64_t const bytes = share_bytes(305, 2);
  std::vector<double> memory(static_cast<std::size_t>(ranks * bytes / 8));
  StepShares shares;
  shares.first = reinterpret_cast<std::byte*>(memory.data());
  shares.bytes = bytes;
  shares.sums = share_sums_offset(305);
  shares.units = groups.data();
  shares.unit_count = 3;
  shares.ranks = ranks;
  shares.losses_by = {0, 2, 2};
  shares.accumulation = 2;
  for (int rank = 0; rank < ranks; ++rank) {
    // Fills the partial sums of this rank with 1e6, then overwrites the sums that count. The result must
    // ignore the remaining sums.
    std::fill_n(shares.partials(rank), 305, 1e6f);
    std::fill_n(shares.partials(rank) + 3, 2, static_cast<float>(10 * rank));
    std::fill_n(shares.partials(rank) + 5, 300, static_cast<float>(1 + rank / 2));
    for (int micro = 0; micro < 2; ++micro) shares.losses(rank)[micro] = {1.0 + rank / 2, 10 + micro};
    *shares.notes(rank) = {rank == 3 ? BadElement{0, 7} : BadElement{}, rank >= 2};
  }
  std::fill_n(shares.partials(3), 3, 5.0f);
  StepRule rule;
  rule.tokens = 42;
  StepState state;
  Context<Cpu> context(1, {});
  begin_step(state, rule, 1e-3);
  ops::finish_step<Cpu>(context, shares, &state, rule);
  CHECK(state.norm == std::sqrt(3 * 5.0 + 2 * (0 + 10 + 20 + 30) + 300 * (1 + 2)));
  CHECK(state.valid_tokens == 2 * (10 + 11));
  CHECK(state.loss == 2 * (1.0 + 2.0) / 42);
  CHECK(state.bad_unit == 0);
  CHECK(state.bad_element == 7);
  CHECK(state.stop_votes == 2);
}
