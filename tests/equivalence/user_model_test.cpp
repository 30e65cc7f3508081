// SPDX-License-Identifier: Apache-2.0
// Tests that typed trainers train a user's model, which is not part of the library, with every sharding. The
// user's model is TiedModel (support/tied_model.hpp). It has frozen parameters and a parameter that two other
// units (layers) borrow.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/init.hpp"

#include "support/tied_runs.hpp"

namespace {

using namespace support;

Run usual_tied_run() {
  Run run = tied_run({1, 4});
  run.options.weight_decay = 0.2;
  run.options.loss_scale.initial = 0x1p8;
  return run;
}

/// Returns the range of the token table in the flat buffer of the unit that owns the table. `head` and
/// another unit borrow it.
Range table_in(StepPlan const& plan) {
  Borrow const& what = plan.unit(TiedModel::head).borrows.front();
  return plan.layout(what.unit).parameters[static_cast<std::size_t>(what.parameter)];
}

template <class Format>
void same_under_every_sharding() {
  Run const alone = usual_tied_run();
  using P = Precision<Format>;
  Outcome const want = train_tied<P>(alone);
  CHECK(want.losses.back() < want.losses.front());
  CHECK_FALSE(want.skipped.back());
  Run run = alone;
  run.split = {2, 2};
  CHECK(train_tied<P, RootOptimizer>(run) == want);
  CHECK(train_tied<P, ZeroStage<0>>(run) == want);
  CHECK(train_tied<P, ZeroStage<1>>(run) == want);
  CHECK(train_tied<P, ZeroStage<2>>(run) == want);
  CHECK(train_tied<P, ZeroStage<3>>(run) == want);
  run.split = {4, 1};
  CHECK(train_tied<P, RootOptimizer, Offload<Cpu>>(run) == want);
  CHECK(train_tied<P, ZeroStage<0>, Offload<Cpu>>(run) == want);
  CHECK(train_tied<P, ZeroStage<2>, Offload<Cpu>>(run) == want);
  CHECK(train_tied<P, ZeroStage<3>, Offload<Cpu>>(run) == want);
  run.options.recompute_every = 3;
  CHECK(train_tied<P, ZeroStage<3>, Recompute<Every>>(run) == want);
  CHECK(train_tied<P, ZeroStage<1>, Recompute<Block>>(run) == want);
  CHECK(train_tied<P, Recompute<Gelu>>(run) == want);
}

}  // namespace

TEST_CASE("a user model trains to the same bits under every sharding in fp32") {
  same_under_every_sharding<float>();
}
TEST_CASE("a user model trains to the same bits under every sharding in fp16") {
  same_under_every_sharding<half>();
}

TEST_CASE("all borrowers reach the owner's gradient in 16 bits as in fp32") {
  // Two units borrow the token table. In fp32, they add their gradients of the table to the micro-batch
  // gradient of the table's owner. In 16-bit formats, they write these gradients to separate buffers. Except
  // for rounding, the gradient of the table must be equal in both cases.
  auto const table_gradient = []<class Format>(Format) {
    Run run = usual_tied_run();
    run.split = {1, 2};
    Trainer<TiedModel, Precision<Format>> trainer(TiedModel{}, comm::Comm(), options_of(run));
    std::vector<float> gradient;
    trainer.observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
      if (entry.verb != Verb::norm) return;
      auto const* const from = reinterpret_cast<float const*>(
          buffers[static_cast<std::size_t>(plan.train.find(BufferKind::gradient, TiedModel::embedding))]);
      Range const table = table_in(plan);
      gradient.assign(from + table.begin, from + table.end);
    });
    StepReport const report =
        trainer.step(make_batch(0, 0, run.split, run.batch, run.sequence, run.vocabulary));
    for (float& value : gradient) value /= static_cast<float>(report.scale);
    return gradient;
  };
  std::vector<float> const want = table_gradient(0.0f), got = table_gradient(half(0.0f));
  REQUIRE(want.size() == static_cast<std::size_t>(29 * 23));
  REQUIRE(got.size() == want.size());
  double difference = 0.0, whole = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(want[i] - got[i]), 2);
    whole += std::pow(static_cast<double>(want[i]), 2);
  }
  CHECK(std::sqrt(difference / whole) < 5e-3);
}

TEST_CASE("the gradient of a parameter with two borrowers is the slope of the loss") {
  Run run = usual_tied_run();
  run.split = {1, 2};
  Trainer<TiedModel, Precision<double>> trainer(TiedModel{}, comm::Comm(), options_of(run));
  Borrow const what = trainer.plan().unit(TiedModel::head).borrows.front();
  Range const table = table_in(trainer.plan());
  CHECK(table.begin > 0);
  Batch const batch = make_batch(0, 0, run.split, run.batch, run.sequence, run.vocabulary);
  auto const loss_with = [&](std::int64_t changed, float by) {
    trainer.fill([&](int unit, int parameter, std::int64_t offset, std::span<float> out) {
      Init const init = trainer.plan().unit(unit).parameters[static_cast<std::size_t>(parameter)].init;
      initial_values(run.options.seed, unit, parameter, init, offset, out);
      std::int64_t const at = changed - offset, count = static_cast<std::int64_t>(out.size());
      if (unit == what.unit && parameter == what.parameter && at >= 0 && at < count)
        out[static_cast<std::size_t>(at)] += by;
    });
    return trainer.evaluate(batch);
  };
  std::vector<double> slopes, gradient;
  for (std::int64_t element = 5; element < table.size(); element += 97)
    slopes.push_back((loss_with(element, 0x1p-10f) - loss_with(element, -0x1p-10f)) / 0x1p-9);
  (void)loss_with(0, 0.0f);
  trainer.observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
    if (entry.verb != Verb::norm) return;
    int const buffer = plan.train.find(BufferKind::gradient, TiedModel::embedding);
    auto const* const from = reinterpret_cast<double const*>(buffers[static_cast<std::size_t>(buffer)]);
    for (std::int64_t element = 5; element < table.size(); element += 97)
      gradient.push_back(from[table.begin + element]);
  });
  trainer.step(batch).get();
  REQUIRE(gradient.size() == slopes.size());
  for (std::size_t i = 0; i < slopes.size(); ++i)
    CHECK(gradient[i] == doctest::Approx(slopes[i]).epsilon(1e-3));
}

TEST_CASE_TEMPLATE("frozen parameters stay bit-equal and take no decay", Sharding, ZeroStage<0>,
                   ZeroStage<3>) {
  tessera::run(2, [](comm::Comm comm) {
    Run run = usual_tied_run();
    run.split = {2, 1};
    TrainerOptions options = options_of(run);
    options.learning_rate = 0.5;
    Trainer<TiedModel, Precision<half>, Sharding, Offload<Cpu>> trainer(TiedModel{}, comm, options);
    using Values = std::vector<std::pair<std::string, std::vector<float>>>;
    auto const values = [&] {
      Values all;
      trainer.collect([&](ParameterSpec const& parameter, std::span<float const> of) {
        all.emplace_back((parameter.trainable ? "" : "frozen:") + parameter.name,
                         std::vector<float>(of.begin(), of.end()));
      });
      return all;
    };
    Values const before = values();
    for (int step = 0; step < 2; ++step)
      trainer.step(make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary)).get();
    Values const after = values();
    if (!comm.is_root()) return;
    REQUIRE(before.size() == 17);
    int frozen = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      bool const is_frozen = before[i].first.starts_with("frozen:");
      INFO(before[i].first);
      CHECK((before[i].second == after[i].second) == is_frozen);
      frozen += is_frozen;
    }
    CHECK(frozen == 2);
  });
}

TEST_CASE("a rank that throws mid-step is named and its error is what run throws") {
  std::vector<std::string> heard(3);
  std::vector<int> lost(3, -1);
  auto const go = [&] {
    tessera::run(3, [&](comm::Comm comm) {
      Run run = usual_tied_run();
      run.split = {3, 1};
      TiedModel model;
      auto const batch = make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary);
      if (comm.rank() == 1) model.throw_in_unit = TiedModel::frozen;
      Trainer<TiedModel, ZeroStage<3>> trainer(model, comm, options_of(run));
      try {
        trainer.step(batch).get();
      } catch (PeerLost const& error) {
        heard[static_cast<std::size_t>(comm.rank())] = error.what();
        lost[static_cast<std::size_t>(comm.rank())] = error.rank();
        // Every later call of step() throws this error again.
        CHECK_THROWS_AS(trainer.step(batch).get(), PeerLost);
        CHECK_THROWS_AS(trainer.evaluate(batch), PeerLost);
        throw;
      } catch (std::runtime_error const& error) {
        heard[static_cast<std::size_t>(comm.rank())] = error.what();
        CHECK_THROWS_WITH(trainer.step(batch).get(), "the model of this rank throws in unit 3");
        throw;
      }
    });
  };
  std::string thrown;
  try {
    go();
  } catch (Error const& error) {
    thrown = error.what();
    CHECK(error.rank() == 1);
    CHECK(error.kind() == ErrorKind::failed);
  }
  CHECK(thrown == "rank 1: the model of this rank throws in unit 3");
  CHECK(heard[1] == "the model of this rank throws in unit 3");
  for (std::size_t rank : {0u, 2u}) {
    CHECK(lost[rank] == 1);
    CHECK(heard[rank].find("rank 1 is lost: ") == 0);
    CHECK(heard[rank].find("the model of this rank throws in unit 3") != std::string::npos);
  }
}

TEST_CASE("a failed step whose ticket nobody reads still frees the other ranks") {
  std::atomic<bool> lost = false;
  auto const go = [&] {
    tessera::run(2, [&](comm::Comm comm) {
      Run run = usual_tied_run();
      run.split = {2, 1};
      TiedModel model;
      if (comm.rank() == 1) model.throw_in_unit = TiedModel::memory;
      Trainer<TiedModel> trainer(model, comm, options_of(run));
      Ticket const ticket =
          trainer.step(make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary));
      if (comm.rank() == 0) CHECK_THROWS_AS(ticket.get(), PeerLost);
      if (comm.rank() == 0) lost = true;
      for (int waited = 0; waited < 5000 && !lost; ++waited)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(lost);  // rank 0 gets the error long before the timeout of its collective
      ticket.get();
    });
  };
  CHECK_THROWS_WITH(go(), "rank 1: the model of this rank throws in unit 1");
}

TEST_CASE("ranks that were given different numbers refuse to start") {
  auto const go = [](auto const& change) {
    tessera::run(2, [&](comm::Comm comm) {
      Run run = usual_tied_run();
      run.split = {2, 1};
      TiedModel model;
      TrainerOptions options = options_of(run);
      if (comm.rank() == 1) change(model, options);
      Trainer<TiedModel> trainer(model, comm, options);
    });
  };
  CHECK_NOTHROW(go([](TiedModel&, TrainerOptions& options) { options.threads = 2; }));
  CHECK_THROWS_AS(go([](TiedModel&, TrainerOptions& options) { options.seed = 3; }), Error);
  CHECK_THROWS_AS(go([](TiedModel&, TrainerOptions& options) { options.batch = 3; }), Error);
  CHECK_THROWS_AS(go([](TiedModel&, TrainerOptions& options) { options.learning_rate = 1e-3; }), Error);
  CHECK_THROWS_AS(go([](TiedModel& model, TrainerOptions&) { model = TiedModel(38); }), Error);
  CHECK_THROWS_AS(go([](TiedModel&, TrainerOptions& options) { options.accumulation = 2; }), Error);
}
