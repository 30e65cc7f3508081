// SPDX-License-Identifier: Apache-2.0
// Attributes samples to the phases of a step and summarizes each phase.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/values.hpp"
#include "monitor/columns.hpp"
#include "trace/marks.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

/// The time that a column's values describe. A value covers the time from `window` before its sample began
/// until the sample ended, or the time since the previous value of its column.
struct ColumnTime {
  std::int64_t window = 0;  ///< nanoseconds
  bool since_last = false;
};

/// Stores rows in an unnamed file, so that memory does not grow with time.
class Spool {
 public:
  Spool();
  /// Throws Error(failed) if the disk is full.
  void add(std::string const& line);
  void rewind();
  std::optional<std::string> next();

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// Sums up rows by phase. Rows arrive in order. The figures of a phase use only values whose whole time lies
/// within one stretch of the phase. A phase without such values has no figures.
class PhaseFigures {
 public:
  /// `columns`: the decimals of each wanted figure, none for text.
  PhaseFigures(cli::Marks marks, cli::Names names, std::vector<std::optional<int>> decimals,
               std::vector<ColumnTime> times);

  struct Place {
    std::optional<std::int64_t> step;
    std::optional<std::string_view> phase;
  };
  /// Adds the sample from `begin` to `end`, on the marks' clock. Returns the step and phase that contain it
  /// entirely.
  Place add(std::int64_t begin, std::int64_t end, Json const& row);

  /// {"rank", "ranks", "first_step", "last_step", "windows_ms", "phases"}.
  Json json() const;
  std::string table(int width) const;

 private:
  struct Group {
    std::string name;
    std::vector<cli::Mark> stretches;
    std::size_t at = 0;  ///< the first stretch that had not ended when the last sample began
    std::int64_t samples = 0;
    std::vector<std::optional<Counts>> counts;

    cli::Mark const* around(std::int64_t begin, std::int64_t end);
    double seconds() const;
    double shortest_ms() const;
  };

  cli::Marks marks_;
  cli::Names names_;
  std::vector<ColumnTime> times_;
  std::vector<std::optional<std::int64_t>> last_;  ///< time of each column's last value
  std::vector<Group> groups_;                      ///< the phases, then all steps together
  std::size_t step_ = 0;
};

/// Throws Error(data) if no step ran between `begin` and `end`. Such marks belong to another run.
void check_overlap(std::string const& path, cli::Marks const& marks, std::int64_t begin, std::int64_t end);

}  // namespace monitor
}  // namespace programs
