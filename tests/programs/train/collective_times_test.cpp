// SPDX-License-Identifier: Apache-2.0
// Tests the class CollectiveTimes, which predicts the times of collectives of other sizes, numbers of ranks
// and kinds, and the simulation of steps in which collectives and computations slow each other down.
#include "prediction/collective_times.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "prediction/machine_times.hpp"
#include "support/file_support.hpp"
#include "support/runs.hpp"

namespace cli = programs::cli;

namespace {

using namespace support;

constexpr double alpha = 1e-5, bandwidth = 2e11;
constexpr double mib = 1 << 20;

/// Returns the exact time of an all_gather of `bytes` bytes in a ring of `ranks` ranks. Three steps of the
/// ring have the latency `alpha` together.
double ring(int ranks, double bytes) {
  return alpha * (ranks - 1) / 3 + bytes * (ranks - 1) / ranks / bandwidth;
}

cli::CollectiveTimes ring_times() {
  cli::CollectiveTimes times;
  times.source = "a book";
  times.link = "a link";
  for (double const size : {1 * mib, 16 * mib, 256 * mib})
    times.add({Move::all_gather, 4, size, ring(4, size)});
  return times;
}

struct GpuStep {
  std::optional<StepPlan> plan;
  std::vector<cli::Cost> costs;
};

GpuStep gpu_step(std::string_view sharding, int ranks, int channels = 1) {
  Run run;
  run.options.channels = channels;
  run.split = {ranks, 2};
  GpuStep step;
  step.costs = cli::costs_of([&](Recorder& recorder, StepObserver const& observer) {
    step.plan = record_step(any_model(tiny),
                            parse_recipe({.device = "cuda", .sharding = sharding, .precision = "bf16"}),
                            options_of(run), 0, ranks, recorder, observer);
  });
  return step;
}

/// Returns the times of a machine with one GPU, on which every operation needs 1 ms.
cli::MachineTimes one_gpu() {
  cli::MachineTimes times("cuda", "a GPU");
  times.add({"bf16", 1, {"work", false, 1, 0, 1, 1}, 1e-3});
  times.add({"bf16", 1, {"copy upload", true, 0, 0, 1, 1}, 1e-9});
  times.add({"bf16", 1, {"copy download", true, 0, 0, 1, 1}, 1e-9});
  return times;
}

}  // namespace

TEST_CASE(
    "the time of a collective is linear between measured sizes, and beyond them its bandwidth is constant") {
  cli::CollectiveTimes const times = ring_times();
  for (double const size : {4096.0, mib, 3 * mib, 16 * mib, 100 * mib, 256 * mib}) {
    CAPTURE(size);
    CHECK(times.seconds(Move::all_gather, 4, size, false).seconds ==
          doctest::Approx(ring(4, size)).epsilon(1e-6));
    CHECK_FALSE(times.seconds(Move::all_gather, 4, size, false).guessed);
  }
  CHECK(times.seconds(Move::all_gather, 4, 1024 * mib, false).seconds ==
        doctest::Approx(4 * ring(4, 256 * mib)));
  CHECK(times.seconds(Move::all_gather, 1, mib, false).seconds == 0);
  CHECK(times.seconds(Move::all_gather, 4, 0, false).seconds == 0);
}

TEST_CASE("the time of a collective of other numbers of ranks and other kinds is the time of a ring") {
  cli::CollectiveTimes times = ring_times();
  for (int const ranks : {2, 3, 8})
    for (double const size : {mib, 100 * mib})
      CHECK(times.seconds(Move::all_gather, ranks, size, false).seconds ==
            doctest::Approx(ring(ranks, size)).epsilon(1e-6));
  auto const sum = times.seconds(Move::all_reduce, 8, 100 * mib, false);
  CHECK(sum.guessed);
  CHECK(sum.seconds == doctest::Approx(2 * ring(8, 100 * mib)).epsilon(1e-6));
  CHECK(times.seconds(Move::broadcast, 4, 100 * mib, false).seconds ==
        doctest::Approx(alpha + 100 * mib / bandwidth).epsilon(1e-6));
  // Ranks on the CPU share its memory.
  CHECK(times.seconds(Move::all_gather, 8, 100 * mib, true).seconds >
        1.9 * times.seconds(Move::all_gather, 8, 100 * mib, false).seconds);
  // For a ring, the times of two measured numbers of ranks give the exact time of a number between them.
  cli::CollectiveTimes two = ring_times();
  for (double const size : {1 * mib, 16 * mib, 256 * mib})
    two.add({Move::all_gather, 2, size, ring(2, size)});
  CHECK(two.seconds(Move::all_gather, 3, 100 * mib, false).seconds ==
        doctest::Approx(ring(3, 100 * mib)).epsilon(1e-6));
  // If several numbers of ranks were measured, the next larger one counts, because more ranks possibly use a
  // slower link.
  times.add({Move::all_gather, 2, mib, 1.0});
  times.add({Move::all_gather, 8, mib, 2.0});
  CHECK(times.seconds(Move::all_gather, 2, mib, false).seconds == doctest::Approx(1.0));
  CHECK(times.seconds(Move::all_gather, 3, mib, false).seconds == doctest::Approx(ring(3, mib)));
  CHECK(times.seconds(Move::all_gather, 8, mib, false).seconds == doctest::Approx(2.0));
}

TEST_CASE("noise in the times of small collectives gives no negative time") {
  cli::CollectiveTimes times;
  times.add({Move::all_gather, 2, 4096, 3e-5});
  times.add({Move::all_gather, 2, 65536, 2e-5});
  times.add({Move::all_gather, 2, mib, 1e-3});
  for (double const size : {16.0, 4096.0, 20000.0, 70000.0, 5e6}) {
    CHECK(times.seconds(Move::all_gather, 2, size, false).seconds > 0);
    CHECK(times.seconds(Move::all_gather, 8, size, false).seconds > 0);
  }
  cli::CollectiveTimes one;
  one.add({Move::all_reduce, 2, mib, 1e-3});
  CHECK(one.seconds(Move::all_reduce, 2, 16, false).seconds == doctest::Approx(1e-3));
  CHECK(one.seconds(Move::all_reduce, 2, 2 * mib, false).seconds == doctest::Approx(2e-3));
}

TEST_CASE("the collectives of a file are read as they were written, and damaged ones are refused") {
  file_support::TemporaryFolder const folder;
  auto const path = folder / "machine.json";
  cli::MachineTimes times = one_gpu();
  times.write(path, {});
  CHECK(cli::MachineTimes::read(path).collectives().empty());  // as in files of earlier versions
  CHECK(cli::MachineTimes::read(path).memory_bytes() == 0);
  CHECK(cli::MachineTimes::read(path).max_ranks() == 0);
  cli::CollectiveTimes collectives = ring_times();
  collectives.scaled = true;
  collectives.error_pct = 42;
  collectives.slowdown = 0.125;
  collectives.collective_slowdown = 0.375;
  times.set_collectives(collectives);
  times.set_memory(std::int64_t{80} << 30);
  times.set_max_ranks(8);
  times.write(path, {});
  cli::MachineTimes const read = cli::MachineTimes::read(path);
  CHECK(read.memory_bytes() == std::int64_t{80} << 30);
  CHECK(read.max_ranks() == 8);
  CHECK(read.collectives().source == "a book");
  CHECK(read.collectives().link == "a link");
  CHECK(read.collectives().scaled);
  CHECK(read.collectives().error_pct == 42);
  CHECK(read.collectives().slowdown == 0.125);
  CHECK(read.collectives().collective_slowdown == 0.375);
  CHECK(read.collectives().points().size() == 3);
  CHECK(read.collectives().seconds(Move::all_gather, 3, 5 * mib, false).seconds ==
        collectives.seconds(Move::all_gather, 3, 5 * mib, false).seconds);

  std::string const text = file_support::read(path);
  (void)file_support::write(path, file_support::replaced(text, ",\"collective_slowdown\":0.375", ""));
  CHECK(cli::MachineTimes::read(path).collectives().collective_slowdown ==
        cli::CollectiveTimes().collective_slowdown);  // as in files of earlier versions
  struct Damage {
    char const *from, *to, *fault;
  };
  for (Damage const& each : {
           Damage{"\"kind\":\"all_gather\"", "\"kind\":\"all_gathr\"",
                  "collectives cannot be read (point 1: 'kind' is 'all_gathr', and not one of all_gather, "},
           Damage{"\"ranks\":4", "\"ranks\":1", "(point 1: 'ranks' is not a number from 2 to 65536)"},
           Damage{"\"ranks\":4", "\"ranks\":4.5", "(point 1: ranks is not a whole number)"},
           Damage{"\"bytes\":1048576.0", "\"bytes\":16777216",
                  "(point 2: an earlier point has the same kind"},
           Damage{"\"seconds\":", "\"seconds\":-", "(point 1: 'seconds' is not a number from 1e-09"},
           Damage{"\"points\": [", "\"points\": 7, \"other\": [", "('points' is not a list)"},
           Damage{"\"points\": [", "\"points\": [], \"other\": [",
                  "('points' is not a list of 1 to 20000 times)"},
           Damage{"\"collectives\": {", "\"collectives\": 3, \"other\": {", "(it is not an object)"},
           Damage{"\"scaled\":true", "\"scaled\":1", "('scaled' is not true or false)"},
           Damage{"\"slowdown\":0.125", "\"slowdown\":1.5", "('slowdown' is not a number from 0 to 0.9)"},
           Damage{"\"collective_slowdown\":0.375", "\"collective_slowdown\":-1",
                  "('collective_slowdown' is not a number from 0 to 0.9)"},
           Damage{"\"memory_bytes\": ", "\"memory_bytes\": -",
                  "cannot be read: 'memory_bytes' is not a number"},
           Damage{"\"max_ranks\": 8", "\"max_ranks\": \"8\"", "cannot be read: 'max_ranks' is not a number"},
       }) {
    (void)file_support::write(path, file_support::replaced(text, each.from, each.to));
    CHECK_ERROR(data, cli::MachineTimes::read(path), each.fault);
  }
}

TEST_CASE("a step of several GPUs is predicted from times of one GPU and of collectives") {
  for (std::string_view const sharding : {"zero0", "zero1", "zero2", "zero3"}) {
    CAPTURE(std::string(sharding));
    GpuStep const step = gpu_step(sharding, 2);
    cli::MachineTimes times = one_gpu();
    std::string unknown;
    CHECK_FALSE(times.step(*step.plan, step.costs, &unknown));
    auto const predicted = [&](double seconds, double slowdown, bool scaled) {
      cli::CollectiveTimes collectives;
      collectives.slowdown = slowdown;
      collectives.scaled = scaled;
      for (Move const kind : {Move::all_gather, Move::reduce_scatter, Move::all_reduce})
        collectives.add({kind, 2, 1, seconds});
      times.set_collectives(collectives);
      auto const found = times.step(*step.plan, step.costs);
      REQUIRE(found);
      CHECK(found->from_link_data == scaled);
      return found->seconds;
    };
    double const fast = predicted(1e-9, 0, false);
    CHECK(predicted(1e-9, 0.5, true) > fast);
    CHECK(predicted(1e-6, 0.0, true) > fast);
  }
}

TEST_CASE("a collective and computations slow each other down, and it waits for them when it starts") {
  GpuStep const step = gpu_step("zero0", 2);
  Schedule const& schedule = step.plan->train.schedule;
  std::vector<double> took(schedule.entries.size());
  cli::Contention contention{std::vector<bool>(took.size()), std::vector<bool>(took.size())};
  double computed = 0, exchanged = 0;
  int exchanges = 0;
  for (std::size_t at = 0; at < took.size(); ++at) {
    contention.collectives[at] = schedule.entries[at].move > Move::copy;
    contention.slowed[at] = computes(schedule.entries[at].verb);
    took[at] = contention.collectives[at] ? 0.5 : contention.slowed[at] ? 1.0 : 0.0;
    (contention.collectives[at] ? exchanged : computed) += took[at];
    exchanges += contention.collectives[at];
  }
  REQUIRE(exchanges > 1);
  double const free = cli::on_paper(*step.plan, took);
  CHECK(free >= computed);
  CHECK(free < computed + exchanged);
  CHECK(cli::on_paper(*step.plan, took, contention) == doctest::Approx(free));
  contention.slowdown = 0.5;
  double const slowed = cli::on_paper(*step.plan, took, contention);
  CHECK(slowed > free);
  CHECK(slowed <= free + 0.5 * exchanged + 1e-9);
  contention.wait = 0.25;
  double const waited = cli::on_paper(*step.plan, took, contention);
  CHECK(waited > slowed);
  CHECK(waited <= slowed + 0.25 * exchanges + 1e-9);
  // A collective that runs at half of its speed during a computation transfers at most twice as long, and so
  // also slows the computations down for longer.
  contention.collective_slowdown = 0.5;
  double const longer = cli::on_paper(*step.plan, took, contention);
  CHECK(longer > waited);
  CHECK(longer <= waited + 1.5 * exchanged + 1e-9);
  // Without a slowdown of computations, the step grows at most by the doubled transfers.
  contention.slowdown = 0;
  contention.wait = 0;
  CHECK(cli::on_paper(*step.plan, took, contention) <= free + exchanged + 1e-9);
}

TEST_CASE("two collectives that run at the same time share the link") {
  GpuStep const step = gpu_step("zero3", 2, 2);
  Schedule const& schedule = step.plan->train.schedule;
  std::vector<double> took(schedule.entries.size());
  cli::Contention contention{std::vector<bool>(took.size()), {}};
  double exchanged = 0;
  std::vector<Lane> lanes;
  for (std::size_t at = 0; at < took.size(); ++at) {
    if (schedule.entries[at].move <= Move::copy) continue;
    contention.collectives[at] = true;
    took[at] = 1.0;
    exchanged += 1.0;
    lanes.push_back(schedule.entries[at].lane);
  }
  std::sort(lanes.begin(), lanes.end());
  REQUIRE(lanes.front() != lanes.back());
  CHECK(cli::on_paper(*step.plan, took) < exchanged - 0.5);
  CHECK(cli::on_paper(*step.plan, took, contention) == doctest::Approx(exchanged));
}

TEST_CASE(
    "the network limits a collective between hosts, and adds its latency for each step between two of them") {
  cli::Network const network{.link = "wire", .source = "a book", .bytes_per_s = 1e9, .latency_s = 1e-3};
  // Two hosts with 4 ranks each: a ring of 8 ranks over 4 GB/s, and one step from host to host.
  double const transfer = 1e8 * 7 / 8 / 4e9;
  CHECK(network.seconds(Move::all_gather, 8, 4, 1e8, 0) == doctest::Approx(transfer + 1e-3));
  CHECK(network.seconds(Move::all_reduce, 8, 4, 1e8, 0) == doctest::Approx(2 * transfer + 2e-3));
  CHECK(network.seconds(Move::broadcast, 8, 4, 1e8, 0) == doctest::Approx(1e8 / 4e9 + 1e-3));
  CHECK(network.seconds(Move::all_gather, 2, 1, 1e8, 0) == doctest::Approx(1e8 / 2 / 1e9 + 1e-3));
  // A slower link within the hosts limits the transfer.
  CHECK(network.seconds(Move::all_gather, 8, 4, 1e8, 1.0) == doctest::Approx(1.0 + 1e-3));
}

TEST_CASE("a file of machine times keeps its host, its network and its expected error") {
  file_support::TemporaryFolder const folder;
  auto const path = folder / "machine.json";
  cli::MachineTimes times = one_gpu();
  CHECK(times.error_pct() == cli::default_error_pct);
  times.set_host("8 vCPUs");
  times.set_error(40);
  times.set_network(cli::Network{
      .link = "wire", .source = "a book", .bytes_per_s = 1e9, .latency_s = 1e-3, .error_pct = 60});
  times.write(path, {});
  cli::MachineTimes const read = cli::MachineTimes::read(path);
  CHECK(read.host() == "8 vCPUs");
  CHECK(read.error_pct() == 40);
  REQUIRE(read.network());
  CHECK(cli::json_of(*read.network()) == cli::json_of(*times.network()));
}
