// SPDX-License-Identifier: Apache-2.0
// Tests trainers through their public interface. Covers the errors and the reports of a trainer. Evaluation,
// setting weights and a refused batch must not affect training.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;
using Tied = Trainer<TiedModel>;

Run usual() {
  Run run;
  run.vocabulary = TiedModel{}.words;
  run.options.learning_rate = 1e-2;
  return run;
}

Batch batch_of(Run const& run, std::int64_t step = 0, int rank = 0) {
  return make_batch(step, rank, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every);
}

template <class F>
std::string refusal(ErrorKind kind, F const& call) {
  try {
    call();
  } catch (Error const& error) {
    CHECK(error.kind() == kind);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "no error";
}

bool says(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// A model with a mistake: forward of unit 1 uses activation number 99, which the unit does not declare.
struct Careless : TiedModel {
  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    if (unit == 1) (void)pass.saved(99);
    TiedModel::forward(unit, pass);
  }
};

}  // namespace

TEST_CASE("a model that asks for what its unit does not list is told the unit and what it may ask") {
  Run const run = usual();
  Trainer<Careless> trainer(Careless{}, comm::Comm(), options_of(run));
  std::string const text = refusal(ErrorKind::usage, [&] { trainer.step(batch_of(run)).get(); });
  CHECK(says(text, ", forward: a model uses saved value 99 in a pass that has "));
  CHECK(says(text, trainer.plan().unit(1).name + ", forward"));
}

TEST_CASE("a batch of another shape is refused with both numbers and harms nothing") {
  Run const run = usual();
  Tied trainer(TiedModel{}, comm::Comm(), options_of(run));
  Tied untouched(TiedModel{}, comm::Comm(), options_of(run));
  auto const refused = [&](auto const& change) {
    Batch batch = batch_of(run);
    change(batch);
    return refusal(ErrorKind::usage, [&] { trainer.step(batch); });
  };
  CHECK(says(refused([](Batch& batch) { batch.batch = 3; }),
             "the micro-batch is 3, but this trainer was planned for 1"));
  CHECK(says(refused([](Batch& batch) { batch.sequence = 12; }),
             "the sequence is 12, but this trainer was planned for 13"));
  CHECK(says(refused([](Batch& batch) { batch.accumulation = 2; }), "the accumulation is 2"));
  CHECK(says(refused([](Batch& batch) { batch.tokens.pop_back(); }), "the number of tokens is 12"));
  CHECK(says(refused([](Batch& batch) { batch.targets.push_back(0); }), "the number of targets is 14"));

  auto const impossible = [&](auto const& change) {
    Batch batch = batch_of(run);
    change(batch);
    return refusal(ErrorKind::data, [&] { trainer.step(batch); });
  };
  CHECK(says(impossible([](Batch& batch) { batch.tokens[7] = 29; }),
             "token 7 is 29, but the model's vocabulary is 29"));
  CHECK(says(impossible([](Batch& batch) { batch.tokens[2] = -1; }), "token 2 is -1"));
  CHECK(says(impossible([](Batch& batch) { batch.targets[12] = 1000; }), "target 12 is 1000"));
  CHECK(says(refusal(ErrorKind::data,
                     [&] {
                       Batch batch = batch_of(run);
                       batch.tokens[0] = 50;
                       trainer.evaluate(batch);
                     }),
             "token 0 is 50"));

  CHECK(trainer.step(batch_of(run)).get().loss == untouched.step(batch_of(run)).get().loss);
  CHECK(hash_weights(trainer) == hash_weights(untouched));
}

TEST_CASE("a loader that does not know its rank is refused where there are several") {
  Run const run = usual();
  auto const source =
      TokenSource::from_memory(std::vector<std::uint32_t>(1000, 3), {.vocabulary = run.vocabulary});
  auto const train = [&](int ranks, auto const& change) {
    tessera::run(ranks, [&](comm::Comm& comm) {
      Trainer<TiedModel, ZeroStage<1>> trainer(TiedModel{}, comm, options_of(run));
      LoaderOptions options{.batch = run.batch,
                            .sequence = run.sequence,
                            .accumulation = run.split.accumulation,
                            .rank = comm.rank(),
                            .world = comm.world()};
      change(options);
      Loader loader(source, options);
      trainer.step(loader.load(0)).get();
      trainer.evaluate(loader.load(1));
    });
  };
  train(2, [](LoaderOptions&) {});
  // Training on one rank may use the batches that a loader makes for one of four ranks.
  train(1, [](LoaderOptions& options) { options.world = 4; });
  std::string const text = refusal(ErrorKind::usage, [&] {
    train(2, [](LoaderOptions& options) { options.rank = 0, options.world = 1; });
  });
  CHECK(says(text, "batch: it was made for rank 0 in a world of 1, but this is rank "));
  CHECK(says(text, " in a world of 2; give the Loader .rank = comm.rank() and .world = comm.world()"));
  CHECK(says(refusal(ErrorKind::usage, [&] { train(2, [](LoaderOptions& options) { options.rank = 0; }); }),
             "made for rank 0 in a world of 2, but this is rank 1 in a world of 2"));
}

TEST_CASE("numbers that cannot be are refused by name") {
  auto const refused = [](auto const& change) {
    TrainerOptions options = options_of(usual());
    change(options);
    return refusal(ErrorKind::config, [&] { Tied trainer(TiedModel{}, comm::Comm(), options); });
  };
  double const nan = std::nan("");
  CHECK(says(refused([&](TrainerOptions& o) { o.learning_rate = nan; }), "learning_rate is nan"));
  CHECK(says(refused([&](TrainerOptions& o) { o.learning_rate = -1.0; }), "learning_rate"));
  CHECK(says(refused([&](TrainerOptions& o) { o.learning_rate = std::numeric_limits<double>::infinity(); }),
             "learning_rate"));
  CHECK(says(refused([&](TrainerOptions& o) { o.beta1 = 1.0; }), "beta1"));
  CHECK(says(refused([&](TrainerOptions& o) { o.beta2 = nan; }), "beta2"));
  CHECK(says(refused([&](TrainerOptions& o) { o.epsilon = 0.0; }), "epsilon"));
  CHECK(says(refused([&](TrainerOptions& o) { o.epsilon = 1e-50; }), "epsilon"));
  CHECK(says(refused([&](TrainerOptions& o) { o.weight_decay = nan; }), "weight_decay"));
  CHECK(says(refused([&](TrainerOptions& o) { o.clip = -0.5; }), "clip"));
  CHECK(says(refused([&](TrainerOptions& o) { o.schedule = static_cast<RateShape>(9); }),
             "schedule has the value 9, which is not a member of RateShape"));
  CHECK(says(refused([&](TrainerOptions& o) { o.sequence = 0; }), "sequence is 0"));
  CHECK(says(refused([&](TrainerOptions& o) { o.accumulation = 0; }), "accumulation is 0"));
  CHECK(says(refused([&](TrainerOptions& o) { o.channels = 3; }), "channels is 3"));
  CHECK(says(refused([&](TrainerOptions& o) { o.accumulation = max_accumulation + 1; }),
             "can have at most 16384 micro-batches"));
  CHECK(says(refused([&](TrainerOptions& o) { o.loss_scale.initial = 1000.0; }), "power of two"));
  CHECK(says(refused([&](TrainerOptions& o) { o.sequence = 20; }),
             "the sequence 20 is beyond the model's 19 positions"));
}

TEST_CASE("a trainer without a shape takes it from its first batch") {
  Run const run = usual();
  TrainerOptions options = options_of(run);
  Tied planned(TiedModel{}, comm::Comm(), options);
  options.batch = options.sequence = 0;
  Tied trainer(TiedModel{}, comm::Comm(), options);
  CHECK(says(refusal(ErrorKind::usage, [&] { trainer.evaluate(batch_of(run)); }), "no batch shape yet"));
  CHECK(says(refusal(ErrorKind::usage, [&] { (void)trainer.plan(); }), "no batch shape yet"));
  CHECK(trainer.step(batch_of(run)).get().loss == planned.step(batch_of(run)).get().loss);
  CHECK(trainer.plan().shape.sequence == 13);
}

TEST_CASE("evaluation changes nothing and takes any accumulation") {
  Run const run = usual();
  Tied quiet(TiedModel{}, comm::Comm(), options_of(run)),
      evaluated(TiedModel{}, comm::Comm(), options_of(run));
  for (int step = 0; step < 3; ++step) {
    Run longer = run;
    longer.split.accumulation = 3;
    double const once = evaluated.evaluate(batch_of(longer, 40));
    CHECK(evaluated.evaluate(batch_of(longer, 40)) == once);
    CHECK(evaluated.step(batch_of(run, step)).get().loss == quiet.step(batch_of(run, step)).get().loss);
  }
  CHECK(hash_weights(evaluated) == hash_weights(quiet));
  // The loss of a step must be the loss that evaluate() returns for the same batch before the step.
  double const before = evaluated.evaluate(batch_of(run, 3));
  CHECK(evaluated.step(batch_of(run, 3)).get().loss == before);
}

TEST_CASE("filling starts training anew") {
  Run const run = usual();
  Tied first(TiedModel{}, comm::Comm(), options_of(run)), again(TiedModel{}, comm::Comm(), options_of(run));
  auto const initial = [&](int unit, int parameter, std::int64_t offset, std::span<float> out) {
    initial_values(run.options.seed, unit, parameter,
                   first.plan().unit(unit).parameters[static_cast<std::size_t>(parameter)].init, offset, out);
  };
  for (int step = 0; step < 2; ++step) again.step(batch_of(run, step + 10)).get();
  again.fill(initial);
  for (int step = 0; step < 2; ++step) {
    StepReport const a = first.step(batch_of(run, step)), b = again.step(batch_of(run, step));
    CHECK(a.loss == b.loss);
    CHECK(a.step == b.step);
    CHECK(a.grad_norm == b.grad_norm);
  }
  CHECK(hash_weights(first) == hash_weights(again));
}

TEST_CASE("a report holds what the step did") {
  Run run = usual();
  run.split = {2, 3};
  run.options.schedule = RateShape::linear;
  run.options.warmup_steps = 2;
  run.options.total_steps = 10;
  tessera::run(2, [&](comm::Comm comm) {
    Trainer<TiedModel, ZeroStage<2>> trainer(TiedModel{}, comm, options_of(run));
    for (int step = 0; step < 3; ++step) {
      Batch const batch = batch_of(run, step, comm.rank());
      StepReport const report = trainer.step(batch);
      CHECK(report.step == step + 1);
      CHECK(report.tokens == 2 * 3 * 13);
      CHECK(report.valid_tokens < report.tokens);
      CHECK(report.valid_tokens > 0);
      CHECK(report.learning_rate == doctest::Approx(step == 0 ? 5e-3 : 1e-2));
      CHECK(report.scale == 1.0);
      CHECK_FALSE(report.skipped);
      CHECK(report.overflow == "");
      CHECK(report.grad_norm > 0.0);
      CHECK(report.loss > 2.0);
      CHECK(report.loss < 20.0);
      CHECK(report.comm_bytes > 0);
      CHECK(report.comm_seconds >= report.comm_waiting);
      CHECK(report.seconds > 0.0);
      CHECK(report.tokens_per_second() > 0.0);
      std::ostringstream line;
      line << report;
      CHECK(says(line.str(), "step " + std::to_string(step + 1) + " | loss "));
    }
  });
  StepReport skipped;
  skipped.skipped = true;
  skipped.overflow = "wte.weight";
  skipped.scale = 1024;
  skipped.valid_tokens = 1;
  std::ostringstream line;
  line << skipped;
  CHECK(says(line.str(), "| scale 1024 | skipped: overflow in wte.weight"));
}

TEST_CASE("intervals lie between the ends of steps") {
  Run const run = usual();
  Tied trainer(TiedModel{}, comm::Comm(), options_of(run));
  StepReport const first = trainer.step(batch_of(run, 0));
  CHECK(first.interval == first.seconds);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Ticket const second = trainer.step(batch_of(run, 1)), third = trainer.step(batch_of(run, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a report that is read later must be the same
  CHECK(second.get().interval >= second.get().seconds + 0.05);
  CHECK(third.get().interval >= third.get().seconds);
  CHECK(third.get().interval < third.get().seconds + 0.05);
}

TEST_CASE("an observer sees every entry in order and in every micro-batch") {
  Run run = usual();
  run.split.accumulation = 4;
  Tied trainer(TiedModel{}, comm::Comm(), options_of(run));
  std::vector<Entry> seen;
  trainer.observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
    seen.push_back(entry);
    CHECK(buffers.size() == plan.train.buffers.size());
  });
  trainer.step(batch_of(run)).get();
  auto const instances = instances_of(trainer.plan().train.schedule);
  CHECK(instances.size() > trainer.plan().train.schedule.entries.size());
  REQUIRE(seen.size() == instances.size());
  std::set<int> micro_batches;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].verb == instances[i].entry.verb);
    CHECK(seen[i].unit == instances[i].entry.unit);
    CHECK(seen[i].micro_batch == instances[i].micro_batch);
    CHECK(seen[i].reads() == instances[i].entry.reads());
    CHECK(seen[i].writes() == instances[i].entry.writes());
    micro_batches.insert(seen[i].micro_batch);
  }
  CHECK(micro_batches == std::set{-1, 0, 1, 2, 3});
  trainer.observe({});
  trainer.step(batch_of(run)).get();
  CHECK(seen.size() == instances.size());
}

TEST_CASE("what does not fit is refused before anything is taken") {
  TrainerOptions options = options_of(usual());
  options.memory_limit = 100000;
  std::string const text =
      refusal(ErrorKind::out_of_memory, [&] { Tied trainer(TiedModel{}, comm::Comm(), options); });
  CHECK(says(text, "out of memory: 1 rank plans "));
  CHECK(says(text, "100000 B are available"));
  // If several ranks plan too much memory, each rank throws this error. tessera::run must throw this error
  // too, not the error that another rank failed.
  std::string const of_many = refusal(ErrorKind::out_of_memory, [&] {
    tessera::run(3, [&](comm::Comm comm) { Tied trainer(TiedModel{}, comm, options); });
  });
  CHECK(says(of_many, "3 ranks plan "));
}

TEST_CASE("two trainers of one process do not meet") {
  Run const run = usual();
  Tied a(TiedModel{}, comm::Comm(), options_of(run)), alone(TiedModel{}, comm::Comm(), options_of(run));
  TrainerOptions other = options_of(run);
  other.seed = 8;
  Tied b(TiedModel{}, comm::Comm(), other);
  for (int step = 0; step < 2; ++step) {
    (void)a.step(batch_of(run, step));
    (void)b.step(batch_of(run, step));
    (void)alone.step(batch_of(run, step));
  }
  CHECK(hash_weights(a) == hash_weights(alone));
  CHECK(hash_weights(a) != hash_weights(b));
}

TEST_CASE("threads of a rank are the cores over the ranks and at least one") {
  CHECK(threads_of_rank(3, 100) == 3);
  CHECK(threads_of_rank(0, 1 << 20) == 1);
  CHECK(threads_of_rank(0, 1) >= threads_of_rank(0, 2));
}
