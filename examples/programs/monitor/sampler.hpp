// SPDX-License-Identifier: Apache-2.0
// Takes samples of the machine's cores, a process tree and every GPU, each sample as a row of values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "machine/gpus.hpp"
#include "monitor/columns.hpp"
#include "monitor/phases.hpp"
#include "monitor/processes.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

/// Takes samples as rows and keeps the statistics for their summary.
class Sampler {
 public:
  /// `interval` is the time between samples, and `cpu_interval` the time between readings of the kernel's CPU
  /// ticks, both in nanoseconds.
  Sampler(nvml::Library const& gpus, CpuUse cpu, std::int64_t interval, std::int64_t cpu_interval);

  cli::Names const& columns() const { return names_; }

  /// decimals returns the number of decimals of each column, or nullopt for text and for values that only
  /// grow. times returns the span of time that each column's values describe.
  std::vector<std::optional<int>> decimals() const;
  std::vector<ColumnTime> const& times() const { return times_; }

  /// Takes a sample and returns a value for each column, null if there is none. `now` is in nanoseconds since
  /// the start. `wall` is the system clock at the start, in seconds.
  Json take(std::int64_t now, double wall);

  /// Returns the last row in short form, for a line on the terminal.
  std::string live() const;

  /// Returns statistics for each numeric column, null for a column without values.
  Json column_summary() const;
  /// Returns, for each GPU, the energy in joules between the first and last sample, and the share of samples
  /// with each throttle reason.
  Json gpu_summary() const;
  /// Returns the summary of the columns that had a value, as a table.
  std::string table(int width) const;

 private:
  struct Gpu {
    std::optional<double> first_energy_j, last_energy_j;
    std::map<std::uint64_t, std::int64_t> throttled;  ///< samples by throttle reasons
  };

  /// Adds a numeric column with the given decimals.
  void number(std::string name, int decimals, ColumnTime time = {});
  void text(std::string name);
  void put(Json& row, std::optional<double> const& value);

  nvml::Library const& library_;
  CpuUse cpu_;
  std::int64_t interval_, cpu_interval_, cpu_due_ = 0;
  cli::Names names_;
  std::vector<std::optional<Counts>> counts_;  ///< by column; none for text and for values that only grow
  std::vector<ColumnTime> times_;
  std::vector<Gpu> gpus_;
  std::vector<nvml::Sample> last_;
  CpuUse::Reading last_cpu_;
};

}  // namespace monitor
}  // namespace programs
