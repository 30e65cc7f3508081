// SPDX-License-Identifier: Apache-2.0
// Tests the class MachineTimes, which stores how long operations need on a machine and predicts the times of
// other sizes. The tests use an artificial machine with known times. Also tests files of machine times that
// are invalid.
#include "prediction/machine_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"

namespace cli = programs::cli;

namespace {

using namespace support;

cli::Cost cost_of(double channels, double tokens, double sequence) {
  return {"linear attention",
          false,
          24 * tokens * channels * channels,
          4 * tokens * sequence * channels,
          4 * (20 * tokens * channels + 12 * channels * channels),
          7};
}

/// Returns the exact time in seconds that an artificial machine needs for work with the cost `cost`. The
/// machine has a fixed rate for FLOPs, for FLOPs of attention, for bytes and for operations.
double true_seconds(cli::Cost const& cost) {
  return cost.flops / 2e11 + cost.attention_flops / 5e10 + cost.bytes / 2e10 + cost.operations * 4e-6;
}

cli::MachineTimes measured(std::string const& device = "cpu") {
  cli::MachineTimes times(device, "a machine");
  for (double const channels : {64.0, 128.0, 384.0})
    for (double const tokens : {256.0, 1024.0})
      for (double const sequence : {64.0, 256.0}) {
        cli::Cost const cost = cost_of(channels, tokens, sequence);
        times.add({"fp32", 1, cost, true_seconds(cost)});
        times.add({"fp32", 4, cost, 5 * true_seconds(cost)});
      }
  for (double const bytes : {1e4, 1e6, 1e8})
    times.add({"fp32", 4, {"all_gather", true, 0, 0, bytes, 1}, 2e-5 + bytes / 1e10});
  return times;
}

struct Recorded {
  std::optional<StepPlan> plan;
  std::vector<cli::Cost> costs;
};

Recorded recorded(RecipeTable const& table, int ranks) {
  Run run;
  run.split = {ranks, 2};
  Recorded step;
  step.costs = cli::costs_of([&](Recorder& recorder, StepObserver const& observer) {
    step.plan = record_step(any_model(tiny), table, options_of(run), 0, ranks, recorder, observer);
  });
  return step;
}

/// Returns the times of an artificial machine. On it, every entry (operation) of the schedule of `step` needs
/// one nanosecond per byte that it moves.
cli::MachineTimes one_time_each(std::string const& device, Recorded const& step, int ranks) {
  cli::MachineTimes times(device, "a machine");
  for (cli::Cost const& cost : step.costs)
    if (cost.operations > 0)
      times.add({std::string(step.plan->recipe.names.precision), ranks, cost, 1e-9 * cost.bytes});
  return times;
}

}  // namespace

TEST_CASE("times of other sizes follow from the rates that measured ones fit") {
  cli::MachineTimes const times = measured();
  for (double const channels : {48.0, 100.0, 256.0, 768.0})
    for (double const tokens : {128.0, 640.0, 4096.0}) {
      cli::Cost const cost = cost_of(channels, tokens, 128);
      CAPTURE(channels);
      CAPTURE(tokens);
      auto const alone = times.seconds(cost, "fp32", 1);
      REQUIRE(alone);
      CHECK_FALSE(alone->guessed);
      CHECK(alone->seconds == doctest::Approx(true_seconds(cost)).epsilon(0.1));
      CHECK(times.seconds(cost, "fp32", 4)->seconds == doctest::Approx(5 * true_seconds(cost)).epsilon(0.1));
      // The times of the machine were measured with 1 and with 4 ranks. The predicted time for 2 ranks is the
      // geometric mean. With 8 ranks on a CPU, twice as many ranks share the cores as with 4 ranks, so the
      // predicted time is twice the time of 4 ranks.
      CHECK(times.seconds(cost, "fp32", 2)->seconds ==
            doctest::Approx(std::sqrt(5.0) * true_seconds(cost)).epsilon(0.1));
      CHECK(times.seconds(cost, "fp32", 8)->seconds == doctest::Approx(10 * true_seconds(cost)).epsilon(0.1));
    }
  CHECK(times.seconds(cost_of(100, 640, 128), "fp32", 8)->guessed);
  CHECK(measured("cuda").seconds(cost_of(100, 640, 128), "fp32", 8)->seconds ==
        doctest::Approx(5 * true_seconds(cost_of(100, 640, 128))).epsilon(0.1));
}

TEST_CASE("fewer ranks than were measured have the cores to themselves") {
  cli::MachineTimes times("cpu", "a machine");
  cli::Cost const cost = cost_of(100, 640, 128);
  times.add({"fp32", 4, cost, 1.0});
  CHECK(times.seconds(cost, "fp32", 1)->seconds == doctest::Approx(0.25));
  CHECK(times.seconds(cost, "fp32", 1)->guessed);
  CHECK_FALSE(times.seconds(cost, "fp32", 4)->guessed);
}

TEST_CASE("a move of several flat groups costs one call with the bytes of all") {
  RecipeTable const table = parse_recipe({.device = "cuda", .sharding = "zero2", .precision = "fp32"});
  auto const sums = [&](std::int64_t bucket_bytes) {
    Run run;
    run.split = {2, 1};
    run.options.bucket_bytes = bucket_bytes;
    std::optional<StepPlan> plan;
    std::vector<cli::Cost> const costs = cli::costs_of([&](Recorder& recorder, StepObserver const& observer) {
      plan = record_step(any_model(tiny), table, options_of(run), 0, 2, recorder, observer);
    });
    cli::Cost all;
    for (std::size_t at = 0; at < costs.size(); ++at)
      if (Entry const& entry = plan->train.schedule.entries[at];
          entry.verb == Verb::reduce && entry.move > Move::copy) {
        all.bytes += costs[at].bytes;
        all.operations += costs[at].operations;
      }
    return all;
  };
  cli::Cost const apart = sums(0), together = sums(std::int64_t{1} << 30);
  CHECK(apart.operations > 2);
  CHECK(together.operations == 1);
  CHECK(together.bytes == apart.bytes);
  CHECK(apart.bytes > 0);
}

TEST_CASE("what was measured itself is given back") {
  cli::MachineTimes times = measured();
  cli::Cost const odd = cost_of(200, 300, 100);
  // This measured time differs from the time that the other measurements predict.
  times.add({"fp32", 1, odd, 3 * true_seconds(odd)});
  CHECK(times.seconds(odd, "fp32", 1)->seconds == doctest::Approx(3 * true_seconds(odd)).epsilon(0.1));
}

TEST_CASE("kinds that were not measured are guessed from others, or unknown") {
  cli::MachineTimes const times = measured();
  cli::Cost other = cost_of(128, 512, 128);
  other.what = "linear something";
  auto const guess = times.seconds(other, "fp32", 1);
  REQUIRE(guess);
  CHECK(guess->guessed);
  CHECK(guess->seconds == doctest::Approx(true_seconds(other)).epsilon(0.2));
  CHECK_FALSE(times.seconds(other, "bf16", 1));  // nothing was measured in bf16
  CHECK(times.seconds({"all_to_all", true, 0, 0, 1e6, 1}, "bf16", 4)->guessed);
  CHECK_FALSE(times.seconds({"copy disk", true, 0, 0, 1e6, 1}, "fp32", 4));
  CHECK(times.seconds({}, "bf16", 1)->seconds == 0.0);  // a cost of zero needs no time
}

TEST_CASE("what completes an entry counts with it, and no operation is lost") {
  Recorded const step =
      recorded(parse_recipe({.device = "cpu", .sharding = "zero2", .precision = "bf16"}), 2);
  Schedule const& schedule = step.plan->train.schedule;
  std::vector<std::size_t> const leaders = cli::completed_by(schedule);
  std::vector<cli::Cost> const together = cli::joined(schedule, step.costs);
  double apart = 0, sum = 0;
  int followers = 0;
  for (std::size_t at = 0; at < together.size(); ++at) {
    apart += step.costs[at].bytes;
    sum += together[at].bytes;
    if (leaders[at] == at) continue;
    ++followers;
    CHECK(together[at].operations == 0);
    CHECK(computes(schedule.entries[leaders[at]].verb));
    CHECK(schedule.entries[leaders[at]].unit == schedule.entries[at].unit);
    CHECK(together[leaders[at]].what.ends_with(step.costs[at].what));
  }
  CHECK(followers > 3);
  CHECK(sum == doctest::Approx(apart));
}

TEST_CASE("a step's time is that of its entries: one after the other on the CPU, lane beside lane on a GPU") {
  for (std::string_view const device : {"cpu", "cuda"})
    for (int const ranks : {1, 2}) {
      RecipeTable const table =
          parse_recipe({.device = device, .sharding = "zero3", .precision = "fp32", .offload = "cpu_full"});
      Recorded step = recorded(table, ranks);
      step.costs =
          cli::joined(step.plan->train.schedule, step.costs);  // files of times store joined entries as one
      cli::MachineTimes const times = one_time_each(std::string(device), step, ranks);
      double lanes[lane_count] = {};
      for (Instance const& instance : instances_of(step.plan->train.schedule))
        lanes[static_cast<std::size_t>(instance.entry.lane)] +=
            1e-9 * step.costs[static_cast<std::size_t>(instance.index)].bytes;
      double const sum = std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
      auto const predicted = times.step(*step.plan, step.costs);
      REQUIRE(predicted);
      CAPTURE(device);
      CAPTURE(ranks);
      CHECK(predicted->guessed == 0.0);
      if (device == "cpu") {
        CHECK(predicted->seconds == doctest::Approx(sum).epsilon(1e-3));
      } else {
        CHECK(predicted->seconds > 1.0001 * *std::max_element(std::begin(lanes), std::end(lanes)));
        CHECK(predicted->seconds < 0.99 * sum);
      }
    }
}

TEST_CASE("the guessed part of a step is at most the step, also if guessed entries run at the same time") {
  Recorded step = recorded(
      parse_recipe({.device = "cuda", .sharding = "zero3", .precision = "fp32", .offload = "cpu_full"}), 2);
  step.costs = cli::joined(step.plan->train.schedule, step.costs);
  // All times are of one rank. So on two ranks the times of moves are guessed. Computations need little time,
  // so the lanes of moves are busy at the same time.
  cli::MachineTimes times("cuda", "a machine");
  double guessed = 0;
  for (cli::Cost const& cost : step.costs)
    if (cost.operations > 0) times.add({"fp32", 1, cost, (cost.is_move ? 1e-9 : 1e-12) * cost.bytes});
  for (Instance const& instance : instances_of(step.plan->train.schedule))
    if (cli::Cost const& cost = step.costs[static_cast<std::size_t>(instance.index)]; cost.is_move)
      guessed += 1e-9 * cost.bytes;
  auto const predicted = times.step(*step.plan, step.costs);
  REQUIRE(predicted);
  CHECK(guessed > predicted->seconds);  // the sum over lanes
  CHECK(predicted->guessed <= predicted->seconds);
  CHECK(predicted->guessed > 0.1 * predicted->seconds);
  // On the CPU the times of all entries with another number of ranks are guessed.
  Recorded on_cpu = recorded(recipe("zs3", "fp32", "cpu_full"), 2);
  on_cpu.costs = cli::joined(on_cpu.plan->train.schedule, on_cpu.costs);
  auto const whole = one_time_each("cpu", on_cpu, 1).step(*on_cpu.plan, on_cpu.costs);
  REQUIRE(whole);
  CHECK(whole->guessed == doctest::Approx(whole->seconds));
}

TEST_CASE("times that events held up are fitted to a step without, in the lane that is busy the longest") {
  Recorded const step = recorded(
      parse_recipe({.device = "cuda", .sharding = "zero2", .precision = "fp32", .offload = "cpu_optimizer"}),
      1);
  Schedule const& schedule = step.plan->train.schedule;
  std::vector<double> took(schedule.entries.size());
  for (std::size_t at = 0; at < took.size(); ++at)
    took[at] = (schedule.entries[at].lane == Lane::host ? 5e-9 : 1e-9) * step.costs[at].bytes;
  double const before = cli::on_paper(*step.plan, took);
  for (double const share : {0.8, 0.95, 1.0}) {
    std::vector<double> const fitted = cli::fitted_to(share * before, *step.plan, took);
    CHECK(cli::on_paper(*step.plan, fitted) == doctest::Approx(share * before).epsilon(1e-6));
    double factor = 0;
    for (std::size_t at = 0; at < took.size(); ++at) {
      if (schedule.entries[at].lane != Lane::host) {
        CHECK(fitted[at] == took[at]);
      } else if (took[at] > 0) {
        if (factor == 0) factor = fitted[at] / took[at];
        CHECK(fitted[at] == doctest::Approx(factor * took[at]).epsilon(1e-9));
      }
    }
    CHECK((share < 1 ? factor < share
                     // fitted_to() scales only the times of the entries (operations) in the host lane.
                     : factor >= doctest::Approx(share)));
  }
  for (double const share : {0.01, 1.25, 10.0})
    CHECK(cli::fitted_to(share * before, *step.plan, took) == took);
}

TEST_CASE("an unknown time is no time") {
  Recorded const step = recorded(recipe("zs3", "bf16", "cpu_full"), 2);
  cli::MachineTimes times("cpu", "a machine");
  for (cli::Cost const& cost : step.costs)
    if (!cost.what.starts_with("copy") && cost.operations > 0) times.add({"bf16", 2, cost, 1e-3});
  std::string unknown;
  CHECK_FALSE(times.step(*step.plan, step.costs, &unknown));
  CHECK(unknown.starts_with("copy "));
}

TEST_CASE("a step is recorded without its memory as a trainer records it") {
  for (std::string_view const sharding : {"zs0", "zs3", "dp"})
    for (std::string_view const offload : {"none", "cpu_full"}) {
      RecipeTable const table = recipe(sharding, "bf16", offload);
      Recorded const without = recorded(table, 2);
      Run run;
      run.split = {2, 2};
      run_ranks(table, 2, [&](comm::Comm comm) {
        auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
        if (!comm.is_root()) return;
        std::vector<cli::Cost> const with = cli::costs_of(
            [&](Recorder& recorder, StepObserver const& observer) { trainer->record(recorder, observer); });
        CHECK(hash_of(trainer->plan().train.schedule) == hash_of(without.plan->train.schedule));
        REQUIRE(with.size() == without.costs.size());
        for (std::size_t at = 0; at < with.size(); ++at) {
          CHECK(with[at].what == without.costs[at].what);
          CHECK(with[at].flops == without.costs[at].flops);
          CHECK(with[at].attention_flops == without.costs[at].attention_flops);
          CHECK(with[at].bytes == without.costs[at].bytes);
          CHECK(with[at].operations == without.costs[at].operations);
        }
      });
    }
}

TEST_CASE("a step of 250 GB is recorded in no memory") {  // a thread sanitizer has no memory for more
  Run run;
  double flops = 0;
  Gpt2Options const large{
      .layers = 8, .heads = 96, .channels = 12288, .positions = 2048, .vocabulary = 50257};
  for (std::string_view const device : {"cpu", "cuda"}) {
    std::vector<cli::Cost> const costs = cli::costs_of([&](Recorder& recorder, StepObserver const& observer) {
      (void)record_step(any_model(large), parse_recipe({.device = device, .precision = "bf16"}),
                        options_of(run), 0, 1, recorder, observer);
    });
    for (cli::Cost const& cost : costs) flops += cost.flops;
  }
  CHECK(flops > 2 * 6.0 * 14.5e9 * run.batch * run.sequence);
}

TEST_CASE("work that was not measured is scaled from the measured machine, also after a file was written") {
  auto const scaled = cli::MachineTimes::known("l4"), h200 = cli::MachineTimes::known("h200");
  REQUIRE(scaled);
  REQUIRE(scaled->scaling());
  file_support::TemporaryFolder const folder;
  scaled->write(folder / "l4.json", {});
  cli::MachineTimes const read = cli::MachineTimes::read(folder / "l4.json");
  // A product of 1 TFLOP takes far longer than its bytes, so only the rates of 16-bit products count.
  cli::Cost const product{"something new", false, 1e12, 0, 1e6, 1};
  auto const there = h200->seconds(product, "bf16", 1), here = scaled->seconds(product, "bf16", 1);
  REQUIRE(here);
  CHECK(here->guessed);
  CHECK(here->seconds == read.seconds(product, "bf16", 1)->seconds);
  double const least = 1e12 / 989.4e12;
  CHECK(here->seconds ==
        doctest::Approx(there->seconds + std::min(4 * least, there->seconds) * (989.4 / 121.0 - 1)));
}

TEST_CASE("a file of times is read as it was written, and others are refused by name") {
  file_support::TemporaryFolder const folder;
  auto const path = folder / "machine.json";
  cli::MachineTimes const times = measured();
  times.write(path, {{"cpu", "some"}});
  cli::MachineTimes const read = cli::MachineTimes::read(path);
  CHECK(read.device() == "cpu");
  CHECK(read.machine() == "a machine");
  CHECK(read.source() == "measured on a machine");
  REQUIRE(read.timings().size() == times.timings().size());
  cli::Cost const cost = cost_of(100, 640, 128);
  CHECK(read.seconds(cost, "fp32", 1)->seconds == times.seconds(cost, "fp32", 1)->seconds);

  std::string const text = file_support::read(path);
  auto const with = [&](std::string_view from, std::string_view to) {
    return file_support::replaced(text, from, to);
  };
  auto const refuses = [&](std::string const& content, std::string const& fault) {
    (void)file_support::write(path, content);
    CHECK_ERROR(data, cli::MachineTimes::read(path), fault);
  };
  for (std::string const& content :
       {std::string(), std::string("[1, 2]"), text.substr(0, text.size() / 2),
        with("\"version\": 1", "\"version\": " + std::string(100000, '[') + std::string(100000, ']'))})
    refuses(content, "is not a file of machine times");
  refuses(with("\"version\": 1", "\"version\": 9"), "has version 9");
  refuses(with("\"version\": 1", "\"version\": \"x\""), "has version ?,");
  refuses(with("\"seconds\":", "\"seconds\": -"), "timing 1 cannot be read ('seconds' is not a number from");
  refuses(with("\"ranks\":1", "\"ranks\": 0"), "'ranks' is not a number from 1 to 65536");
  refuses(with("\"ranks\":1", "\"ranks\": 4294967297"), "'ranks' is not a number");
  refuses(with("\"ranks\":1", "\"ranks\": 1.5"), "ranks is not a whole number");
  refuses(with("\"flops\":", "\"flops\": 1e200, \"other\": "), "'flops' is not a number");
  refuses(with("\"source\": \"", "\"source\": 1, \"other\": \""), "has a source that is not text");
  refuses(with("\"device\": \"cpu\"", "\"devices\": 1"), "has no device");
  refuses(with("\"device\": \"cpu\"", "\"device\": \"CUDA\""),
          "has times of device 'CUDA', but the devices are cpu and cuda");
  refuses(with("\"what\":\"linear attention\"", "\"what\": 7"),
          "timing 1 cannot be read ('what' is not a text)");
  (void)file_support::write(path, with("\"source\": \"", "\"source\": \"not "));
  CHECK(cli::MachineTimes::read(path).source() == "not measured on a machine");
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS((void)cli::MachineTimes::read(path),
                       doctest::Contains("machine.json: is not a readable file"), Error);
}
