// SPDX-License-Identifier: Apache-2.0
// Takes the samples of the program `monitor`: the use of the machine's cores, of a process tree and of every
// GPU. A sample is a row of values, with one value for each column.
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

/// Takes samples as rows of values, and keeps the statistics of each column.
class Sampler {
 public:
  /// `interval` is the time between two samples, in nanoseconds. `cpu_interval` is the time between two
  /// readings of the kernel's CPU ticks, in nanoseconds.
  Sampler(nvml::Library const& gpus, CpuUse cpu, std::int64_t interval, std::int64_t cpu_interval);

  cli::Names const& columns() const { return names_; }

  /// `decimals` returns the number of decimals of each column; nullopt for text and for values that only
  /// grow, which have no statistics. `times` returns the span of time that a value of each column describes.
  std::vector<std::optional<int>> decimals() const;
  std::vector<ColumnTime> const& times() const { return times_; }

  /// Takes a sample and returns the value of each column; null if a value is unknown. `now` is the time since
  /// the start in nanoseconds. `wall` is the system time of the start in seconds.
  Json take(std::int64_t now, double wall);

  /// Returns the last sample as a short text, for the live line on the terminal.
  std::string live() const;

  /// Returns the statistics of each numeric column; null for a column without values.
  Json column_summary() const;
  /// Returns two figures for each GPU: the energy in joules between the first and the last sample, and the
  /// percentage of samples with each throttle reason.
  Json gpu_summary() const;
  /// Returns a table with the statistics of the columns that had a value.
  std::string table(int width) const;

 private:
  struct Gpu {
    std::optional<double> first_energy_j, last_energy_j;
    /// number of samples for each bit mask of throttle reasons
    std::map<std::uint64_t, std::int64_t> throttled;
  };

  /// Adds a numeric column with `decimals` decimals. `time` is the span that its values describe.
  void number(std::string name, int decimals, ColumnTime time = {});
  void text(std::string name);
  void put(Json& row, std::optional<double> const& value);

  nvml::Library const& library_;
  CpuUse cpu_;
  std::int64_t interval_, cpu_interval_, cpu_due_ = 0;
  cli::Names names_;
  /// one for each column; nullopt for text and for values that only grow
  std::vector<std::optional<Counts>> counts_;
  std::vector<ColumnTime> times_;
  std::vector<Gpu> gpus_;
  std::vector<nvml::Sample> last_;
  CpuUse::Reading last_cpu_;
};

}  // namespace monitor
}  // namespace programs
