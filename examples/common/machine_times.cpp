// SPDX-License-Identifier: Apache-2.0
#include "common/machine_times.hpp"

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

#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char times_format[] = "tessera machine times";
constexpr int times_version = 1;

/// What an entry's time is a sum over.
using Parts = std::array<double, 4>;

Parts parts_of(Cost const& cost) { return {cost.flops, cost.attention_flops, cost.bytes, cost.operations}; }

/// The square of how far apart two costs are: 1 where one of their parts differs by a factor of e.
double distance(Parts const& one, Parts const& other) {
  double sum = 0;
  for (std::size_t part = 0; part < one.size(); ++part) {
    if (one[part] <= 0 && other[part] <= 0) continue;
    double const off = std::log(std::max(one[part], 1.0)) - std::log(std::max(other[part], 1.0));
    sum += off * off;
  }
  return sum;
}

/// Seconds per part that fit the timings best, none below 0: least squares of relative errors with weights,
/// by coordinate descent.
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

/// The seconds of a cost by timings of its kind: their fit, corrected by what it is off at the nearest.
double fitted(std::vector<TimedCost const*> const& timings, Cost const& cost) {
  constexpr double near_fit = 0.1, near_correction = 0.003;  // squared distances that count as none
  Parts const parts = parts_of(cost);
  std::vector<double> weights;
  for (TimedCost const* timed : timings)
    weights.push_back(1.0 / (near_fit + distance(parts, parts_of(timed->cost))));
  Parts const rates = rates_of(timings, weights);
  double sum = 0, whole = 0;
  for (TimedCost const* timed : timings) {
    double const off = near_correction + distance(parts, parts_of(timed->cost));
    double const fit = at_rates(rates, timed->cost);
    if (fit <= 0) continue;
    sum += std::log(timed->seconds / fit) / (off * off);
    whole += 1.0 / (off * off);
  }
  return at_rates(rates, cost) * (whole > 0 ? std::exp(sum / whole) : 1.0);
}

Json json_of(TimedCost const& timed) {
  return {{"precision", timed.precision}, {"ranks", timed.ranks},
          {"what", timed.cost.what},      {"move", timed.cost.is_move},
          {"flops", timed.cost.flops},    {"attention_flops", timed.cost.attention_flops},
          {"bytes", timed.cost.bytes},    {"operations", timed.cost.operations},
          {"seconds", timed.seconds}};
}

TimedCost timed_from(Json const& json) {
  TimedCost timed;
  timed.precision = json.at("precision").get<std::string>();
  timed.ranks = json.at("ranks").get<int>();
  timed.cost.what = json.at("what").get<std::string>();
  timed.cost.is_move = json.at("move").get<bool>();
  for (auto const& [key, value] :
       {std::pair("flops", &timed.cost.flops), std::pair("attention_flops", &timed.cost.attention_flops),
        std::pair("bytes", &timed.cost.bytes), std::pair("operations", &timed.cost.operations),
        std::pair("seconds", &timed.seconds)}) {
    *value = json.at(key).get<double>();
    if (!std::isfinite(*value) || *value < 0) throw Error(ErrorKind::data, std::string(key) + " is below 0");
  }
  if (timed.seconds <= 0) throw Error(ErrorKind::data, "seconds are 0");
  if (timed.ranks < 1) throw Error(ErrorKind::data, "ranks are below 1");
  return timed;
}

}  // namespace

MachineTimes MachineTimes::read(std::filesystem::path const& path) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::data,
                v0::detail::path_text(path) + ": " + what + "; make the file with info --measure FILE");
  };
  std::error_code code;
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path, code)) refuse("cannot be read");
  Json const document = Json::parse(file, nullptr, false);
  if (!document.is_object() || document.value("format", Json()) != times_format)
    refuse("is no file of machine times");
  if (document.value("version", Json()) != times_version)
    refuse("has version " + document.value("version", Json()).dump() + ", and this program reads " +
           std::to_string(times_version));
  MachineTimes times;
  std::size_t at = 0;
  try {
    times.device_ = document.at("device").get<std::string>();
    times.machine_ = document.at("machine").get<std::string>();
    for (Json const& timing : document.at("timings")) {
      times.add(timed_from(timing));
      ++at;
    }
  } catch (std::exception const& error) {
    refuse("timing " + std::to_string(at) + " cannot be read (" + error.what() + ")");
  }
  if (times.timings_.empty()) refuse("has no timing");
  return times;
}

void MachineTimes::write(std::filesystem::path const& path, Json const& environment) const {
  Json document = {{"format", times_format},
                   {"version", times_version},
                   {"device", device_},
                   {"machine", machine_},
                   {"environment", environment}};
  Json timings = Json::array();
  for (TimedCost const& timed : timings_) timings.push_back(json_of(timed));
  document["timings"] = std::move(timings);
  write_file(path, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
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
  if (above == by_ranks.end()) {
    auto const& [most, timings] = *by_ranks.rbegin();
    bool const shares = device_ == Cpu::name;  // more ranks than were measured share the same cores
    return Estimate{fitted(timings, cost) * (shares ? static_cast<double>(ranks) / most : 1.0), guessed};
  }
  double const there = fitted(above->second, cost);
  if (above->first == ranks || above == by_ranks.begin()) return Estimate{there, guessed};
  auto const below = std::prev(above);
  double const share = std::log(static_cast<double>(ranks) / below->first) /
                       std::log(static_cast<double>(above->first) / below->first);
  return Estimate{std::exp(std::log(fitted(below->second, cost)) * (1.0 - share) + std::log(there) * share),
                  guessed};
}

std::optional<PredictedStep> MachineTimes::step(StepPlan const& plan, std::vector<Cost> const& costs,
                                                std::string* unknown) const {
  Schedule const& schedule = plan.train.schedule;
  std::string_view const precision = plan.recipe.names.precision;
  PredictedStep step;
  std::vector<double> took(schedule.entries.size());
  for (std::size_t index = 0; index < took.size();) {
    // Moves of a bucket are one call.
    auto const size = static_cast<std::size_t>(bucket_size(schedule.entries, static_cast<int>(index)));
    Cost cost = costs[index];
    for (std::size_t other = index + 1; other < index + size; ++other) cost.bytes += costs[other].bytes;
    auto const estimate = seconds(cost, precision, plan.shape.world);
    if (!estimate) {
      if (unknown) *unknown = cost.what;
      return std::nullopt;
    }
    took[index] = estimate->seconds;
    if (estimate->guessed) step.guessed += estimate->seconds;
    index += size;
  }
  bool const one_lane = plan.recipe.device == Cpu::name;
  std::array<double, lane_count> free{};
  std::vector<double> done(took.size());
  for (std::int64_t at = 0; at < schedule.turns(); ++at) {
    Turn const turn = schedule.turn(at);
    double& lane = free[one_lane ? 0 : static_cast<std::size_t>(turn.entry.lane)];
    for (int const wait : turn.waits) lane = std::max(lane, done[static_cast<std::size_t>(wait)]);
    lane += took[static_cast<std::size_t>(turn.index)];
    done[static_cast<std::size_t>(turn.index)] = lane;
  }
  step.seconds = *std::max_element(free.begin(), free.end());
  return step;
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
