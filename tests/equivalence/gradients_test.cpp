// SPDX-License-Identifier: Apache-2.0
// Tests the gradients of whole models in double. The gradients are compared with numerical derivatives, and
// the report of this comparison must find faults that are planted in a model. Other tests check targets that
// are masked: the mean loss, micro-batches with unequal numbers of targets, and a step without any target.
#include "tessera/testing/gradients.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;

/// The gradients of the mean loss over all tokens with a target. Each element is the flat gradient buffer of
/// one unit (layer). gradients_of() computes them on one rank.
using Gradients = std::vector<std::vector<double>>;

template <class T>
Gradients gradients_of(T& trainer, Batch const& batch, StepReport* report = nullptr) {
  Gradients all(static_cast<std::size_t>(trainer.plan().units_count()));
  trainer.observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
    if (entry.verb != Verb::norm) return;
    REQUIRE(plan.table.gradient.type == DType::f64);
    for (Item const& item : entry.items) {
      auto const* const from =
          reinterpret_cast<double const*>(buffers[static_cast<std::size_t>(item.at(Role::gradient))]);
      all[static_cast<std::size_t>(item.of.unit)].assign(from, from + plan.flat(item.of).padded);
    }
  });
  StepReport const done = trainer.step(batch);
  trainer.observe({});
  double const exact = static_cast<double>(done.tokens) / static_cast<double>(done.valid_tokens);
  for (auto& unit : all)
    for (double& value : unit) value *= exact;
  if (report) *report = done;
  return all;
}

TrainerOptions still(Run const& run) {  // steps with these options do not change the weights
  TrainerOptions options = options_of(run);
  options.learning_rate = 0.0;
  options.weight_decay = 0.0;
  return options;
}

/// Checks the gradient report of a correct model: it must contain no faults and compare `parameters`
/// parameters.
void expect_right(testing::GradientReport const& report, std::size_t parameters) {
  INFO(report);
  CHECK(report.right());
  CHECK(report.differences.size() == parameters);
  CHECK(report.step.grad_norm == doctest::Approx(report.norm).epsilon(1e-6));
}

std::unique_ptr<AnyTrainer> double_gpt2(TrainerOptions const& options) {
  return make_trainer(any_model(tiny), recipe("zs0", "fp64"), comm::Comm(), options);
}

/// TiedModel, which is correct, with one planted mistake, `fault`, that a user could make.
struct Faulty : TiedModel {
  enum Fault {
    none,
    forgotten_gradient,
    wrong_index,
    added_gradient,
    forgotten_tied_gradient,
    fresh_despite_borrowers,
    stale_scratch,
    forgotten_input_gradient,
    half_an_output,
    forgotten_saved,
    wrong_in_evaluation,
    wrong_factor
  } fault = none;
  /// The indices of the parameters of the unit `embedding` (first enum) and of the unit `plain` (second
  /// enum).
  enum { position_table, token_table };
  enum { norm_weight, norm_bias, up_weight, up_bias, down_weight, down_bias };
  static constexpr int norm_rstd = 2;

  std::vector<UnitSpec> units(MicroBatch shape) const {
    std::vector<UnitSpec> units = TiedModel::units(shape);
    units[embedding].backward = {{"sums", {words, channels}, true}};
    return units;
  }
  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    if (fault == half_an_output && unit == memory) {
      Tensor<T, Place> const whole = pass.output;
      std::vector<T> other_storage(static_cast<std::size_t>(whole.elements()));
      with(pass.output, Tensor<T, Place>{other_storage.data(), whole.shape()},
           [&] { TiedModel::forward(unit, pass); });
      std::copy_n(other_storage.begin(), whole.elements() / 2, whole.data());
      return;
    }
    if (fault == forgotten_saved && unit == plain)
      return lost(pass.saved_statistics[norm_rstd], [&] { TiedModel::forward(unit, pass); });
    TiedModel::forward(unit, pass);
    if (fault == wrong_in_evaluation && unit == plain && pass.output && !pass.training)
      pass.output.data()[0] += T(1);
  }
  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    auto const run = [&] { TiedModel::backward_input(unit, pass); };
    if (unit != plain) return run();
    if (fault == forgotten_input_gradient) return lost(pass.input_gradient, run);
    run();
  }
  template <class Place, class T>
  void backward_weight(int unit, Pass<Place, T>& pass) const {
    auto const run = [&] { TiedModel::backward_weight(unit, pass); };
    if (fault == forgotten_gradient && unit == plain) return with(pass.gradients[up_bias], {}, run);
    if (fault == wrong_index && unit == plain)
      return with(pass.gradients[norm_weight], pass.gradients[norm_bias], run);
    if (fault == forgotten_tied_gradient && unit == memory) return lost(pass.tied_gradients[0], run);
    if (fault == stale_scratch && unit == embedding)
      return with(pass.tied_sums[token_table], pass.backward_statistic(0), run);
    if (fault == fresh_despite_borrowers && unit == embedding)
      return ops::embedding_backward(pass.context(), pass.tokens, pass.output_gradient,
                                     pass.tied_sums[token_table], true, pass.gradient(token_table),
                                     pass.gradient(position_table));
    Tensor<T, Place> const bias = unit == plain ? pass.gradient(down_bias) : Tensor<T, Place>{};
    std::vector<T> const before(bias.data(), bias.data() + bias.elements());
    run();
    if (fault == wrong_factor && unit == plain) pass.gradient(norm_bias).data()[channels - 1] *= T(1.001);
    if (fault == added_gradient)
      for (std::size_t at = 0; at < before.size(); ++at) bias.data()[at] += before[at];
  }

 private:
  /// Calls run() while the view `place` refers to the memory of the view `other`. Restores `place`
  /// afterwards.
  template <class View, class Run>
  static void with(View& place, View const& other, Run const& run) {
    View const original = std::exchange(place, other);
    run();
    place = original;
  }
  /// Calls run() while `place` refers to a temporary buffer, so the values that run() writes to `place` are
  /// lost.
  template <class View, class Run>
  static void lost(View& place, Run const& run) {
    std::vector<typename View::value_type> other_storage(static_cast<std::size_t>(place.elements()));
    with(place, View{other_storage.data(), place.shape()}, run);
  }
};

using Names = std::vector<std::string>;
std::string joined(Names const& names) {
  std::string text;
  for (std::string const& name : names) text += (text.empty() ? "" : "; ") + name;
  return text;
}

struct Found {
  Names faults, wrong;
};
Found found(Faulty::Fault fault) {
  Faulty model;
  model.fault = fault;
  testing::GradientReport const report = testing::check_gradients(model, {1, 13});
  Found found{report.faults, {}};
  for (auto const& one : report.differences)
    if (!one.right()) found.wrong.push_back(one.parameter);
  return found;
}
}  // namespace

TEST_CASE("every gradient of GPT-2 is the slope of its loss") {
  expect_right(testing::check_gradients(Gpt2(tiny), {1, 13}), 28);
}

TEST_CASE(
    "every gradient of a user model is the slope of its loss with two borrowers and frozen parameters") {
  expect_right(testing::check_gradients(TiedModel{}, {1, 13}), 15);
  Found const nothing = found(Faulty::none);
  CHECK(nothing.faults.empty());
  CHECK(nothing.wrong.empty());
}

TEST_CASE("a gradient that nobody wrote is named") {
  Found const forgotten = found(Faulty::forgotten_gradient);
  CHECK(joined(forgotten.faults) ==
        "unit 'plain', backward_weight: did not write the gradient of plain.up.bias");
  CHECK(joined(forgotten.wrong) == "plain.up.bias");
  Found const index = found(Faulty::wrong_index);
  CHECK(joined(index.faults) ==
        "unit 'plain', backward_weight: did not write the gradient of plain.norm.weight");
  CHECK(joined(index.wrong) == "plain.norm.weight");
}

TEST_CASE("a gradient that is added to what was there is named") {
  CHECK(joined(found(Faulty::added_gradient).faults) ==
        "unit 'plain', backward_weight: the gradient of plain.down.bias was computed from unwritten memory; "
        "is it added to the old contents, or is fresh false without a borrower?");
}

TEST_CASE("a forgotten tied gradient and a wrong fresh are named") {
  Found const tied = found(Faulty::forgotten_tied_gradient);
  CHECK(joined(tied.faults) ==
        "unit 'memory', backward_weight: did not write tied gradient 0, the gradient of table for its owner");
  CHECK(joined(tied.wrong) == "table");
  Found const fresh = found(Faulty::fresh_despite_borrowers);
  CHECK(joined(fresh.faults) ==
        "unit 'embedding', backward_weight: the gradient of table does not include the gradients of its "
        "borrowers; is pass.tied_sums unread, or is fresh true?");
  CHECK(joined(fresh.wrong) == "table");
  Found const stale = found(Faulty::stale_scratch);
  REQUIRE(stale.faults.size() == 2);
  CHECK(stale.faults[0] ==
        "unit 'embedding', backward_weight: the gradient of table was computed from unwritten memory: "
        "backward sums");
  CHECK(joined(stale.wrong) == "table");
}

TEST_CASE("tensors between units that nobody wrote are named") {
  CHECK(joined(found(Faulty::forgotten_input_gradient).faults) ==
        "unit 'plain', backward_input: did not write its input_gradient");
  CHECK(joined(found(Faulty::half_an_output).faults) ==
        "unit 'memory', forward: did not write 150 of the 299 "
        "elements, the first being 149, of its output");
  Names const saved = found(Faulty::forgotten_saved).faults;
  REQUIRE_FALSE(saved.empty());
  CHECK(saved[0] ==
        "unit 'plain', backward_input: its input_gradient was computed from unwritten memory: "
        "saved norm.rstd");
  Names const evaluation = found(Faulty::wrong_in_evaluation).faults;
  REQUIRE(evaluation.size() == 1);
  CHECK(evaluation[0].starts_with("forward gives a loss of "));
}

TEST_CASE("a gradient that is one thousandth off in one element is named") {
  Found const off = found(Faulty::wrong_factor);
  CHECK(off.faults.empty());
  CHECK(joined(off.wrong) == "plain.norm.bias");
}

TEST_CASE("the loss is the mean over the targets that are not masked") {
  Run run;
  run.split = {1, 1};
  run.sequence = 7;
  auto const trainer = double_gpt2(still(run));
  Batch batch = make_batch(0, 0, run.split, 1, 7, run.vocabulary);
  double sum = 0.0;
  for (int const position : {0, 2, 5}) {
    Batch one = batch;
    for (int t = 0; t < 7; ++t)
      if (t != position) one.targets[static_cast<std::size_t>(t)] = -1;
    sum += trainer->evaluate(one);
  }
  for (std::size_t const masked : {1u, 3u, 4u, 6u}) batch.targets[masked] = -100;
  StepReport const report = trainer->step(batch);
  CHECK(report.loss == doctest::Approx(sum / 3).epsilon(1e-14));
  CHECK(report.valid_tokens == 3);
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
    batch.targets[static_cast<std::size_t>(13 + t)] = -1;  // the second sample has no targets
  Gradients const a = gradients_of(*many, batch, &of_many);
  batch.accumulation = 1;
  batch.batch = 4;
  Gradients const b = gradients_of(*one, batch, &of_one);
  CHECK(of_many.valid_tokens == of_one.valid_tokens);
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

TEST_CASE("a step without a single target is skipped, as if it had not been") {
  for (std::string const precision : {"fp64", "fp16"}) {
    Run run;
    Batch const first = make_batch(0, 0, run.split, 1, 13, run.vocabulary);
    Batch nothing = make_batch(1, 0, run.split, 1, 13, run.vocabulary);
    for (std::int32_t& target : nothing.targets) target = -1;
    auto const make = [&] {
      return make_trainer(any_model(tiny), recipe("zs0", precision), comm::Comm(), options_of(run));
    };
    auto const trainer = make(), without = make();
    for (int attempt = 0; attempt < 2; ++attempt) {
      StepReport const report = trainer->step(nothing);
      CHECK(report.loss == 0.0);
      CHECK(report.grad_norm == 0.0);
      CHECK(report.valid_tokens == 0);
      CHECK(report.skipped);
      CHECK(report.overflow == "");
      std::ostringstream line;
      line << report;
      CHECK(line.str().find("skipped: all targets are masked") != std::string::npos);
      trainer->step(first).get();
      without->step(first).get();
      CHECK(hash_weights(*trainer) == hash_weights(*without));
    }
  }
}
