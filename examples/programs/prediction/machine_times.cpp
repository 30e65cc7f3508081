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
#include "prediction/json_fields.hpp"
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

TimedCost timed_from(Json const& json) {
  TimedCost timed;
  timed.precision = json_fields::text_in(json, "precision");
  timed.cost.what = json_fields::text_in(json, "what");
  timed.cost.is_move = json_fields::value_in(json, "move", &Json::is_boolean, "true or false").get<bool>();
  timed.ranks = json_fields::ranks_in(json, "ranks", 1);
  timed.cost.flops = json_fields::number_in(json, "flops", 0, 1e21);
  timed.cost.attention_flops = json_fields::number_in(json, "attention_flops", 0, 1e21);
  timed.cost.bytes = json_fields::number_in(json, "bytes", 0, 1e18);
  timed.cost.operations = json_fields::number_in(json, "operations", 0, 1e9);
  timed.seconds = json_fields::number_in(json, "seconds", 1e-9, 1e6);
  if (parts_of(timed.cost) == Parts{}) throw Error(ErrorKind::data, "it has no work");
  return timed;
}

PeakRates rates_from(Json const& json) {
  return {json_fields::number_in(json, "memory_bytes_per_s", 1, 1e18),
          json_fields::number_in(json, "flops_16_bit", 1, 1e21),
          json_fields::number_in(json, "flops_fp32", 1, 1e21)};
}

Json json_of(PeakRates const& rates) {
  return {{"memory_bytes_per_s", rates.memory}, {"flops_16_bit", rates.half}, {"flops_fp32", rates.single}};
}

/// Returns the values of the keys `scaled_from` and `rates`. Throws Error(data) if they are damaged.
Scaling scaling_from(Json const& document) {
  Json const& from = json_fields::value_in(document, "scaled_from", &Json::is_object, "an object");
  std::string const name = json_fields::text_in(from, "machine");
  // The name of a machine with scaled times is refused too, so a file cannot refer to itself.
  std::vector<std::string> const measured = MachineTimes::measured_names();
  if (std::find(measured.begin(), measured.end(), name) == measured.end())
    throw Error(ErrorKind::data, "'machine' is not a machine with measured times, which are " +
                                     joined(measured) + " in this program");
  return {std::make_shared<MachineTimes const>(*MachineTimes::known(name)), name, rates_from(from),
          rates_from(json_fields::value_in(document, "rates", &Json::is_object, "an object"))};
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
  // Files of earlier versions of this program have none of the following keys.
  try {
    if (document.contains("memory_bytes"))
      times.set_memory(static_cast<std::int64_t>(json_fields::number_in(document, "memory_bytes", 1, 1e18)));
    if (document.contains("max_ranks")) times.set_max_ranks(json_fields::ranks_in(document, "max_ranks", 1));
    if (document.contains("host")) times.set_host(json_fields::text_in(document, "host"));
    if (document.contains("error_pct"))
      times.set_error(json_fields::number_in(document, "error_pct", 0, 1000));
  } catch (Error const& error) {
    refuse("cannot be read: " + std::string(error.what()));
  }
  try {
    if (document.contains("scaled_from")) times.set_scaling(scaling_from(document));
  } catch (Error const& error) {
    refuse("scaled_from or rates cannot be read (" + std::string(error.what()) + ")");
  }
  try {
    if (document.contains("collectives")) times.set_collectives(collectives_from(document["collectives"]));
  } catch (Error const& error) {
    refuse("collectives cannot be read (" + std::string(error.what()) + ")");
  }
  try {
    if (document.contains("network")) times.set_network(network_from(document["network"]));
  } catch (Error const& error) {
    refuse("network cannot be read (" + std::string(error.what()) + ")");
  }
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

std::vector<std::string> MachineTimes::measured_names() {
  std::vector<std::string> names;
  for (MachineFile const& file : machine_files())
    if (std::string_view(file.text).find("\"scaled_from\":") == std::string_view::npos)
      names.emplace_back(file.name);
  return names;
}

double PeakRates::scaled(double seconds, Cost const& cost, std::string_view precision,
                         PeakRates const& other) const {
  auto const least = [&](PeakRates const& rates) {
    return std::max(cost.bytes / rates.memory,
                    (cost.flops + cost.attention_flops) / (precision == "fp32" ? rates.single : rates.half));
  };
  constexpr double work_share = 4;
  double const here = least(*this);
  return here <= 0 ? seconds : seconds + std::min(work_share * here, seconds) * (least(other) / here - 1);
}

void MachineTimes::write(std::filesystem::path const& path, Json const& environment) const {
  Json document = {{"format", times_format}, {"version", times_version}, {"device", device_},
                   {"machine", machine_},    {"source", source_},        {"environment", environment}};
  if (memory_bytes_ > 0) document["memory_bytes"] = memory_bytes_;
  if (max_ranks_ > 0) document["max_ranks"] = max_ranks_;
  if (!host_.empty()) document["host"] = host_;
  if (error_pct_ != default_error_pct) document["error_pct"] = error_pct_;
  if (network_) document["network"] = json_of(*network_);
  if (scaling_) {
    document["scaled_from"] = json_of(scaling_->from);
    document["scaled_from"]["machine"] = scaling_->name;
    document["rates"] = json_of(scaling_->to);
  }
  auto const json_text = [](Json const& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = json_text(document, 1);
  text.resize(text.rfind('\n'));  // removes the closing brace; one timing per line follows
  if (!collectives_.empty()) text += ",\n \"collectives\": " + text_of(collectives_);
  text += ",\n \"timings\": [";
  char const* between = "\n";
  for (TimedCost const& timed : timings_) {
    text += between + json_text(json_of(timed), -1);
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
  if (guessed && scaling_ && !cost.is_move && !cost.what.starts_with("host_")) {
    std::optional<Estimate> estimate = scaling_->measured->seconds(cost, precision, ranks);
    if (estimate) {
      estimate->seconds = scaling_->from.scaled(estimate->seconds, cost, precision, scaling_->to);
      estimate->guessed = true;
    }
    return estimate;
  }
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

double MachineTimes::largest_rate(std::string_view what) const {
  TimedCost const* largest = nullptr;
  for (TimedCost const& timed : timings_)
    if (timed.cost.what == what && (!largest || timed.cost.bytes > largest->cost.bytes)) largest = &timed;
  return largest ? largest->cost.bytes / largest->seconds : 0.0;
}

std::optional<PredictedStep> MachineTimes::step(StepPlan const& plan, std::vector<Cost> const& entry_costs,
                                                std::string* unknown, int hosts) const {
  Schedule const& schedule = plan.train.schedule;
  std::string_view const precision = plan.recipe.names.precision;
  int const world = plan.shape.world;
  bool const shares = info_of(plan.recipe.device).on_cores;
  std::vector<Cost> const costs = joined(schedule, entry_costs);
  auto const any = [this](auto const& is) { return std::any_of(timings_.begin(), timings_.end(), is); };
  // In a training with several ranks, entries slow each other down while they are timed. So contention is
  // added only to times that were not measured in such a training.
  bool const timed_alone = !any([](TimedCost const& timed) { return timed.ranks > 1; });
  PredictedStep step;
  std::vector<double> took(schedule.entries.size());
  std::vector<bool> guessed(took.size());
  Contention contention;
  bool const contended = !shares && world > 1;
  if (contended) contention = {std::vector<bool>(took.size()), std::vector<bool>(took.size())};
  double computed = 0, operations = 0;
  for (std::size_t index = 0; index < took.size(); ++index) {
    Cost const& cost = costs[index];
    Entry const& entry = schedule.entries[index];
    // On the CPU, ranks share the cores. So times of trainings with other numbers of ranks are better than
    // times of collectives with nothing else on the cores.
    auto const timed_in_training = [&](TimedCost const& timed) {
      return (shares || timed.ranks == world) && timed.cost.what == cost.what;
    };
    std::optional<Estimate> estimate;
    bool const collective = entry.move > Move::copy;
    comm::ProcessGroup const group = collective ? plan.ranks_of(entry) : comm::ProcessGroup{};
    int on_host = 0;  // the ranks of the collective on the host of its first rank
    for (int index = 0; index < group.count; ++index)
      on_host += group.rank(index) * hosts / world == group.first * hosts / world ? 1 : 0;
    bool const over_network = on_host < group.count;
    if (collective && (over_network || (!collectives_.empty() && !any(timed_in_training)))) {
      int const ranks = group.count;
      double const bytes = whole_bytes(entry.move, ranks, cost.bytes);
      estimate = collectives_.empty() ? Estimate{} : collectives_.seconds(entry.move, ranks, bytes, shares);
      if (over_network)
        estimate->seconds = network_->seconds(entry.move, ranks, on_host, bytes, estimate->seconds);
      step.from_link_data = step.from_link_data || collectives_.scaled || over_network;
      if (contended) contention.collectives[index] = true;
    } else {
      estimate = seconds(cost, precision, world);
      if (contended) contention.slowed[index] = !cost.is_move && entry.lane != Lane::host;
    }
    if (!estimate) {
      if (unknown) *unknown = cost.what;
      return std::nullopt;
    }
    took[index] = estimate->seconds;
    guessed[index] = estimate->guessed;
    if (!contended || !contention.slowed[index]) continue;
    computed += estimate->seconds;
    operations += cost.operations;
  }
  if (contended && timed_alone) {
    // In trainings of 124M parameters on two H100, collectives started 0.8 to 2.8 times the mean time of an
    // operation too late.
    constexpr double late = 1.5;
    contention.slowdown = collectives_.slowdown;
    contention.collective_slowdown = collectives_.collective_slowdown;
    contention.wait = operations > 0 ? late * computed / operations : 0;
  }
  SimulatedStep const whole = simulated(plan, took, contention, guessed);
  step.seconds = whole.seconds;
  step.guessed = whole.with_chosen;
  return step;
}

}  // namespace cli
}  // namespace programs
