// SPDX-License-Identifier: Apache-2.0
// Implements machine_times.hpp: reads and writes files of measured times, and estimates the times of other
// entries.
#include "prediction/machine_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"
#include "tessera/io/file.hpp"

#include "cli/values.hpp"
#include "prediction/machine_files.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char times_format[] = "tessera machine times";
constexpr int times_version = 1;

/// The components of a cost: FLOPs, FLOPs of attention, bytes and number of operations. The estimated time of
/// an entry is a weighted sum of them.
using Parts = std::array<double, 4>;

Parts parts_of(Cost const& cost) { return {cost.flops, cost.attention_flops, cost.bytes, cost.operations}; }

/// Returns the squared distance of two costs in the logarithms of their components. It is 1 if one component
/// differs by a factor of e.
double distance(Parts const& one, Parts const& other) {
  double sum = 0;
  for (std::size_t part = 0; part < one.size(); ++part) {
    if (one[part] <= 0 && other[part] <= 0) continue;
    double const off = std::log(std::max(one[part], 1.0)) - std::log(std::max(other[part], 1.0));
    sum += off * off;
  }
  return sum;
}

/// Returns the seconds per unit of each component of a cost, fitted to the timings. Minimizes the weighted
/// squares of the relative errors by coordinate descent. No result is negative.
Parts rates_of(std::vector<TimedCost const*> const& timings, std::vector<double> const& weights) {
  std::vector<Parts> rows;
  for (std::size_t at = 0; at < timings.size(); ++at) {
    Parts row = parts_of(timings[at]->cost);
    for (double& value : row) value *= std::sqrt(weights[at]) / timings[at]->seconds;
    rows.push_back(row);
  }
  Parts squares{}, rates{};
  std::vector<double> left;
  for (double const weight : weights) left.push_back(std::sqrt(weight));
  for (Parts const& row : rows)
    for (std::size_t part = 0; part < row.size(); ++part) squares[part] += row[part] * row[part];
  constexpr int sweeps = 300;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (std::size_t part = 0; part < rates.size(); ++part) {
      if (squares[part] <= 0) continue;
      double slope = 0;
      for (std::size_t at = 0; at < rows.size(); ++at) slope += rows[at][part] * left[at];
      double const before = rates[part];
      rates[part] = std::max(0.0, before + slope / squares[part]);
      for (std::size_t at = 0; at < rows.size(); ++at) left[at] -= rows[at][part] * (rates[part] - before);
    }
  return rates;
}

double at_rates(Parts const& rates, Cost const& cost) {
  Parts const parts = parts_of(cost);
  double sum = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) sum += rates[part] * parts[part];
  return sum;
}

/// Returns the index of the lane in which the simulation runs an entry. The lanes `compute` and `gradients`
/// share the device, so the simulation treats them as one lane. On the CPU it treats all lanes as one.
std::size_t track_of(StepPlan const& plan, Entry const& entry) {
  bool const with_all = info_of(plan.recipe.device).on_cores || entry.lane == Lane::gradients;
  return with_all ? 0 : static_cast<std::size_t>(entry.lane);
}

/// Returns the estimated seconds of a cost. Fits the seconds per component to the timings, which are of the
/// same kind, and applies the fit to the cost. Then corrects the result by the ratio of measured and fitted
/// time at the nearest timings.
double fitted(std::vector<TimedCost const*> const& timings, Cost const& cost) {
  // These constants are added to squared distances. So the weights of very near timings stay finite.
  constexpr double near_fit = 0.1, near_correction = 0.003;
  Parts const parts = parts_of(cost);
  std::vector<double> weights;
  for (TimedCost const* timed : timings)
    weights.push_back(1.0 / (near_fit + distance(parts, parts_of(timed->cost))));
  Parts const rates = rates_of(timings, weights);
  double sum = 0, total = 0;
  for (TimedCost const* timed : timings) {
    double const off = near_correction + distance(parts, parts_of(timed->cost));
    double const fit = at_rates(rates, timed->cost);
    if (fit <= 0) continue;
    sum += std::log(timed->seconds / fit) / (off * off);
    total += 1.0 / (off * off);
  }
  return at_rates(rates, cost) * (total > 0 ? std::exp(sum / total) : 1.0);
}

Json json_of(TimedCost const& timed) {
  return {{"precision", timed.precision}, {"ranks", timed.ranks},
          {"what", timed.cost.what},      {"move", timed.cost.is_move},
          {"flops", timed.cost.flops},    {"attention_flops", timed.cost.attention_flops},
          {"bytes", timed.cost.bytes},    {"operations", timed.cost.operations},
          {"seconds", timed.seconds}};
}

/// Returns the value of the key `key`. Throws Error(data) if the key is missing or the value has another
/// type. `is` is the test of the type, `type` its name in the message.
Json const& value_in(Json const& json, char const* key, bool (Json::*is)() const noexcept, char const* type) {
  if (!json.is_object()) throw Error(ErrorKind::data, "it is not an object");
  auto const found = json.find(key);
  if (found == json.end()) throw Error(ErrorKind::data, "it has no " + in_quotes(key));
  if (!((*found).*is)()) throw Error(ErrorKind::data, in_quotes(key) + " is not " + type);
  return *found;
}

/// Returns the number at the key `key`. Throws Error(data) if it is not between `min` and `max`.
double number_in(Json const& json, char const* key, double min, double max) {
  double const number = value_in(json, key, &Json::is_number, "a number").get<double>();
  if (!(number >= min && number <= max))
    throw Error(ErrorKind::data,
                in_quotes(key) + " is not a number from " + shortest(min) + " to " + shortest(max));
  return number;
}

TimedCost timed_from(Json const& json) {
  TimedCost timed;
  timed.precision = value_in(json, "precision", &Json::is_string, "a text").get<std::string>();
  timed.cost.what = value_in(json, "what", &Json::is_string, "a text").get<std::string>();
  timed.cost.is_move = value_in(json, "move", &Json::is_boolean, "true or false").get<bool>();
  double const ranks = number_in(json, "ranks", 1, 65536);
  timed.ranks = static_cast<int>(ranks);
  if (timed.ranks != ranks) throw Error(ErrorKind::data, "ranks is not a whole number");
  timed.cost.flops = number_in(json, "flops", 0, 1e21);
  timed.cost.attention_flops = number_in(json, "attention_flops", 0, 1e21);
  timed.cost.bytes = number_in(json, "bytes", 0, 1e18);
  timed.cost.operations = number_in(json, "operations", 0, 1e9);
  timed.seconds = number_in(json, "seconds", 1e-9, 1e6);
  if (parts_of(timed.cost) == Parts{}) throw Error(ErrorKind::data, "it has no work");
  return timed;
}

[[noreturn]] void refuse_times(std::string const& name, std::string const& what) {
  throw Error(ErrorKind::data, name + ": " + what + "; make the file with info --measure FILE");
}

/// Returns the times in the text of a file. `name` is the name of the file in messages.
template <class Input>
MachineTimes times_from(Input&& input, std::string const& name) {
  auto const refuse = [&](std::string const& what) { refuse_times(name, what); };
  constexpr int max_depth = 64;
  bool deep = false;
  Json const document = Json::parse(
      std::forward<Input>(input),
      [&](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > max_depth;
        return depth <= max_depth;
      },
      false);
  if (deep || !document.is_object() || document.value("format", Json()) != times_format)
    refuse("is not a file of machine times");
  if (Json const version = document.value("version", Json()); version != times_version)
    refuse("has version " + (version.is_number_integer() ? version.dump() : std::string("?")) +
           ", but this program reads " + std::to_string(times_version));
  constexpr std::size_t max_timings = 20000;
  Json const timings = document.value("timings", Json());
  Json const device = document.value("device", Json()), machine = document.value("machine", Json());
  Json const source = document.value("source", Json(""));
  if (!device.is_string() || !machine.is_string() || !timings.is_array() || timings.size() > max_timings)
    refuse("has no device, no machine, or no list of up to " + std::to_string(max_timings) + " timings");
  std::string const device_name = device.get<std::string>();
  auto const is_named = [&](DeviceInfo const& traits) { return traits.name == device_name; };
  if (std::none_of(device_table.begin(), device_table.end(), is_named))
    refuse("has times of device " + in_quotes(device_name) + ", but the devices are cpu and cuda");
  if (!source.is_string()) refuse("has a source that is not text");
  MachineTimes times(device_name, machine.get<std::string>(), source.get<std::string>());
  std::size_t at = 0;
  try {
    for (; at < timings.size(); ++at) times.add(timed_from(timings[at]));
  } catch (Error const& error) {
    refuse("timing " + std::to_string(at + 1) + " cannot be read (" + files::printable(error.what()) + ")");
  }
  if (times.timings().empty()) refuse("has no timing");
  return times;
}

}  // namespace

MachineTimes MachineTimes::read(std::filesystem::path const& path) {
  std::string const name = files::path_text(path);
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) refuse_times(name, "is not a readable file");
  FileBytes const bytes = FileBytes::open(path);
  return times_from(std::string_view(reinterpret_cast<char const*>(bytes.data()), bytes.size()), name);
}

std::optional<MachineTimes> MachineTimes::known(std::string_view name) {
  for (MachineFile const& file : machine_files())
    if (name == file.name) return times_from(std::string_view(file.text), std::string(name));
  return std::nullopt;
}

std::vector<std::string> MachineTimes::known_names() {
  std::vector<std::string> names;
  for (MachineFile const& file : machine_files()) names.emplace_back(file.name);
  return names;
}

void MachineTimes::write(std::filesystem::path const& path, Json const& environment) const {
  Json const document = {{"format", times_format}, {"version", times_version}, {"device", device_},
                         {"machine", machine_},    {"source", source_},        {"environment", environment}};
  auto const text_of = [](Json const& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = text_of(document, 1);
  text.resize(text.rfind('\n'));  // removes the closing brace; one timing per line follows
  text += ",\n \"timings\": [";
  char const* between = "\n";
  for (TimedCost const& timed : timings_) {
    text += between + text_of(json_of(timed), -1);
    between = ",\n";
  }
  write_file(path, text + "\n]}\n");
}

std::optional<Estimate> MachineTimes::seconds(Cost const& cost, std::string_view precision, int ranks) const {
  if (parts_of(cost) == Parts{}) return Estimate{};
  auto const chosen = [&](bool same) {
    std::map<int, std::vector<TimedCost const*>> by_ranks;
    for (TimedCost const& timed : timings_) {
      bool const fits = same ? timed.cost.what == cost.what
                             : timed.cost.is_move == cost.is_move && !timed.cost.what.starts_with("copy");
      if (fits && (cost.is_move || timed.precision == precision)) by_ranks[timed.ranks].push_back(&timed);
    }
    return by_ranks;
  };
  auto by_ranks = chosen(true);
  bool const guessed = by_ranks.empty();
  if (guessed && !cost.what.starts_with("copy")) by_ranks = chosen(false);
  if (by_ranks.empty()) return std::nullopt;
  auto const above = by_ranks.lower_bound(ranks);
  if (above == by_ranks.end() || (above == by_ranks.begin() && above->first != ranks)) {
    // The number of ranks is outside the measured range. On the CPU, ranks share the cores, so times grow
    // with the number of ranks. On other devices, the time of a computation does not depend on the number of
    // ranks, but the time of a move does. So the estimate of a move is marked as guessed.
    auto const& [measured, timings] = above == by_ranks.end() ? *by_ranks.rbegin() : *above;
    bool const shares = info_of(device_named(device_)).on_cores;
    return Estimate{fitted(timings, cost) * (shares ? static_cast<double>(ranks) / measured : 1.0),
                    guessed || shares || cost.is_move};
  }
  double const there = fitted(above->second, cost);
  if (above->first == ranks) return Estimate{there, guessed};
  auto const below = std::prev(above);
  double const share = std::log(static_cast<double>(ranks) / below->first) /
                       std::log(static_cast<double>(above->first) / below->first);
  return Estimate{std::exp(std::log(fitted(below->second, cost)) * (1.0 - share) + std::log(there) * share),
                  guessed};
}

double on_paper(StepPlan const& plan, std::vector<double> const& took) {
  Schedule const& schedule = plan.train.schedule;
  std::array<double, lane_count> free{};
  std::vector<double> done(took.size());
  for (std::int64_t at = 0; at < schedule.instances(); ++at) {
    Instance const instance = schedule.instance(at);
    double& lane = free[track_of(plan, instance.entry)];
    for (int const wait : instance.waits) lane = std::max(lane, done[static_cast<std::size_t>(wait)]);
    lane += took[static_cast<std::size_t>(instance.index)];
    done[static_cast<std::size_t>(instance.index)] = lane;
  }
  return *std::max_element(free.begin(), free.end());
}

std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took) {
  Schedule const& schedule = plan.train.schedule;
  std::array<double, lane_count> busy{};
  for (std::int64_t at = 0; at < schedule.instances(); ++at) {
    Instance const instance = schedule.instance(at);
    busy[track_of(plan, instance.entry)] += took[static_cast<std::size_t>(instance.index)];
  }
  auto const busiest = static_cast<std::size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  auto const scaled = [&](double factor) {
    std::vector<double> all = took;
    for (std::size_t at = 0; at < all.size(); ++at)
      if (track_of(plan, schedule.entries[at]) == busiest) all[at] *= factor;
    return all;
  };
  double low = 0.5, high = 1.0;
  if (on_paper(plan, scaled(low)) > seconds || on_paper(plan, scaled(high)) < seconds) return took;
  constexpr int halvings = 40;
  for (int halving = 0; halving < halvings; ++halving) {
    double const factor = 0.5 * (low + high);
    (on_paper(plan, scaled(factor)) < seconds ? low : high) = factor;
  }
  return scaled(high);
}

std::optional<PredictedStep> MachineTimes::step(StepPlan const& plan, std::vector<Cost> const& entry_costs,
                                                std::string* unknown) const {
  Schedule const& schedule = plan.train.schedule;
  std::string_view const precision = plan.recipe.names.precision;
  std::vector<Cost> const costs = joined(schedule, entry_costs);
  PredictedStep step;
  std::vector<double> took(schedule.entries.size());
  for (std::size_t index = 0; index < took.size(); ++index) {
    auto const estimate = seconds(costs[index], precision, plan.shape.world);
    if (!estimate) {
      if (unknown) *unknown = costs[index].what;
      return std::nullopt;
    }
    took[index] = estimate->seconds;
    if (estimate->guessed) step.guessed += estimate->seconds;
  }
  step.seconds = on_paper(plan, took);
  return step;
}

}  // namespace cli
}  // namespace programs
