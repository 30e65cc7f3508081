// SPDX-License-Identifier: Apache-2.0
// How long parts of steps took on a machine, in a file, and how long others would take there.
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

/// A time that was not measured for what it is of: from the nearest measured ones.
struct Estimate {
  double seconds = 0;
  bool guessed = false;  ///< none of its kind was measured
};

/// A predicted step of one rank.
struct PredictedStep {
  double seconds = 0;
  double guessed = 0;  ///< of that, in entries of kinds that were not measured
};

/// The seconds of a plan's training schedule on paper, of its entries' seconds: those of a lane one after the
/// other, on the CPU all of them, each after those that it waits for.
double on_paper(StepPlan const& plan, std::vector<double> const& took);
/// The same entries' seconds in a step that took `seconds`, less than on paper: those of the busiest lane
/// times one factor from 0.5 to 1. Where no such factor does, they stay as they are.
std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took);

/// The times of one device.
class MachineTimes {
 public:
  MachineTimes() = default;
  /// `machine`: what it is, for people; `source`: where its times are from, else measured there.
  MachineTimes(std::string device, std::string machine, std::string source = {})
      : device_(std::move(device)),
        machine_(std::move(machine)),
        source_(source.empty() ? "measured on " + machine_ : std::move(source)) {}

  /// Reads a file of `info --measure`. Throws Error(data) with what is wrong in it.
  static MachineTimes read(std::filesystem::path const& path);
  /// The times that come with the programs under this name; nothing where there are none.
  static std::optional<MachineTimes> known(std::string_view name);
  /// The names of those, in order.
  static std::vector<std::string> known_names();
  /// Whole or not at all.
  void write(std::filesystem::path const& path, nlohmann::ordered_json const& environment) const;

  std::string const& device() const { return device_; }
  std::string const& machine() const { return machine_; }
  /// "measured on NVIDIA H200", or how its times were made of others.
  std::string const& source() const { return source_; }
  std::vector<TimedCost> const& timings() const { return timings_; }
  void add(TimedCost timed) { timings_.push_back(std::move(timed)); }

  /// The seconds of an entry while so many ranks run. It is the sum of its operations, bytes and FLOPs at
  /// rates that fit what was measured of its kind, the nearest sizes the most; numbers of ranks between
  /// measured ones are interpolated, and beyond them cores are shared. Nothing where no rate is known.
  std::optional<Estimate> seconds(Cost const& cost, std::string_view precision, int ranks) const;

  /// Runs a plan's training schedule on paper. The data's way to the device is left out. Nothing where a time
  /// is not known, with the entry's kind in `unknown`.
  std::optional<PredictedStep> step(StepPlan const& plan, std::vector<Cost> const& costs,
                                    std::string* unknown = nullptr) const;

 private:
  std::string device_, machine_, source_;
  std::vector<TimedCost> timings_;
};

}  // namespace cli
}  // namespace programs
