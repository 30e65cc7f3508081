// SPDX-License-Identifier: Apache-2.0
// Tests AdamW to the bit and against PyTorch's order, learning rate schedules, and the loss scale.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/schedule.hpp"

#include "unit/reference.hpp"

namespace {

using namespace tessera;

/// torch.optim.AdamW, _single_tensor_adamw, in double: decay, moments, bias corrections, step.
struct TorchAdamW {
  double rate, beta1, beta2, epsilon, decay;
  double weight, first = 0, second = 0;
  int step = 0;

  void update(double gradient) {
    ++step;
    weight *= 1 - rate * decay;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    double const correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
    double const denominator = std::sqrt(second) / std::sqrt(correction2) + epsilon;
    weight -= rate / correction1 * (first / denominator);
  }
};

template <class S>
struct Moments {
  S weight, first = 0, second = 0;
};

template <class S>
void adam_step(Moments<S>& at, S gradient, AdamWOptions const& options, double rate, int step, bool decayed) {
  auto const by = adamw_factors<S>(options, rate, std::pow(options.beta1, step),
                                   std::pow(options.beta2, step), 1.0, decayed);
  detail::adamw_formula(gradient, at.weight, at.first, at.second, by);
}

template <class S>
std::vector<S> some(std::int64_t n, std::uint32_t seed, double scale) {
  auto const drawn = reference::random<S>({n}, seed, scale);
  return drawn.values;
}

}  // namespace

TEST_CASE("AdamW follows PyTorch over many steps") {
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (bool const decayed : {true, false}) {
    TorchAdamW torch{3e-3, 0.9, 0.95, 1e-8, decayed ? 0.1 : 0.0, 0.7};
    Moments<double> in_double{0.7};
    Moments<float> in_float{0.7f};
    for (int step = 1; step <= 200; ++step) {
      double const gradient = std::sin(step * 0.7) + 0.2;
      torch.update(gradient);
      adam_step(in_double, gradient, options, 3e-3, step, decayed);
      adam_step(in_float, static_cast<float>(gradient), options, 3e-3, step, decayed);
      REQUIRE(in_double.weight == doctest::Approx(torch.weight).epsilon(1e-13));
      REQUIRE(in_float.weight == doctest::Approx(torch.weight).epsilon(1e-5));
    }
  }
}

TEST_CASE("the first AdamW steps by hand") {
  // torch.optim.AdamW([1.0], lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.5), gradients 0.25 then
  // -0.5: step 1: 1 * 0.95 - 0.1 * 1 = 0.85; step 2: m = -0.0275, m^ = -0.0275 / 0.19, v = 3.124375e-4, v^ =
  // v / 0.001999: 0.85 * 0.95 + 0.1 * 0.1447368... / 0.3953406...
  Moments<double> at{1.0};
  AdamWOptions const options{.weight_decay = 0.5};
  adam_step(at, 0.25, options, 0.1, 1, true);
  CHECK(at.weight == doctest::Approx(0.85).epsilon(1e-7));
  CHECK(at.first == doctest::Approx(0.025));
  CHECK(at.second == doctest::Approx(6.25e-5));
  adam_step(at, -0.5, options, 0.1, 2, true);
  double const step = 0.1 * (0.0275 / 0.19) / (std::sqrt(3.124375e-4 / 0.001999) + 1e-8);
  CHECK(at.first == doctest::Approx(-0.0275));
  CHECK(at.second == doctest::Approx(3.124375e-4));
  CHECK(at.weight == doctest::Approx(0.85 * 0.95 + step).epsilon(1e-7));
}

TEST_CASE("decay is separate from the step and only where asked for") {
  AdamWOptions const options{.weight_decay = 0.25};
  Moments<float> with{2.0f}, without{2.0f};
  adam_step(with, 0.0f, options, 0.5, 1, true);
  adam_step(without, 0.0f, options, 0.5, 1, false);
  CHECK(with.weight == 2.0f * 0.875f);
  CHECK(without.weight == 2.0f);
}

TEST_CASE("tiny moments become zero and never denormal") {
  Moments<float> at{1.0f};
  adam_step(at, 1e-15f, {}, 1e-3, 1, false);
  CHECK(at.second == 0.0f);  // (1e-15)^2 / 1000 is below 2^-100
  CHECK(at.first != 0.0f);
  for (int step = 2; step < 3000; ++step) {
    adam_step(at, 0.0f, {}, 1e-3, step, false);
    REQUIRE((at.first == 0.0f || std::fabs(at.first) >= 0x1p-100f));
  }
  CHECK(at.first == 0.0f);
  CHECK(std::isfinite(at.weight));
  Moments<double> in_double{1.0, 0x1p-101, -0x1p-101};
  adam_step(in_double, 0.0, {}, 0.0, 1, false);
  CHECK(in_double.first == 0.0);
  CHECK(in_double.second == 0.0);
}

TEST_CASE_TEMPLATE("packets of AdamW have the bits of the scalar formula for every length", S, float,
                   double) {
  reference::Machine one(1), three(3);
  auto const by = adamw_factors<S>({}, 1e-3, 0.9 * 0.9, 0.999 * 0.999, 0.37, true);
  std::int64_t const not_skipped = 0, skipped = 1;
  for (std::int64_t const n : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 100, 4095, 4096, 4097, 20000}) {
    std::vector<S> const gradient = some<S>(n, 1, 1e-3), weight = some<S>(n, 2, 1.0),
                         first = some<S>(n, 3, 1e-3);
    std::vector<S> second = some<S>(n, 4, 1e-3);
    for (S& value : second) value = std::fabs(value) * S(0.001);
    std::vector<S> w = weight, m = first, v = second;
    for (std::size_t i = 0; i < w.size(); ++i) detail::adamw_formula(gradient[i], w[i], m[i], v[i], by);
    for (auto* machine : {&one, &three}) {
      std::vector<S> w2 = weight, m2 = first, v2 = second;
      ops::adamw(machine->context, n, gradient.data(), w2.data(), m2.data(), v2.data(),
                 static_cast<S*>(nullptr), &by, &skipped);
      CHECK(reference::same_bits(w2, weight));
      ops::adamw(machine->context, n, gradient.data(), w2.data(), m2.data(), v2.data(),
                 static_cast<S*>(nullptr), &by, &not_skipped);
      CHECK(reference::same_bits(w2, w));
      CHECK(reference::same_bits(m2, m));
      CHECK(reference::same_bits(v2, v));
    }
  }
}

TEST_CASE_TEMPLATE("16-bit weights are the rounded master also when the step is skipped", T, half, bfloat16) {
  reference::Machine machine(2);
  auto const by = adamw_factors<float>({}, 1e-2, 0.9, 0.999, 1.0, false);
  std::int64_t skip = 1;
  for (std::int64_t const n : {1, 13, 4099}) {
    auto const gradient = reference::random<T>({n}, 5);
    std::vector<float> master = some<float>(n, 6, 1.0), first(master.size()), second(master.size());
    std::vector<T> weights(master.size(), T(std::numeric_limits<float>::quiet_NaN()));
    auto const rounded = [&] {
      for (std::size_t i = 0; i < master.size(); ++i)
        if (static_cast<float>(weights[i]) != static_cast<float>(T(master[i]))) return false;
      return true;
    };
    std::vector<float> const before = master;
    skip = 1;
    ops::adamw(machine.context, n, gradient.values.data(), master.data(), first.data(), second.data(),
               weights.data(), &by, &skip);
    CHECK(rounded());
    CHECK(master == before);
    CHECK(first == std::vector<float>(first.size()));
    skip = 0;
    ops::adamw(machine.context, n, gradient.values.data(), master.data(), first.data(), second.data(),
               weights.data(), &by, &skip);
    CHECK(rounded());
    CHECK(master != before);
    // The master keeps what 16 bits lose.
    std::vector<float> alone = before, one(alone.size()), other(alone.size());
    ops::adamw(machine.context, n, gradient.values.data(), alone.data(), one.data(), other.data(),
               static_cast<T*>(nullptr), &by, &skip);
    CHECK(reference::same_bits(master, alone));
  }
}

TEST_CASE_TEMPLATE("an update of rows has the bits of updates one by one", T, void, bfloat16) {
  using W = std::conditional_t<std::is_void_v<T>, float, T>;
  reference::Machine machine(2);
  AdamWFactors<float> const factors[] = {adamw_factors<float>({}, 1e-2, 0.9, 0.999, 0.5, true),
                                         adamw_factors<float>({}, 1e-2, 0.9, 0.999, 0.5, false)};
  std::int64_t const lengths[] = {0, 1, 13, 4096, 0, 4099, 12289, 0};
  std::int64_t const all = 1 + 13 + 4096 + 4099 + 12289;
  auto const gradient = reference::random<bfloat16>({all}, 5, 1e-2);
  for (std::int64_t const skip : {0, 1}) {
    struct State {
      std::vector<float> master = some<float>(all, 6, 1.0), first = some<float>(all, 7, 1e-3),
                         second = std::vector<float>(static_cast<std::size_t>(all), 1e-4f);
      std::vector<W> weights = std::vector<W>(static_cast<std::size_t>(all), W(7.0f));
    } one, together;
    std::vector<ops::UpdateRow> rows;
    std::int64_t at = 0;
    for (std::int64_t const n : lengths) {
      auto const* const by = &factors[rows.size() % 2];
      ops::adamw(machine.context, n, gradient.values.data() + at, one.master.data() + at,
                 one.first.data() + at, one.second.data() + at,
                 std::is_void_v<T> ? nullptr : one.weights.data() + at, by, &skip);
      rows.push_back({n,
                      0,
                      gradient.values.data() + at,
                      together.master.data() + at,
                      {together.first.data() + at, together.second.data() + at},
                      std::is_void_v<T> ? nullptr : together.weights.data() + at,
                      by});
      at += n;
    }
    auto const numbered = ops::number_rows<ops::UpdateRow>(rows, rows.data());
    CHECK(numbered.elements == all);
    CHECK(numbered.blocks == 1 + 1 + 1 + 2 + 4);
    CHECK(rows[5].block == 3);
    CHECK(rows[7].block == 9);
    ops::adamw<bfloat16, float, T>(machine.context, numbered, &skip);
    CHECK(reference::same_bits(together.master, one.master));
    CHECK(reference::same_bits(together.first, one.first));
    CHECK(reference::same_bits(together.second, one.second));
    CHECK(reference::same_bits(together.weights, one.weights));
    CHECK((one.weights[1] == W(7.0f)) == std::is_void_v<T>);
    std::vector<float> const before = together.master;
    ops::adamw<bfloat16, float, T>(machine.context, ops::number_rows<ops::UpdateRow>({}, nullptr), &skip);
    CHECK(together.master == before);
  }
}

TEST_CASE("learning rates follow their closed forms") {
  RateSchedule const constant{.learning_rate = 0.5};
  for (std::int64_t const step : {0, 1, 1000000}) CHECK(constant.at(step) == 0.5);

  RateSchedule linear{0.5, RateShape::linear, 4, 14, 0.2};
  CHECK(linear.at(0) == doctest::Approx(0.125));  // warm-up ends at the rate, not before
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

  RateSchedule const no_end{0.5, RateShape::cosine, 4, 0, 0.0};  // without an end the rate stays
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
  CHECK(step(infinity) == 2.0);  // the minimum
  CHECK(state.skips_in_row == 3);
  CHECK(state.attempted == 4);
  CHECK(state.applied == 1);
  CHECK(state.beta1_power == doctest::Approx(0.9));  // skipped steps do not count in the bias correction
  for (double const scale : {2.0, 2.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0, 16.0})
    CHECK(step(1.0) == scale);
  CHECK(state.skips_in_row == 0);
  CHECK(step(1.0) == 16.0);
  CHECK(step(infinity) == 8.0);  // an overflow restarts the count
  CHECK(step(1.0) == 8.0);
  CHECK(step(1.0) == 8.0);
  CHECK(step(1.0) == 16.0);

  rule.loss_scale = LossScaleKind::fixed;
  CHECK(step(infinity) == 16.0);
  CHECK(state.skipped == 1);
  rule.loss_scale = LossScaleKind::none;
  step(infinity);
  CHECK(state.skipped == 1);  // no update, but no scale to lower either: the engine gives up
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
  finish_step(state, rule, 36.0, 30.0, 6);  // gradients carry 4/12, half the tokens count
  CHECK(state.loss == 5.0);
  CHECK(state.norm == 6.0 * 2 / 4);
  CHECK(state.gradient_factor == 0.5);
  rule.clip = 1.5;
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 36.0, 30.0, 6);
  CHECK(state.norm == 3.0);  // reported before clipping
  CHECK(state.gradient_factor == doctest::Approx(0.25).epsilon(1e-6));
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 144.0, 30.0, 6);
  CHECK(state.gradient_factor == doctest::Approx(0.125).epsilon(1e-6));  // uses the norm of this step
  rule.clip = 100.0;
  begin_step(state, rule, 1e-3);
  finish_step(state, rule, 36.0, 30.0, 6);
  CHECK(state.gradient_factor == 0.5);
  finish_step(state, rule, 0.0, 0.0, 0);  // without any target
  CHECK(state.loss == 0.0);
  CHECK(state.gradient_factor == 0.0);
  CHECK(state.skipped == 1);
}

TEST_CASE("each norm block and each loss counts once whoever else has it") {
  // Four ranks. Ranks 0 and 1 work on the same samples, as do 2 and 3. Rank 3 owns the first group. Each rank
  // has a shard of the second. In the third, both ranks of a pair have the same values.
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
    std::fill_n(shares.partials(rank), 305, 1e6f);  // must be ignored for all groups
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
  CHECK(state.unmasked == 2 * (10 + 11));
  CHECK(state.loss == 2 * (1.0 + 2.0) / 42);
  CHECK(state.bad_unit == 0);
  CHECK(state.bad_element == 7);
  CHECK(state.stop_votes == 2);
}
