// SPDX-License-Identifier: Apache-2.0
// Stores measured times of schedule entries (parts of training steps) on a machine, and estimates the times
// of other entries there.
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

/// The measured time of an entry with this cost, while `ranks` ranks trained.
struct TimedCost {
  std::string precision;
  int ranks = 1;
  Cost cost;
  double seconds = 0;
};

/// An estimated time, fitted to the measured times of similar entries.
struct Estimate {
  double seconds = 0;
  bool guessed = false;  ///< no entry of its kind was measured
};

/// The predicted time of one rank's step, in seconds.
struct PredictedStep {
  double seconds = 0;
  double guessed = 0;  ///< the part in entries of kinds that were not measured
};

/// Simulates one training step in which entry i takes took[i] seconds. Returns the seconds of the step. An
/// entry starts when the entries that it waits for and the previous one of its lane have ended. On the CPU
/// all entries share one lane.
double on_paper(StepPlan const& plan, std::vector<double> const& took);
/// Reduces the entry times `took` so that the simulated step takes `seconds`. Multiplies the times of the
/// busiest lane by one factor from 0.5 to 1. Returns `took` unchanged if no such factor fits.
std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took);

/// The measured entry times of one device.
class MachineTimes {
 public:
  MachineTimes() = default;
  /// `machine` describes the machine for people. `source` says how the times were obtained; empty means that
  /// they were measured on that machine.
  MachineTimes(std::string device, std::string machine, std::string source = {})
      : device_(std::move(device)),
        machine_(std::move(machine)),
        source_(source.empty() ? "measured on " + machine_ : std::move(source)) {}

  /// Reads a file that `info --measure` wrote. Throws Error(data) that says what is wrong with the file.
  static MachineTimes read(std::filesystem::path const& path);
  /// Returns the times that are built into the program under this name; nullopt if there are none.
  static std::optional<MachineTimes> known(std::string_view name);
  /// Returns the names of the built-in times, sorted.
  static std::vector<std::string> known_names();
  /// Writes the file atomically.
  void write(std::filesystem::path const& path, nlohmann::ordered_json const& environment) const;

  std::string const& device() const { return device_; }
  std::string const& machine() const { return machine_; }
  /// Returns, for example, "measured on NVIDIA H200", or how the times were derived from those of another
  /// machine.
  std::string const& source() const { return source_; }
  std::vector<TimedCost> const& timings() const { return timings_; }
  void add(TimedCost timed) { timings_.push_back(std::move(timed)); }

  /// Estimates the seconds of an entry when this many ranks train. The estimate is a weighted sum of its
  /// operations, bytes and FLOPs. The weights are fitted to the measured entries of the same kind, and the
  /// nearest sizes count most. Interpolates between the measured rank counts. Beyond them, CPU times grow as
  /// if ranks shared the cores. Returns nullopt if no entry of a suitable kind was measured.
  std::optional<Estimate> seconds(Cost const& cost, std::string_view precision, int ranks) const;

  /// Predicts the time of a training step from a plan and its costs, without the transfer of the batch to the
  /// device. If the time of some entry is unknown, returns nullopt and writes the entry's kind to `unknown`.
  std::optional<PredictedStep> step(StepPlan const& plan, std::vector<Cost> const& costs,
                                    std::string* unknown = nullptr) const;

 private:
  std::string device_, machine_, source_;
  std::vector<TimedCost> timings_;
};

}  // namespace cli
}  // namespace programs
