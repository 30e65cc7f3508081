// SPDX-License-Identifier: Apache-2.0
// Stores how long parts of steps took on a machine, and estimates how long other parts would take there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/plan/step_plan.hpp"

#include "prediction/step_costs.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// An entry that was timed while `ranks` ranks ran steps.
struct TimedCost {
  std::string precision;
  int ranks = 1;
  Cost cost;
  double seconds = 0;
};

/// An estimated time, derived from the nearest measured ones.
struct Estimate {
  double seconds = 0;
  bool guessed = false;  ///< no entry of its kind was measured
};

/// A predicted step of one rank.
struct PredictedStep {
  double seconds = 0;
  double guessed = 0;  ///< the part in entries of kinds that were not measured
};

/// Simulates a plan's training schedule with the given seconds per entry and returns its seconds. The entries
/// of a lane run one after the other, on the CPU all entries do, each after the entries that it waits for.
double on_paper(StepPlan const& plan, std::vector<double> const& took);
/// Scales the seconds of the entries to a step that took `seconds`, less than in the simulation. The busiest
/// lane is scaled by one factor from 0.5 to 1. The seconds stay unchanged if no such factor fits.
std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took);

/// The times of one device.
class MachineTimes {
 public:
  MachineTimes() = default;
  /// `machine`: a description for people. `source`: where the times are from; empty means measured on that
  /// machine.
  MachineTimes(std::string device, std::string machine, std::string source = {})
      : device_(std::move(device)),
        machine_(std::move(machine)),
        source_(source.empty() ? "measured on " + machine_ : std::move(source)) {}

  /// Reads a file of `info --measure`. Throws Error(data) with the fault.
  static MachineTimes read(std::filesystem::path const& path);
  /// Returns the built-in times of this name; nothing if there are none.
  static std::optional<MachineTimes> known(std::string_view name);
  /// Returns the names of the built-in times, in order.
  static std::vector<std::string> known_names();
  /// Writes the file atomically.
  void write(std::filesystem::path const& path, nlohmann::ordered_json const& environment) const;

  std::string const& device() const { return device_; }
  std::string const& machine() const { return machine_; }
  /// "measured on NVIDIA H200", or how the times were derived from others.
  std::string const& source() const { return source_; }
  std::vector<TimedCost> const& timings() const { return timings_; }
  void add(TimedCost timed) { timings_.push_back(std::move(timed)); }

  /// Estimates the seconds of an entry with this many ranks. It is the sum of its operations, bytes and FLOPs
  /// at rates fitted to the measurements of its kind, the nearest sizes weighted most. Rank counts between
  /// measured ones are interpolated. Beyond them, cores are shared. Nothing if no rate is known.
  std::optional<Estimate> seconds(Cost const& cost, std::string_view precision, int ranks) const;

  /// Simulates a plan's training schedule. The transfer of the data to the device is left out. Returns
  /// nothing if a time is unknown, with the entry's kind in `unknown`.
  std::optional<PredictedStep> step(StepPlan const& plan, std::vector<Cost> const& costs,
                                    std::string* unknown = nullptr) const;

 private:
  std::string device_, machine_, source_;
  std::vector<TimedCost> timings_;
};

}  // namespace cli
}  // namespace programs
