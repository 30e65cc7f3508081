// SPDX-License-Identifier: Apache-2.0
// Tests how the program `train` makes traces and profiles of its training steps. In some tests the steps are
// artificial and have exact times. In others the steps are real, with a clock that advances by 1 ns at each
// reading.
#include "trace/step_times.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/comm/run.hpp"
#include "tessera/plan/listing.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"
#include "trace/clocks.hpp"
#include "trace/marks.hpp"

namespace cli = programs::cli;

namespace {

using namespace support;
using Json = nlohmann::json;

/// Returns a list with one pair for each entry (operation) of the training schedule of `plan`: its lane
/// (stream) and its name, as `plan --schedule` prints them.
std::vector<std::pair<std::string, std::string>> listed(StepPlan const& plan) {
  std::vector<std::pair<std::string, std::string>> entries;
  std::istringstream lines(listing(plan, plan.train));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, lane, micro, unit, verb;
    words >> number >> lane >> micro >> unit >> verb;
    if (number == std::to_string(entries.size()) && lane != "to")
      entries.emplace_back(lane, unit == "-" ? verb : verb + " " + unit);
  }
  return entries;
}

struct Traced {
  std::vector<cli::RankTimes> ranks;
  std::vector<std::pair<std::string, std::string>> entries;  // lane and name; of rank 0
  std::vector<std::pair<int, int>> instances;                // index of the entry, micro-batch
};

/// Trains three steps with the recipe `table` and the split `split`. Returns the times of the last two steps.
/// On each rank, the clock advances by 1 ns at each reading.
Traced traced(RecipeTable const& table, Spread split) {
  Run run;
  run.split = split;
  Traced all;
  all.ranks.resize(static_cast<std::size_t>(split.ranks));
  run_ranks(table, split.ranks, [&](comm::Comm comm) {
    auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
    std::int64_t ticks = 1000;
    cli::StepTimer timer(*trainer, comm.rank(), [&ticks] { return ticks++; });
    for (int step = 0; step < 3; ++step) {
      timer.begin(step + 1);
      (void)trainer->step(make_batch(step, comm.rank(), split, run.batch, run.sequence, run.vocabulary))
          .get();
      timer.end(1e-6, step > 0);
    }
    all.ranks[static_cast<std::size_t>(comm.rank())] = timer.take();
    if (!comm.is_root()) return;
    all.entries = listed(trainer->plan());
    for (Instance const& instance : instances_of(trainer->plan().train.schedule))
      all.instances.emplace_back(instance.index, instance.micro_batch);
  });
  return all;
}

cli::TimedEntry entry(std::string kind, Lane lane, bool collective = false, double flops = 0) {
  cli::TimedEntry made;
  made.name = kind + " h.0";
  made.kind = std::move(kind);
  made.lane = lane;
  made.collective = collective;
  made.flops = flops;
  return made;
}

/// Returns the times of two artificial steps, which are equal and last 100 ns. In each step, computations run
/// in [10, 30) and [40, 60) ns, an all-gather in [0, 10) ns, and a reduction in [20, 50) ns. Two thirds of
/// the reduction overlap with computations.
cli::RankTimes by_hand() {
  cli::RankTimes times;
  times.entries = {
      entry("forward", Lane::compute, false, 3000), entry("gather all_gather", Lane::gathering, true),
      entry("reduce all_reduce", Lane::communication, true), entry("accumulate", Lane::communication)};
  cli::TimedStep step;
  step.number = 3;
  step.whole = {1000, 1100};
  step.reported = 125e-9;
  step.instances = {{1, 0, {1000, 1010}},
                    {0, 0, {1010, 1030}},
                    {0, 1, {1040, 1060}},
                    {2, 1, {1020, 1050}},
                    {3, 1, {1050, 1055}}};
  times.steps = {step, step};
  times.steps[1].number = 4;
  return times;
}

double nanoseconds(double seconds) { return seconds * 1e9; }

}  // namespace

TEST_CASE("a profile adds up by lane and tells hidden collectives from exposed ones") {
  cli::Profile const profile = cli::profile_of(by_hand());
  CHECK(profile.steps == std::vector<std::int64_t>{3, 4});
  CHECK(nanoseconds(profile.step) == doctest::Approx(125));
  REQUIRE(profile.lanes.size() == 3);
  std::map<Lane, std::pair<double, double>> const wanted{
      {Lane::compute, {40, 60}}, {Lane::communication, {35, 65}}, {Lane::gathering, {10, 90}}};
  for (cli::LaneTimes const& lane : profile.lanes) {
    CHECK(nanoseconds(lane.busy) == doctest::Approx(wanted.at(lane.lane).first));
    CHECK(nanoseconds(lane.idle) == doctest::Approx(wanted.at(lane.lane).second));
  }
  REQUIRE(profile.lanes[0].kinds.size() == 1);
  cli::KindTimes const& forward = profile.lanes[0].kinds[0];
  CHECK(forward.count == 2);
  CHECK(nanoseconds(forward.seconds) == doctest::Approx(40));
  CHECK(*forward.flops_per_second() == doctest::Approx(6000 / 40e-9));
  CHECK_FALSE(forward.bytes_per_second());
  CHECK(nanoseconds(profile.collectives) == doctest::Approx(40));  // `accumulate` is not a collective
  CHECK(nanoseconds(profile.hidden) == doctest::Approx(20));
  CHECK(profile.hidden + profile.exposed() == doctest::Approx(profile.collectives));

  std::string const text = cli::profile_text(profile, 2);
  CHECK(text.find("profile of rank 0 of 2") == 0);
  // By the times of its entries (operations), a step lasts 100 ns. The report of the step says 125 ns.
  CHECK(text.find("20.00% less than the step") != std::string::npos);
  Json const json = cli::profile_json({by_hand()});
  CHECK(json["steps"] == Json({3, 4}));
  Json const& rank = json["ranks"][0];
  CHECK(rank["lanes"][0]["lane"] == "compute");
  CHECK(rank["lanes"][0]["difference_ms"].get<double>() == doctest::Approx(25e-6));
  CHECK(rank["lanes"][0]["entries"][0]["share"].get<double>() == doctest::Approx(40.0 / 125.0));
  CHECK(rank["lanes"][0]["entries"][0]["bytes_per_sec"].is_null());
  CHECK(rank["collectives"]["hidden_ms"].get<double>() == doctest::Approx(20e-6));
}

TEST_CASE("collectives hide behind gradients of weights too, counted once where both lanes compute") {
  cli::RankTimes times = by_hand();
  times.entries.push_back(entry("backward_weight", Lane::gradients));
  for (cli::TimedStep& step : times.steps) step.instances.push_back({4, 1, {1025, 1045}});
  cli::Profile const profile = cli::profile_of(times);
  CHECK(nanoseconds(profile.collectives) == doctest::Approx(40));
  // Computations now overlap with the whole reduction (30 ns), and with no part of the all-gather (10 ns).
  CHECK(nanoseconds(profile.hidden) == doctest::Approx(30));
}

TEST_CASE("phases last from the first to the last of their entries, one at a time") {
  cli::RankTimes times;
  times.entries.resize(4);
  for (int phase = 0; phase < 3; ++phase) times.entries[static_cast<std::size_t>(phase)].phase = phase;
  cli::TimedStep step;
  step.whole = {0, 200};
  step.instances = {{0, 0, {0, 10}},   {3, 0, {5, 150}},  {0, 0, {12, 20}}, {1, 0, {20, 30}},
                    {1, 0, {30, 45}},  {2, -1, {40, 60}},  // an update on the host during backward
                    {1, -1, {47, 50}}, {2, -1, {60, 70}}};
  std::string found;
  for (cli::TimedPhase const& phase : cli::phases_of(times, step))
    found += std::to_string(phase.phase) + ": " + std::to_string(phase.ran.begin) + " to " +
             std::to_string(phase.ran.end) + "; ";
  CHECK(found == "0: 0 to 20; 1: 20 to 45; 2: 45 to 70; ");
}

TEST_CASE("a profile of no steps is empty") {
  cli::Profile const profile = cli::profile_of({});
  CHECK(profile.lanes.empty());
  CHECK(profile.collectives == 0);
  CHECK(cli::steps_text({}) == "no step");
}

namespace {

/// Returns the name that the entry (operation) `name` has in trace files. The first word of an entry's name
/// is a verb. Some verbs had other names when version 1 of the file format was defined, and trace files keep
/// these older names.
std::string in_files(std::string const& name) {
  static std::map<std::string, std::string> const renamed{{"gather", "acquire"}, {"accumulate", "fold"},
                                                          {"fetch", "stream"},   {"write_back", "publish"},
                                                          {"exchange", "share"}, {"copy_scalars", "brief"}};
  auto const verb = name.substr(0, name.find(' '));
  return renamed.contains(verb) ? renamed.at(verb) + name.substr(verb.size()) : name;
}

}  // namespace

TEST_CASE("a trace has every instance once a step by its name in files, and no lane has two at a time") {
  file_support::TemporaryFolder const folder;
  std::filesystem::path const path = folder.path() / "trace.json";
  struct Case {
    char const *sharding, *offload;
    Spread split;
  };
  for (Case const& c :
       {Case{"zs0", "none", {1, 1}}, {"zs3", "cpu_optimizer", {2, 3}}, {"zs2", "none", {2, 2}}}) {
    INFO(c.sharding, " ", c.offload);
    Traced const all = traced(recipe(c.sharding, "fp32", c.offload), c.split);
    REQUIRE(all.entries.size() == all.ranks[0].entries.size());
    cli::write_trace(path, all.ranks);
    std::ifstream file(path);
    Json const trace = Json::parse(file);

    std::map<std::pair<int, int>, std::string> lanes;
    std::set<std::string> processes;
    // For each process and thread: the end of its last slice (time of one entry) in nanoseconds.
    std::map<std::pair<int, int>, std::int64_t> end;
    std::map<std::pair<int, std::int64_t>, std::vector<std::pair<int, int>>> ran;  // rank, step: its entries
    std::map<std::pair<int, std::int64_t>, std::string> phases;
    std::map<int, std::vector<Json>> arrows;
    for (Json const& event : trace.at("traceEvents")) {
      std::pair<int, int> const thread(event.at("pid"), event.at("tid"));
      if (event.at("name") == "thread_name") lanes[thread] = event.at("args").at("name");
      if (event.at("name") == "process_name")
        processes.insert(event.at("args").at("name").get<std::string>());
      if (event.contains("id")) arrows[event.at("id")].push_back(event);
      if (event.at("ph") != "X") continue;
      auto const in_ns = [&](char const* field) { return std::llround(event.at(field).get<double>() * 1e3); };
      CHECK(in_ns("ts") >= end[thread]);
      end[thread] = in_ns("ts") + in_ns("dur");
      Json const& about = event.at("args");
      if (lanes.at(thread) == "steps") {
        CHECK(event.at("name") == "step " + about.at("step").dump());
        continue;
      }
      if (lanes.at(thread) == "phases") {
        phases[{thread.first, about.at("step")}] += event.at("name").get<std::string>() + " ";
        continue;
      }
      int const entry = about.at("entry");
      REQUIRE(entry < static_cast<int>(all.entries.size()));
      auto const& [lane, name] = all.entries[static_cast<std::size_t>(entry)];
      CHECK(lanes.at(thread) == lane);
      CHECK(event.at("name") == in_files(name));
      CHECK(in_ns("dur") == 1);  // 1 ns is one tick of the clock
      ran[{thread.first, about.at("step")}].emplace_back(entry, about.value("micro_batch", -1));
    }
    CHECK(processes.size() == static_cast<std::size_t>(c.split.ranks));
    CHECK(ran.size() == static_cast<std::size_t>(2 * c.split.ranks));  // steps 2 and 3 of each rank
    for (auto const& [step, instances] : ran) {
      CHECK(step.second >= 2);
      if (step.first == 1) CHECK(instances == all.instances);
      std::string wanted;
      for (std::int64_t micro = 0; micro < c.split.accumulation; ++micro) wanted += "forward backward ";
      CHECK(phases.at(step) == wanted + "update ");
    }
    // If there are two ranks, the trace has one arrow for each collective of the two steps. The arrow leads
    // from one rank to the other rank.
    std::size_t collectives = 0;
    for (auto const& [entry, micro] : all.instances)
      collectives += all.ranks[0].entries[static_cast<std::size_t>(entry)].group.count == 2;
    CHECK((collectives > 0) == (c.split.ranks == 2));
    CHECK(arrows.size() == 2 * collectives);
    for (auto const& [id, ends] : arrows) {
      REQUIRE(ends.size() == 2);
      CHECK(ends[0].at("ph") == "s");
      CHECK(ends[1].at("ph") == "f");
      CHECK(ends[0].at("pid") != ends[1].at("pid"));
      CHECK(ends[0].at("tid") == ends[1].at("tid"));
    }
    cli::Marks const marks = cli::read_marks(path, c.split.ranks - 1);
    CHECK(marks.ranks == c.split.ranks);
    REQUIRE(marks.steps.size() == 2);
    cli::RankTimes const& last = all.ranks.back();
    for (std::size_t step = 0; step < 2; ++step) {
      CHECK(marks.steps[step].step == last.steps[step].number);
      CHECK(marks.steps[step].begin == last.steps[step].whole.begin);
      CHECK(marks.steps[step].end == last.steps[step].whole.end);
    }
    CHECK(marks.phases.size() == static_cast<std::size_t>(2 * (2 * c.split.accumulation + 1)));

    double const instances = static_cast<double>(all.instances.size());
    for (cli::RankTimes const& times : all.ranks) {
      cli::Profile const profile = cli::profile_of(times);
      double busy = 0;
      for (cli::LaneTimes const& lane : profile.lanes) {
        busy += nanoseconds(lane.busy);
        CHECK(nanoseconds(lane.busy + lane.idle) == doctest::Approx(1 + 2 * instances));
      }
      CHECK(busy == doctest::Approx(instances));
      CHECK((profile.collectives > 0) == (c.split.ranks > 1));
      CHECK(profile.hidden == 0.0);  // a single thread runs all lanes, so nothing overlaps
    }
  }
}

TEST_CASE("what entries cost is what their operations say and what their moves carry") {
  Traced const all = traced(recipe("zs3"), {2, 2});
  double flops = 0;
  for (cli::TimedEntry const& each : all.ranks[0].entries) {
    if (each.kind == "forward" || each.kind == "update") CHECK(each.flops > 0);
    if (each.collective) CHECK(each.bytes > 0);
    if (each.kind == "release") CHECK(each.bytes == 0);
    if (each.kind == "forward") flops += each.flops;
  }
  double backward = 0;
  for (cli::TimedEntry const& each : all.ranks[0].entries)
    if (each.kind.starts_with("backward")) backward += each.flops;
  CHECK(backward / flops > 1.5);  // usually 2; a little less, since the first unit has no input gradient
  CHECK(backward / flops < 2.5);
}

TEST_CASE("a trace that cannot be written says where") {
  CHECK_THROWS_WITH_AS(cli::write_trace("/nonexistent/trace.json", {by_hand()}),
                       doctest::Contains("/nonexistent/trace.json"), Error);
}

TEST_CASE("an arrow leads from the last rank that reaches a collective to each rank that waits for it") {
  cli::TimedEntry reduce = entry("reduce", Lane::communication);
  reduce.group = {0, 1, 3};
  std::vector<cli::RankTimes> ranks(3);
  std::int64_t const begin[] = {1000, 3000, 2000};
  for (int rank = 0; rank < 3; ++rank) {
    cli::RankTimes& times = ranks[static_cast<std::size_t>(rank)];
    times.rank = rank;
    times.entries = {reduce};
    times.steps.resize(1);
    times.steps[0].number = 1;
    times.steps[0].whole = {0, 5000};
    times.steps[0].instances = {{0, -1, {begin[rank], 4000}}};
  }
  file_support::TemporaryFolder const folder;
  std::filesystem::path const path = folder.path() / "trace.json";
  cli::write_trace(path, ranks);
  std::ifstream file(path);
  Json const trace = Json::parse(file);
  std::string found;
  for (Json const& event : trace.at("traceEvents"))
    if (event.contains("id"))
      found += event.at("ph").get<std::string>() + " rank " + std::to_string(event.at("pid").get<int>() - 1) +
               " at " + event.at("ts").dump() + "; ";
  CHECK(found == "s rank 1 at 3.0; f rank 0 at 3.0; s rank 1 at 3.0; f rank 2 at 3.0; ");
}

TEST_CASE("clocks of several hosts are compared to within the time of a collective") {
  run(4, [](comm::Comm& comm) {
    // Ranks 0 and 1 are on one host and read one clock. The clocks of the other ranks differ from it by
    // hours.
    std::int64_t const apart = comm.rank() < 2 ? 0 : comm.rank() * 10'000'000'000'000;
    std::string const boot = comm.rank() < 2 ? "first" : "boot " + std::to_string(comm.rank());
    cli::ClockDifference const found = cli::clock_difference(
        comm.transport(), boot, [apart] { return cli::monotonic_nanoseconds() + apart; });
    CHECK(std::llabs(found.offset - apart) <= found.error);
    CHECK(found.error < 50'000'000);  // 50 ms, for machines with fewer cores than ranks
    CHECK((found.error == 0) == (comm.rank() < 2));
    cli::ClockDifference const same =
        cli::clock_difference(comm.transport(), "one host", [] { return std::int64_t{0}; });
    CHECK((same.offset == 0 && same.error == 0));
  });
}
