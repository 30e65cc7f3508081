// SPDX-License-Identifier: Apache-2.0
// Gradients of whole models in double against central differences, through the engine: weights are perturbed
// with fill, the loss is evaluated, the gradient is read from the step's buffers.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;

/// Weights that are no model's initial ones: norms near 1, everything else up to 0.3, biases included.
float base_value(ParameterSpec const& spec, int unit, int parameter, std::int64_t element) {
  auto const word = philox4x32({{static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(unit),
                                 static_cast<std::uint32_t>(parameter), 3u}},
                               philox_key(11))
                        .word[0];
  float const uniform = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-31f;
  return (spec.init.kind == Init::Kind::ones ? 1.0f : 0.0f) + 0.3f * uniform;
}

struct Perturbation {
  int unit = -1, parameter = -1;
  std::int64_t element = -1;  ///< -1: all elements, each with its own sign
  float step = 0.0f;

  float of(int in_unit, int in_parameter, std::int64_t at) const {
    if (in_unit != unit || in_parameter != parameter || (element >= 0 && at != element)) return 0.0f;
    bool const down = element < 0 && (static_cast<std::uint64_t>(at) * 0x9E3779B97F4A7C15u) >> 63;
    return down ? -step : step;
  }
};

template <class T>
void set_weights(T& trainer, Perturbation const& by) {
  StepPlan const& plan = trainer.plan();
  trainer.fill([&](int unit, int parameter, std::int64_t offset, std::span<float> out) {
    ParameterSpec const& spec = plan.unit(unit).parameters[static_cast<std::size_t>(parameter)];
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::int64_t const at = offset + static_cast<std::int64_t>(i);
      out[i] = base_value(spec, unit, parameter, at) + by.of(unit, parameter, at);
    }
  });
}

/// The gradient of the mean loss over unmasked tokens, by unit: flat buffers. For a world of one.
using Gradients = std::vector<std::vector<double>>;

template <class T>
Gradients gradients_of(T& trainer, Batch const& batch, StepReport* report = nullptr) {
  Gradients all(static_cast<std::size_t>(trainer.plan().units_count()));
  trainer.observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
    if (entry.verb != Verb::norm || entry.unit < 0) return;
    REQUIRE(plan.gradient_type() == DType::f64);
    auto const* const from = reinterpret_cast<double const*>(
        buffers[static_cast<std::size_t>(plan.train.find(plan.gradient_kind(), entry.unit))]);
    all[static_cast<std::size_t>(entry.unit)].assign(from, from + plan.layout(entry.unit).padded);
  });
  StepReport const done = trainer.step(batch);
  trainer.observe({});
  double const exact = static_cast<double>(done.tokens) / static_cast<double>(done.unmasked);
  for (auto& unit : all)
    for (double& value : unit) value *= exact;
  if (report) *report = done;
  return all;
}

TrainerOptions still(Run const& run) {  // a step that leaves the weights alone
  TrainerOptions options = options_of(run);
  options.learning_rate = 0.0;
  options.weight_decay = 0.0;
  return options;
}

/// Every parameter along a direction that touches all its elements, and some elements alone.
template <class T>
void check_against_differences(T& trainer, Batch const& batch) {
  set_weights(trainer, {});
  double const loss = trainer.evaluate(batch);
  StepReport report;
  Gradients const gradients = gradients_of(trainer, batch, &report);
  CHECK(report.loss == doctest::Approx(loss).epsilon(1e-14));
  double squares = 0.0;
  for (auto const& unit : gradients)
    for (double const value : unit) squares += value * value;
  CHECK(report.grad_norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-6));

  for (int unit = 0; unit < trainer.plan().units_count(); ++unit) {
    auto const& parameters = trainer.plan().unit(unit).parameters;
    for (int index = 0; index < static_cast<int>(parameters.size()); ++index) {
      ParameterSpec const& spec = parameters[static_cast<std::size_t>(index)];
      Range const lies = trainer.plan().layout(unit).parameters[static_cast<std::size_t>(index)];
      double const* const gradient = gradients[static_cast<std::size_t>(unit)].data() + lies.begin;
      if (!spec.trainable) {
        for (std::int64_t i = 0; i < lies.size(); ++i) REQUIRE(gradient[i] == 0.0);
        continue;
      }
      for (std::int64_t const element :
           {std::int64_t{-1}, std::int64_t{0}, lies.size() / 2, lies.size() - 1}) {
        Perturbation const up{unit, index, element, 0x1p-16f}, down{unit, index, element, -0x1p-16f};
        double expected = 0.0;  // with the change that fp32 weights really make
        for (std::int64_t i = 0; i < lies.size(); ++i) {
          float const at = base_value(spec, unit, index, i);
          expected += gradient[i] * (static_cast<double>(at + up.of(unit, index, i)) -
                                     static_cast<double>(at + down.of(unit, index, i)));
        }
        set_weights(trainer, up);
        double const above = trainer.evaluate(batch);
        set_weights(trainer, down);
        double const below = trainer.evaluate(batch);
        INFO(spec.name, ", element ", element, ": ", expected, " against ", above - below);
        CHECK(std::fabs(expected - (above - below)) < 1e-6 * std::fabs(expected) + 1e-12);
      }
    }
  }
}

std::unique_ptr<AnyTrainer> double_gpt2(TrainerOptions const& options) {
  return make_trainer(tiny, recipe("zs0", "fp64"), comm::Comm(), options);
}

Run two_micro_batches() {
  Run run;
  run.split = {1, 2};
  run.mask_every = 4;
  return run;
}

}  // namespace

TEST_CASE("every gradient of GPT-2 is the slope of its loss") {
  Run const run = two_micro_batches();
  auto const trainer = double_gpt2(still(run));
  check_against_differences(
      *trainer, make_batch(0, 0, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every));
}

TEST_CASE(
    "every gradient of a user model is the slope of its loss with two borrowers and frozen parameters") {
  Run run = two_micro_batches();
  run.vocabulary = TiedModel{}.words;
  Trainer<TiedModel, Precision<double>> trainer(TiedModel{}, comm::Comm(), still(run));
  check_against_differences(
      trainer, make_batch(0, 0, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every));
}

TEST_CASE("the loss is the mean over the targets that are not masked") {
  Run run;
  run.split = {1, 1};
  run.sequence = 7;
  auto const trainer = double_gpt2(still(run));
  Batch batch = make_batch(0, 0, run.split, 1, 7, run.vocabulary);
  double sum = 0.0;
  for (int const kept : {0, 2, 5}) {
    Batch one = batch;
    for (int t = 0; t < 7; ++t)
      if (t != kept) one.targets[static_cast<std::size_t>(t)] = -1;
    sum += trainer->evaluate(one);
  }
  for (std::size_t const masked : {1u, 3u, 4u, 6u}) batch.targets[masked] = -100;
  StepReport const report = trainer->step(batch);
  CHECK(report.loss == doctest::Approx(sum / 3).epsilon(1e-14));
  CHECK(report.unmasked == 3);
  CHECK(report.tokens == 7);
}

TEST_CASE("unequal masks in micro-batches give the gradient of one big batch") {
  Run small, big;
  small.split = {1, 4};
  big.batch = 4;
  auto const many = double_gpt2(still(small)), one = double_gpt2(still(big));
  StepReport of_many, of_one;
  Batch batch = make_batch(0, 0, small.split, 1, 13, tiny.vocabulary, 3);
  for (int t = 0; t < 13; ++t)
    batch.targets[static_cast<std::size_t>(13 + t)] = -1;  // one without any target
  Gradients const a = gradients_of(*many, batch, &of_many);
  batch.accumulation = 1;
  batch.batch = 4;
  Gradients const b = gradients_of(*one, batch, &of_one);
  CHECK(of_many.unmasked == of_one.unmasked);
  CHECK(of_many.loss == doctest::Approx(of_one.loss).epsilon(1e-13));
  double worst = 0.0, largest = 0.0;
  for (std::size_t unit = 0; unit < a.size(); ++unit)
    for (std::size_t i = 0; i < a[unit].size(); ++i) {
      worst = std::max(worst, std::fabs(a[unit][i] - b[unit][i]));
      largest = std::max(largest, std::fabs(b[unit][i]));
    }
  CHECK(largest > 1e-3);
  CHECK(worst < 1e-13 * std::max(1.0, largest));
}

TEST_CASE("a step without a single target changes nothing but by decay") {
  Run run;
  TrainerOptions options = options_of(run);
  options.weight_decay = 0.0;
  auto const trainer = double_gpt2(options);
  std::string const before = hash_weights(*trainer);
  Batch batch = make_batch(0, 0, run.split, 1, 13, run.vocabulary);
  for (std::int32_t& target : batch.targets) target = -1;
  StepReport const report = trainer->step(batch);
  CHECK(report.loss == 0.0);
  CHECK(report.grad_norm == 0.0);
  CHECK(report.unmasked == 0);
  CHECK_FALSE(report.skipped);
  CHECK(hash_weights(*trainer) == before);
}
