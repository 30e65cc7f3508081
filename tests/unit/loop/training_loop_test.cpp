// SPDX-License-Identifier: Apache-2.0
// Tests TrainingLoop with simulated trainers, whose steps are still in flight when step() returns, as on a
// GPU. All ranks must stop after the same step. Reports must come in the order of the steps. Tasks and
// exclusive steps must run only while no other step is in flight.
#include "tessera/loop/training_loop.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/run.hpp"

namespace ts = tessera;

namespace {

constexpr int max_steps = 4096;

/// For each step: the number of simulated ranks that have begun the step, and of ranks that voted to stop.
struct Exchange {
  std::array<std::atomic<int>, max_steps> arrived{}, votes{};
};

/// Simulates a trainer without a model. wait() for a step returns when all ranks have begun this step.
class LateTrainer final : public ts::AnyTrainer {
 public:
  LateTrainer(Exchange& exchange, int world, int in_flight) : exchange_(exchange), world_(world) {
    plan_.shape.max_steps_in_flight = in_flight;
  }

  ts::Ticket step(ts::Batch const& batch, bool stop) override {
    auto const at = static_cast<std::size_t>(begun_++);
    seen.push_back(batch.step);
    exchange_.votes[at] += stop;
    ++exchange_.arrived[at];
    ++in_flight;
    return ts::Ticket(std::make_shared<Pending>(*this, at));
  }
  double evaluate(ts::Batch const&) override { return 0.0; }
  void fill(ts::ParameterSource const&) override {}
  void collect_pieces(ts::ParameterSink const&) override {}
  void synchronize() override {}
  void observe(ts::StepObserver) override {}
  void time_entries(ts::EntryTimer*) override {}
  ts::StateAccess& state() override { throw ts::Error(ts::ErrorKind::usage, "no state"); }
  ts::StepPlan const& plan() const override { return plan_; }
  std::int64_t peak_bytes(ts::Tier) const override { return 0; }
  ts::FileUse file_use() const override { return {}; }
  ts::AttentionKind attention_ran() const override { return ts::AttentionKind::automatic; }
  void record(ts::Recorder&, ts::StepObserver const&) override {}

  int in_flight = 0;
  std::vector<std::int64_t> seen;  // the number of the step in each batch that step() received

 private:
  class Pending final : public ts::PendingStep {
   public:
    Pending(LateTrainer& trainer, std::size_t at) : trainer_(trainer), at_(at) {}
    ts::StepReport const& wait() override {
      while (trainer_.exchange_.arrived[at_] < trainer_.world_) std::this_thread::yield();
      --trainer_.in_flight;
      report_.step = static_cast<std::int64_t>(at_) + 1;
      report_.stop = trainer_.exchange_.votes[at_] > 0;
      return report_;
    }

   private:
    LateTrainer& trainer_;
    std::size_t at_;
    ts::StepReport report_;
  };

  Exchange& exchange_;
  int world_;
  std::int64_t begun_ = 0;
  ts::StepPlan plan_;
};

/// Makes batches that have only a step number. From step `end` on, throws a data error, as a loader does if
/// its data cannot be read.
struct Batches {
  std::int64_t end = max_steps;
  ts::Batch batch{};

  ts::Batch const& operator()(std::int64_t step) {
    if (step >= end) throw ts::Error(ts::ErrorKind::data, "batch " + std::to_string(step) + " is gone");
    batch.step = step;
    return batch;
  }
};

}  // namespace

TEST_CASE("all ranks end after the same step, soon after one of them asked") {
  constexpr int late = 2;
  for (int run = 0; run < 200; ++run) {
    int const world = 1 + run % 4;
    std::atomic<bool> stop{false};
    // The first step for which the `stop` function below returned true on rank 0.
    std::atomic<std::int64_t> requested{max_steps};
    std::jthread const elsewhere([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 + 13 * run));
      stop = true;
    });
    auto const exchange = std::make_unique<Exchange>();
    std::vector<std::int64_t> done(static_cast<std::size_t>(world)), reports(done);
    ts::run(world, [&](ts::comm::Comm& comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      LateTrainer trainer(*exchange, world, late);
      Batches batches;
      ts::TrainingLoop loop(trainer, comm,
                            {.batch = [&](std::int64_t step) { return batches(step); },
                             .stop =
                                 [&](std::int64_t step) {
                                   if (!stop && step < 3000) return false;
                                   for (std::int64_t first = requested; step < first;)
                                     if (requested.compare_exchange_weak(first, step)) break;
                                   return true;
                                 },
                             .report =
                                 [&](ts::StepReport const& report) {
                                   CHECK(report.step == ++reports[rank]);
                                   CHECK(trainer.in_flight <= late);
                                 }});
      done[rank] = loop.run();
      CHECK(loop.stopped());
      CHECK(trainer.in_flight == 0);
      CHECK(static_cast<std::int64_t>(trainer.seen.size()) == done[rank]);
      for (std::size_t step = 0; step < trainer.seen.size(); ++step)
        CHECK(trainer.seen[step] == static_cast<std::int64_t>(step));
    });
    for (std::size_t rank = 0; rank < done.size(); ++rank) {
      CHECK(done[rank] == done.front());
      CHECK(reports[rank] == done.front());
    }
    CHECK(done.front() >= requested);
    CHECK(done.front() <= requested + late + 1);
  }
}

TEST_CASE("no rank takes a step for which one of them has no data") {
  for (int const late : {0, 1, 2})
    for (int const world : {1, 3})
      for (std::int64_t const end : {0, 1, 2, 3, 4, 9, 12}) {
        INFO("late ", late, ", world ", world, ", end ", end);
        auto const exchange = std::make_unique<Exchange>();
        std::vector<std::int64_t> done(static_cast<std::size_t>(world));
        ts::run(world, [&](ts::comm::Comm& comm) {
          LateTrainer trainer(*exchange, world, late);
          Batches batches;
          bool const last = comm.rank() + 1 == world;
          if (last) batches.end = end;
          ts::TrainingLoop loop(trainer, comm,
                                {.batch = [&](std::int64_t step) { return batches(step); },
                                 .tasks = {ts::every(end == 9 ? 2 : 5, [](std::int64_t) {})}});
          done[static_cast<std::size_t>(comm.rank())] = loop.run();
          CHECK(loop.stopped());
          CHECK(loop.data_error().has_value() == last);
        });
        for (std::int64_t const each : done) CHECK(each == done.front());
        CHECK(done.front() == end);
      }
}

TEST_CASE("data that ends after the last step stops no run") {
  auto const exchange = std::make_unique<Exchange>();
  ts::run(2, [&](ts::comm::Comm& comm) {
    LateTrainer trainer(*exchange, 2, 2);
    Batches batches{.end = 5};
    ts::TrainingLoop loop(trainer, comm, {.first_step = 3, .steps = 5, .batch = [&](std::int64_t step) {
                                            return batches(step);
                                          }});
    CHECK(loop.run() == 5);
    CHECK(!loop.stopped());
    CHECK(!loop.data_error());
    CHECK(trainer.seen == std::vector<std::int64_t>{3, 4});
  });
}

TEST_CASE("tasks and lone steps run while no step is in flight") {
  auto const exchange = std::make_unique<Exchange>();
  std::string events;
  ts::run(2, [&](ts::comm::Comm& comm) {
    LateTrainer trainer(*exchange, 2, 2);
    Batches batches;
    auto const note = [&](std::string const& text) {
      CHECK(trainer.in_flight == 0);
      if (comm.is_root()) events += text + " ";
    };
    ts::TrainingLoop(trainer, comm,
                     {.steps = 8,
                      .batch = [&](std::int64_t step) { return batches(step); },
                      .tasks = {ts::every(3, [&](std::int64_t done) { note("save" + std::to_string(done)); }),
                                {.due = [](std::int64_t done) { return done == 6; }}},
                      .isolated = {.due = [](std::int64_t step) { return step == 4; },
                                   .begin = [&](std::int64_t step) { note("begin" + std::to_string(step)); },
                                   .end =
                                       [&](std::int64_t step, ts::StepReport const& report) {
                                         CHECK(report.step == step + 1);
                                         note("end" + std::to_string(step));
                                       }}})
        .run();
  });
  CHECK(events == "save3 begin4 end4 save6 ");
}

TEST_CASE("lone steps need no begin and no end") {
  Exchange exchange;
  LateTrainer trainer(exchange, 1, 2);
  Batches batches;
  ts::TrainingLoop loop(trainer, ts::comm::Comm(),
                        {.steps = 2,
                         .batch = [&](std::int64_t step) { return batches(step); },
                         .isolated = {.due = [](std::int64_t) { return true; }}});
  CHECK(loop.run() == 2);
}

TEST_CASE("a task without an interval is refused") {
  for (std::int64_t const interval : {0, -1})
    CHECK_THROWS_WITH_AS(ts::every(interval, [](std::int64_t) {}), doctest::Contains("give 1 or more"),
                         ts::Error);
}

TEST_CASE("a loop without batches is refused") {
  Exchange exchange;
  LateTrainer trainer(exchange, 1, 0);
  CHECK_THROWS_WITH_AS(ts::TrainingLoop(trainer, ts::comm::Comm(), {}),
                       doctest::Contains("options.batch is not set"), ts::Error);
}
