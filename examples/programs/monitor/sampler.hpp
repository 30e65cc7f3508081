// SPDX-License-Identifier: Apache-2.0
// A row of samples: the machine's cores, a process tree and every GPU.
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

/// Takes rows and keeps what their summary needs.
class Sampler {
 public:
  /// `interval`: from one sample to the next, in nanoseconds; `cpu_interval`: from one reading of the
  /// kernel's ticks to the next.
  Sampler(nvml::Library const& gpus, CpuUse cpu, std::int64_t interval, std::int64_t cpu_interval);

  cli::Names const& columns() const { return names_; }

  /// Of each column the decimals of its numbers, none for text and for what only grows; and what time its
  /// values are of.
  std::vector<std::optional<int>> decimals() const;
  std::vector<ColumnTime> const& times() const { return times_; }

  /// A value for each column, null where there is none. `now`: nanoseconds since the start, which was at
  /// `wall` seconds of the system's clock.
  Json take(std::int64_t now, double wall);

  /// The last row in a few words.
  std::string live() const;

  /// Of each column of numbers what it held, null where it had no value.
  Json column_summary() const;
  /// Of each GPU its joules between first and last sample, and how often which reason held.
  Json gpu_summary() const;
  /// The columns that had a value, as a table.
  std::string table(int width) const;

 private:
  struct Gpu {
    std::optional<double> first_energy_j, last_energy_j;
    std::map<std::uint64_t, std::int64_t> throttled;  ///< samples by their reasons
  };

  /// Adds a column of numbers with so many decimals.
  void number(std::string name, int decimals, ColumnTime time = {});
  void text(std::string name);
  void put(Json& row, std::optional<double> const& value);

  nvml::Library const& library_;
  CpuUse cpu_;
  std::int64_t interval_, cpu_interval_, cpu_due_ = 0;
  cli::Names names_;
  std::vector<std::optional<Counts>> counts_;  ///< one a column; none for text, and for what only grows
  std::vector<ColumnTime> times_;
  std::vector<Gpu> gpus_;
  std::vector<nvml::Sample> last_;
  CpuUse::Reading last_cpu_;
};

}  // namespace monitor
}  // namespace programs
