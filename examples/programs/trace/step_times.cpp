// SPDX-License-Identifier: Apache-2.0
// Implements step_times.hpp: measures when the entries of training steps run, and writes traces and profiles.
#include "trace/step_times.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"
#include "tessera/loop/training_loop.hpp"
#include "tessera/plan/listing.hpp"

#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "prediction/step_costs.hpp"
#include "trace/marks.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

using Json = nlohmann::ordered_json;

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

/// Returns the part of `one` that the spans `others` cover, in nanoseconds. `others` must be sorted and
/// disjoint.
std::int64_t overlap(TimeSpan const& one, std::vector<TimeSpan> const& others) {
  std::int64_t sum = 0;
  auto other = std::partition_point(others.begin(), others.end(),
                                    [&](TimeSpan const& each) { return each.end <= one.begin; });
  for (; other != others.end() && other->begin < one.end; ++other)
    sum += std::min(one.end, other->end) - std::max(one.begin, other->begin);
  return sum;
}

/// Returns the spans of time in which entries of a lane ran in a step, in the order of the schedule.
std::vector<TimeSpan> busy(RankTimes const& times, TimedStep const& step, Lane lane) {
  std::vector<TimeSpan> ran;
  for (TimedInstance const& instance : step.instances)
    if (times.entries[static_cast<std::size_t>(instance.entry)].lane == lane) ran.push_back(instance.ran);
  return ran;
}

/// Returns the spans of time in which entries of the lane `compute` or `gradients` ran, sorted and disjoint.
std::vector<TimeSpan> computing_in(RankTimes const& times, TimedStep const& step) {
  std::vector<TimeSpan> all = busy(times, step, Lane::compute);
  std::vector<TimeSpan> const gradients = busy(times, step, Lane::gradients);
  if (gradients.empty()) return all;
  all.insert(all.end(), gradients.begin(), gradients.end());
  std::sort(all.begin(), all.end(),
            [](TimeSpan const& one, TimeSpan const& other) { return one.begin < other.begin; });
  std::vector<TimeSpan> merged;
  for (TimeSpan const& each : all)
    if (!merged.empty() && each.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, each.end);
    else
      merged.push_back(each);
  return merged;
}

/// Returns the part of `whole` that the spans `ran` do not cover, in nanoseconds. `ran` must be sorted and
/// disjoint.
std::int64_t gaps(TimeSpan const& whole, std::vector<TimeSpan> const& ran) {
  std::int64_t sum = 0, end = whole.begin;
  for (TimeSpan const& each : ran) {
    sum += std::max<std::int64_t>(0, each.begin - end);
    end = std::max(end, each.end);
  }
  return sum + std::max<std::int64_t>(0, whole.end - end);
}

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 3) + " ms"; }

std::string rate(std::optional<double> const& per_second) {
  return per_second ? fixed(*per_second * 1e-9, 2) : "-";
}

/// Returns the phase to which entries of a verb belong, as an index into phase_names. Returns -1 for verbs
/// without a phase, such as moves.
int phase_of(Verb verb) {
  switch (verb) {
    case Verb::forward:
    case Verb::sum_losses:
      return 0;
    case Verb::add_tied:
    case Verb::clear_gaps:
    case Verb::recompute:
    case Verb::restore:
    case Verb::backward_input:
    case Verb::backward_weight:
      return 1;
    case Verb::norm:
    case Verb::decide:
    case Verb::update:
      return 2;
    default:
      return -1;
  }
}

/// Returns the name that the kind of entry `kind` (TimedEntry::kind) has in files. Six verbs were renamed in
/// the library, but files still use their old names.
std::string stored(std::string const& kind) {
  constexpr std::pair<std::string_view, std::string_view> renamed[] = {
      {"gather", "acquire"},     {"accumulate", "fold"}, {"fetch", "stream"},
      {"write_back", "publish"}, {"exchange", "share"},  {"copy_scalars", "brief"}};
  std::string const verb = kind.substr(0, kind.find(' '));
  for (auto const& [now, before] : renamed)
    if (verb == now) return std::string(before) + kind.substr(verb.size());
  return kind;
}

Json lane_json(LaneTimes const& lane, double step) {
  Json kinds = Json::array();
  for (KindTimes const& kind : lane.kinds) {
    auto const flops = kind.flops_per_second(), bytes = kind.bytes_per_second();
    kinds.push_back({{"entry", stored(kind.kind)},
                     {"count", kind.count},
                     {"ms", kind.seconds * 1e3},
                     {"share", kind.seconds / step},
                     {"flops_per_sec", flops ? Json(*flops) : Json(nullptr)},
                     {"bytes_per_sec", bytes ? Json(*bytes) : Json(nullptr)}});
  }
  return {{"lane", name_of(lane.lane)},
          {"busy_ms", lane.busy * 1e3},
          {"idle_ms", lane.idle * 1e3},
          {"difference_ms", (step - lane.busy - lane.idle) * 1e3},
          {"entries", std::move(kinds)}};
}

}  // namespace

std::string text_of(RankTimes const& times) {
  Json entries = Json::array(), steps = Json::array();
  for (TimedEntry const& entry : times.entries)
    entries.push_back({entry.name, entry.kind, entry.unit, static_cast<int>(entry.lane), entry.phase,
                       entry.collective, entry.flops, entry.bytes, entry.group.first, entry.group.stride,
                       entry.group.count});
  for (TimedStep const& step : times.steps) {
    Json instances = Json::array();
    for (TimedInstance const& instance : step.instances)
      instances.push_back({instance.entry, instance.micro_batch, instance.ran.begin, instance.ran.end});
    steps.push_back({step.number, step.whole.begin, step.whole.end, step.reported, std::move(instances)});
  }
  return Json{{"rank", times.rank},
              {"clock_error", times.clock_error},
              {"entries", std::move(entries)},
              {"steps", std::move(steps)}}
      .dump();
}

RankTimes rank_times(std::string const& text) {
  Json const from = Json::parse(text);
  RankTimes times;
  times.rank = from["rank"].get<int>();
  times.clock_error = from["clock_error"].get<std::int64_t>();
  for (Json const& entry : from["entries"])
    times.entries.push_back({entry[0].get<std::string>(),
                             entry[1].get<std::string>(),
                             entry[2].get<std::string>(),
                             static_cast<Lane>(entry[3].get<int>()),
                             entry[4].get<int>(),
                             entry[5].get<bool>(),
                             entry[6].get<double>(),
                             entry[7].get<double>(),
                             {entry[8].get<int>(), entry[9].get<int>(), entry[10].get<int>()}});
  for (Json const& step : from["steps"]) {
    TimedStep& to = times.steps.emplace_back();
    to.number = step[0].get<std::int64_t>();
    to.whole = {step[1].get<std::int64_t>(), step[2].get<std::int64_t>()};
    to.reported = step[3].get<double>();
    for (Json const& instance : step[4])
      to.instances.push_back({instance[0].get<int>(),
                              instance[1].get<int>(),
                              {instance[2].get<std::int64_t>(), instance[3].get<std::int64_t>()}});
  }
  return times;
}

void shift(RankTimes& times, std::int64_t offset) {
  auto const move = [offset](TimeSpan& span) {
    span.begin -= offset;
    span.end -= offset;
  };
  for (TimedStep& step : times.steps) {
    move(step.whole);
    for (TimedInstance& instance : step.instances) move(instance.ran);
  }
}

std::int64_t monotonic_nanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StepTimer::StepTimer(AnyTrainer& trainer, int rank, std::function<std::int64_t()> clock)
    : trainer_(trainer), clock_(std::move(clock)) {
  times_.rank = rank;
  Program const& program = trainer.plan().train;
  for (Entry const& entry : program.schedule.entries) {
    TimedEntry timed;
    timed.unit = unit_text(trainer.plan(), entry);
    timed.kind = name_of(entry.verb);
    timed.phase = phase_of(entry.verb);
    timed.name = timed.kind + (timed.unit == "-" ? "" : " " + timed.unit);
    if (entry.move != Move::none) timed.kind.append(" ").append(name_of(entry.move));
    timed.lane = entry.lane;
    timed.collective = entry.move != Move::none && entry.move != Move::copy;
    if (timed.collective) timed.group = trainer.plan().ranks_of(entry);
    times_.entries.push_back(std::move(timed));
  }
  std::vector<Cost> const costs =
      costs_of([&](Recorder& recorder, StepObserver const& observer) { trainer.record(recorder, observer); });
  for (std::size_t index = 0; index < costs.size(); ++index) {
    times_.entries[index].flops = costs[index].flops + costs[index].attention_flops;
    times_.entries[index].bytes = costs[index].bytes;
  }
}

void StepTimer::begin(std::int64_t number) {
  TimedStep& step = times_.steps.emplace_back();
  step.number = number;
  step.instances.reserve(static_cast<std::size_t>(trainer_.plan().train.schedule.instances()));
  trainer_.time_entries(this);
}

void StepTimer::end(double reported_seconds, bool keep) {
  trainer_.time_entries(nullptr);
  times_.steps.back().reported = reported_seconds;
  if (!keep) times_.steps.pop_back();
}

void StepTimer::ran(int entry, std::int64_t begin, std::int64_t end) noexcept {
  TimedStep& step = times_.steps.back();
  if (entry < 0) {
    step.whole = {begin, end};
    return;
  }
  Instance const instance =
      trainer_.plan().train.schedule.instance(static_cast<std::int64_t>(step.instances.size()));
  step.instances.push_back({entry, instance.micro_batch, {begin, end}});
}

RankTimes time_steps(AnyTrainer& trainer, comm::Comm const& comm, TimedSteps const& steps) {
  StepTimer timer(trainer, comm.rank());
  double elapsed = 0.0;
  TrainingLoop loop(trainer, comm,
                    {.steps = 1 + steps.max_steps,
                     .batch = steps.batch,
                     .stop = [&](std::int64_t) { return comm.is_root() && elapsed >= steps.enough_s; },
                     .isolated = {.due = [](std::int64_t) { return true; },
                                  .begin = [&](std::int64_t step) { timer.begin(step); },
                                  .end =
                                      [&](std::int64_t step, StepReport const& report) {
                                        timer.end(report.interval, step > 0);
                                        if (step > 0) elapsed += report.interval;
                                      }}});
  loop.run();
  if (loop.data_error()) throw Error(*loop.data_error());
  return timer.take();
}

std::vector<TimedPhase> phases_of(RankTimes const& times, TimedStep const& step) {
  std::vector<TimedPhase> instances;
  for (TimedInstance const& instance : step.instances)
    if (int const phase = times.entries[static_cast<std::size_t>(instance.entry)].phase; phase >= 0)
      instances.push_back({phase, instance.ran});
  std::stable_sort(instances.begin(), instances.end(), [](TimedPhase const& one, TimedPhase const& other) {
    return one.ran.begin < other.ran.begin;
  });
  std::vector<TimedPhase> phases;
  for (TimedPhase instance : instances) {
    if (!phases.empty() && phases.back().phase == instance.phase) {
      phases.back().ran.end = std::max(phases.back().ran.end, instance.ran.end);
      continue;
    }
    if (!phases.empty()) instance.ran.begin = std::max(instance.ran.begin, phases.back().ran.end);
    if (instance.ran.begin < instance.ran.end) phases.push_back(instance);
  }
  return phases;
}

Profile profile_of(RankTimes const& times) {
  Profile profile;
  profile.rank = times.rank;
  double const each = times.steps.empty() ? 0.0 : 1.0 / static_cast<double>(times.steps.size());
  std::array<LaneTimes, lane_count> lanes;
  for (TimedStep const& step : times.steps) {
    profile.steps.push_back(step.number);
    profile.step += step.reported * each;
    for (std::size_t index = 0; index < lanes.size(); ++index) {
      lanes[index].lane = static_cast<Lane>(index);
      lanes[index].idle += seconds(gaps(step.whole, busy(times, step, lanes[index].lane))) * each;
    }
    std::vector<TimeSpan> const computing = computing_in(times, step);
    for (TimedInstance const& instance : step.instances) {
      TimedEntry const& entry = times.entries[static_cast<std::size_t>(instance.entry)];
      LaneTimes& lane = lanes[static_cast<std::size_t>(entry.lane)];
      auto kind = std::find_if(lane.kinds.begin(), lane.kinds.end(),
                               [&](KindTimes const& known) { return known.kind == entry.kind; });
      if (kind == lane.kinds.end()) {
        kind = lane.kinds.emplace(lane.kinds.end());
        kind->kind = entry.kind;
      }
      double const took = seconds(instance.ran.size()) * each;
      ++kind->count;
      kind->seconds += took;
      kind->flops += entry.flops * each;
      kind->bytes += entry.bytes * each;
      lane.busy += took;
      if (!entry.collective) continue;
      profile.collectives += took;
      profile.hidden += seconds(overlap(instance.ran, computing)) * each;
    }
  }
  for (LaneTimes& lane : lanes) {
    for (KindTimes& kind : lane.kinds) kind.count /= static_cast<std::int64_t>(times.steps.size());
    if (!lane.kinds.empty()) profile.lanes.push_back(std::move(lane));
  }
  return profile;
}

std::optional<double> Profile::bytes_per_second(Lane lane) const {
  KindTimes all;
  for (LaneTimes const& of : lanes)
    for (KindTimes const& kind : of.kinds)
      if (of.lane == lane && kind.bytes > 0.0) {
        all.seconds += kind.seconds;
        all.bytes += kind.bytes;
      }
  return all.bytes_per_second();
}

std::string profile_text(Profile const& profile, std::size_t ranks) {
  Table table({{"entry", false, 1, 28},
               {"count", true, 1, 6},
               {"ms", true, 1, 10},
               {"share", true, 1, 8},
               {"GFLOP/s", true, 1, 10},
               {"GB/s", true, 1, 9}});
  for (LaneTimes const& lane : profile.lanes) {
    double const together = lane.busy + lane.idle;
    double const percent = profile.step > 0 ? (together / profile.step - 1.0) * 100.0 : 0.0;
    table.heading(std::string(name_of(lane.lane)) + ": busy " + milliseconds(lane.busy) + " + idle " +
                  milliseconds(lane.idle) + " = " + milliseconds(together) + ", " +
                  fixed(std::fabs(percent), 2) + "% " + (percent > 0 ? "more" : "less") + " than the step");
    for (KindTimes const& kind : lane.kinds)
      table.row({"  " + kind.kind, std::to_string(kind.count), fixed(kind.seconds * 1e3, 3),
                 profile.step > 0 ? fixed(kind.seconds / profile.step * 100.0, 1) + "%" : "-",
                 rate(kind.flops_per_second()), rate(kind.bytes_per_second())});
  }
  std::string text = "profile of rank " + std::to_string(profile.rank) +
                     (ranks > 1 ? " of " + std::to_string(ranks) : std::string()) + ", " +
                     milliseconds(profile.step) + " a step\n" + table.text({});
  if (profile.collectives > 0)
    text += "collectives: " + milliseconds(profile.collectives) + ", " + milliseconds(profile.hidden) +
            " hidden behind compute, " + milliseconds(profile.exposed()) + " exposed\n";
  return text;
}

Json profile_json(std::vector<RankTimes> const& ranks) {
  Json all = Json::array();
  Json steps = Json::array();
  for (RankTimes const& times : ranks) {
    Profile const profile = profile_of(times);
    steps = profile.steps;
    Json lanes = Json::array();
    for (LaneTimes const& lane : profile.lanes) lanes.push_back(lane_json(lane, profile.step));
    all.push_back({{"rank", profile.rank},
                   {"step_ms", profile.step * 1e3},
                   {"lanes", std::move(lanes)},
                   {"collectives",
                    {{"ms", profile.collectives * 1e3},
                     {"hidden_ms", profile.hidden * 1e3},
                     {"exposed_ms", profile.exposed() * 1e3}}}});
  }
  return {{"steps", std::move(steps)}, {"ranks", std::move(all)}};
}

std::string steps_text(RankTimes const& times) {
  if (times.steps.empty()) return "no step";
  std::string const first = std::to_string(times.steps.front().number);
  if (times.steps.size() == 1) return "step " + first;
  return "steps " + first + " to " + std::to_string(times.steps.back().number);
}

namespace {

/// One execution of a collective on one rank.
struct Arrival {
  int rank = 0;
  Lane lane = Lane::compute;
  TimeSpan ran;
};

/// Calls body(last, other) for each collective of the timed steps and for each rank `other` that waited in
/// this collective: `last` is the arrival of the rank that was the last to reach the collective. All ranks
/// run the same schedule, so a collective has the same position in the step of each rank.
template <class Body>
void each_wait(std::vector<RankTimes> const& ranks, Body const& body) {
  for (RankTimes const& times : ranks)
    for (std::size_t number = 0; number < times.steps.size(); ++number)
      for (std::size_t index = 0; index < times.steps[number].instances.size(); ++index) {
        int const entry = times.steps[number].instances[index].entry;
        comm::ProcessGroup const& group = times.entries[static_cast<std::size_t>(entry)].group;
        if (group.count < 2 || group.first != times.rank) continue;
        std::vector<Arrival> arrivals;
        for (RankTimes const& other : ranks)
          if (group.contains(other.rank) && number < other.steps.size() &&
              index < other.steps[number].instances.size())
            arrivals.push_back({other.rank, other.entries[static_cast<std::size_t>(entry)].lane,
                                other.steps[number].instances[index].ran});
        auto const last = std::max_element(
            arrivals.begin(), arrivals.end(),
            [](Arrival const& one, Arrival const& other) { return one.ran.begin < other.ran.begin; });
        for (Arrival const& arrival : arrivals)
          if (arrival.rank != last->rank) body(*last, arrival);
      }
}

}  // namespace

void write_trace(std::filesystem::path const& path, std::vector<RankTimes> const& ranks) {
  AtomicFile file(path);
  std::int64_t origin = 0;
  bool any = false;
  for (RankTimes const& times : ranks)
    for (TimedStep const& step : times.steps) {
      origin = any ? std::min(origin, step.whole.begin) : step.whole.begin;
      any = true;
    }
  bool first = true;
  auto const put = [&](Json const& event) {
    file.write((first ? "\n" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace));
    first = false;
  };
  auto const microseconds = [](std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; };
  // Viewers of traces treat process 0 and thread 0 specially, so the numbers start at 1.
  constexpr int steps_thread = 1, first_lane = 2, phases_thread = first_lane + static_cast<int>(lane_count);
  auto const name = [&](char const* what, int process, int thread, std::string const& as, int order) {
    std::string const kind(what);
    put({{"ph", "M"}, {"name", kind + "_name"}, {"pid", process}, {"tid", thread}, {"args", {{"name", as}}}});
    put({{"ph", "M"},
         {"name", kind + "_sort_index"},
         {"pid", process},
         {"tid", thread},
         {"args", {{"sort_index", order}}}});
  };
  auto const slice = [&](std::string const& title, std::string_view category, int process, int thread,
                         TimeSpan const& ran, Json arguments) {
    put({{"ph", "X"},
         {"name", title},
         {"cat", category},
         {"pid", process},
         {"tid", thread},
         {"ts", microseconds(ran.begin - origin)},
         {"dur", microseconds(ran.size())},
         {"args", std::move(arguments)}});
  };
  Json about = {{"format", marks_format}, {"version", marks_version}, {"clock", marks_clock},
                {"start_ns", origin},     {"boot", boot_id()},        {"ranks", ranks.size()}};
  std::int64_t clock_error = 0;
  for (RankTimes const& times : ranks) clock_error = std::max(clock_error, times.clock_error);
  if (clock_error > 0) about["clock_error_ns"] = clock_error;
  file.write("{\"displayTimeUnit\":\"ms\",\"otherData\":" +
             about.dump(-1, ' ', false, Json::error_handler_t::replace) + ",\"traceEvents\":[");
  for (RankTimes const& times : ranks) {
    int const process = times.rank + 1;
    name("process", process, steps_thread, "rank " + std::to_string(times.rank), times.rank);
    name("thread", process, steps_thread, "steps", 0);
    name("thread", process, phases_thread, "phases", 1);
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      if (std::any_of(times.entries.begin(), times.entries.end(),
                      [&](TimedEntry const& entry) { return entry.lane == static_cast<Lane>(lane); }))
        name("thread", process, first_lane + static_cast<int>(lane),
             std::string(name_of(static_cast<Lane>(lane))), 2 + static_cast<int>(lane));
    for (TimedStep const& step : times.steps) {
      slice("step " + std::to_string(step.number), "step", process, steps_thread, step.whole,
            {{"step", step.number}});
      for (TimedPhase const& phase : phases_of(times, step))
        slice(std::string(phase_names[phase.phase]), "phase", process, phases_thread, phase.ran,
              {{"step", step.number}});
      for (TimedInstance const& instance : step.instances) {
        TimedEntry const& entry = times.entries[static_cast<std::size_t>(instance.entry)];
        Json about = {{"step", step.number}, {"entry", instance.entry}};
        if (entry.unit != "-") about["unit"] = entry.unit;
        if (instance.micro_batch >= 0) about["micro_batch"] = instance.micro_batch;
        if (entry.bytes > 0) about["bytes"] = std::llround(entry.bytes);
        if (entry.flops > 0) about["flops"] = std::llround(entry.flops);
        slice(stored(entry.name), stored(entry.kind), process, first_lane + static_cast<int>(entry.lane),
              instance.ran, std::move(about));
      }
    }
  }
  int arrows = 0;
  each_wait(ranks, [&](Arrival const& last, Arrival const& other) {
    auto const end_of_arrow = [&](char const* phase, Arrival const& at) {
      std::int64_t const time = std::clamp(last.ran.begin, at.ran.begin, at.ran.end);
      Json event = {{"ph", phase},
                    {"id", arrows},
                    {"name", "last to arrive"},
                    {"cat", "collective"},
                    {"pid", at.rank + 1},
                    {"tid", first_lane + static_cast<int>(at.lane)},
                    {"ts", microseconds(time - origin)}};
      if (*phase == 'f') event["bp"] = "e";  // ends in the slice that contains this time
      put(event);
    };
    ++arrows;
    end_of_arrow("s", last);
    end_of_arrow("f", other);
  });
  file.write("\n]}\n");
  file.commit();
}

}  // namespace cli
}  // namespace programs
