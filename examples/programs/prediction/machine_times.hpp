// SPDX-License-Identifier: Apache-2.0
// Stores the measured times of schedule entries (parts of training steps) of a machine, and estimates the
// times of other entries on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/plan/step_plan.hpp"

#include "prediction/collective_times.hpp"
#include "prediction/step_costs.hpp"
#include "prediction/step_simulation.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The measured time of a schedule entry with the cost `cost`, in a training with `ranks` ranks.
struct TimedCost {
  std::string precision;
  int ranks = 1;
  Cost cost;
  double seconds = 0;
};

/// The predicted time of one rank's training step, in seconds.
struct PredictedStep {
  double seconds = 0;
  double guessed = 0;  ///< the part of `seconds` in which entries run whose estimates are guessed
  /// The times of collectives were computed from the data sheet of the link between the devices.
  bool from_link_data = false;
};

/// The expected error of a prediction in percent, if the file of machine times has no other figure. Most rows
/// whose times were measured on the same machine have been predicted within this error; see
/// docs/how-to/predict-step-times.md.
inline constexpr double default_error_pct = 15;

/// The peak rates of a GPU in its data sheet, by which times of one GPU are scaled to another GPU.
struct PeakRates {
  double memory = 0;  ///< bytes per second of the device memory
  double half = 0;    ///< FLOP/s of dense 16-bit products on tensor cores
  double single = 0;  ///< FLOP/s of fp32 without tensor cores

  /// Returns the estimated time on the GPU `other` of work that takes `seconds` on this GPU. The larger one
  /// of the time for moving the bytes and the time for computing the FLOPs is r here and r' there. The part
  /// of `seconds` up to 4 r is multiplied by r' / r; the rest is launches and waits, and does not change.
  /// benchmarks/machines.sh scales the measured times by the same rule.
  double scaled(double seconds, Cost const& cost, std::string_view precision, PeakRates const& other) const;
};

class MachineTimes;

/// The origin of times that were not measured, but scaled from the times of another GPU.
struct Scaling {
  std::shared_ptr<MachineTimes const> measured;  ///< the times of the other GPU, not null
  std::string name;                              ///< the name of `measured` among the built-in times
  PeakRates from, to;                            ///< the rates of the other GPU and of this one
};

/// The measured times of entries on one device.
class MachineTimes {
 public:
  MachineTimes() = default;
  /// `machine` is a text that describes the machine. `source` is a text about the origin of the times. If
  /// `source` is empty, the times were measured on this machine.
  MachineTimes(std::string device, std::string machine, std::string source = {})
      : device_(std::move(device)),
        machine_(std::move(machine)),
        source_(source.empty() ? "measured on " + machine_ : std::move(source)) {}

  /// Returns the times in a file that `info --measure` wrote. Throws Error(data) with the fault if the file
  /// is not valid.
  static MachineTimes read(std::filesystem::path const& path);
  /// Returns the times that are built into the program under the name `name`, or nullopt if there are none.
  static std::optional<MachineTimes> known(std::string_view name);
  /// Returns the names of the built-in times in sorted order.
  static std::vector<std::string> known_names();
  /// Returns the names of the built-in times that were measured, not scaled, in sorted order.
  static std::vector<std::string> measured_names();
  /// Writes the times to a file, which appears completely or not at all. `environment` is stored in the file
  /// too.
  void write(std::filesystem::path const& path, nlohmann::ordered_json const& environment) const;

  std::string const& device() const { return device_; }
  std::string const& machine() const { return machine_; }
  /// Returns a text about the origin of the times. It is, for example, "measured on NVIDIA H200", or it says
  /// how the times were derived from the times of another machine.
  std::string const& source() const { return source_; }
  std::vector<TimedCost> const& timings() const { return timings_; }
  void add(TimedCost timed) { timings_.push_back(std::move(timed)); }

  /// Returns the times of collectives between devices of one host; empty if they are unknown.
  CollectiveTimes const& collectives() const { return collectives_; }
  void set_collectives(CollectiveTimes collectives) { collectives_ = std::move(collectives); }
  /// Returns the memory of one device in bytes; 0 if it is unknown.
  std::int64_t memory_bytes() const { return memory_bytes_; }
  void set_memory(std::int64_t bytes) { memory_bytes_ = bytes; }
  /// Returns the largest number of devices in one host; 0 if it is unknown.
  int max_ranks() const { return max_ranks_; }
  void set_max_ranks(int ranks) { max_ranks_ = ranks; }

  /// Returns the network between hosts; nullopt if it is unknown.
  std::optional<Network> const& network() const { return network_; }
  void set_network(std::optional<Network> network) { network_ = std::move(network); }
  /// Returns a text about the host of the devices, such as "8 vCPUs for each GPU"; "" if it is unknown.
  std::string const& host() const { return host_; }
  void set_host(std::string host) { host_ = std::move(host); }
  /// Returns the expected error of the time of a step without collectives, in percent.
  double error_pct() const { return error_pct_; }
  void set_error(double percent) { error_pct_ = percent; }
  /// Returns the origin of scaled times; nullopt if the times were measured.
  std::optional<Scaling> const& scaling() const { return scaling_; }
  void set_scaling(std::optional<Scaling> scaling) { scaling_ = std::move(scaling); }
  /// Returns the bytes per second of the largest measured entry of the kind `what`, such as "host_adamw"; 0
  /// if none was measured.
  double largest_rate(std::string_view what) const;

  /// Returns the estimated seconds of an entry with the cost `cost` in a training with `ranks` ranks. The
  /// estimate is a weighted sum of the entry's operations, bytes and FLOPs. The weights are fitted to the
  /// measured entries of the same kind; the entries of nearest size count most. Between two measured numbers
  /// of ranks, the estimate is interpolated. Outside the measured range, times on the CPU grow with the
  /// number of ranks, because ranks share the cores. A computation of a kind that was not measured is guessed
  /// from the other computations. With `scaling()`, it is guessed from computations of the measured GPU and
  /// then scaled, so that a GPU with lower rates is never predicted to be the faster one. Returns nullopt if
  /// no entry of a suitable kind was measured.
  std::optional<Estimate> seconds(Cost const& cost, std::string_view precision, int ranks) const;

  /// Returns the predicted time of a training step of the plan. `costs` are the costs of its entries. The
  /// transfer of the batch to the device is not included. The time of a collective is its time in trainings
  /// with the same number of ranks, or on the CPU with any number of ranks. Without such a measurement,
  /// the time is computed from `collectives()`. On GPUs, collectives with computed times share the link. If
  /// all trainings on GPUs had one rank, computations run slower while these collectives run
  /// (CollectiveTimes::slowdown). If the time of an entry is unknown, returns nullopt and stores the kind of
  /// the entry in `unknown`.
  ///
  /// The ranks are divided over `hosts` hosts, in order. If a collective has ranks on several hosts, its time
  /// is Network::seconds of `network()`, which must be known.
  std::optional<PredictedStep> step(StepPlan const& plan, std::vector<Cost> const& costs,
                                    std::string* unknown = nullptr, int hosts = 1) const;

 private:
  std::string device_, machine_, source_;
  std::int64_t memory_bytes_ = 0;
  int max_ranks_ = 0;
  CollectiveTimes collectives_;
  std::optional<Network> network_;
  std::string host_;
  double error_pct_ = default_error_pct;
  std::optional<Scaling> scaling_;
  std::vector<TimedCost> timings_;
};

}  // namespace cli
}  // namespace programs
