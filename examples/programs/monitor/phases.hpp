// SPDX-License-Identifier: Apache-2.0
// Samples by the phases of a step, and what can be said of a phase from them.
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

/// What a column's values speak of. A value of a sample is of all the time from `window` before the sample
/// began until it ended, or since the last value of its column.
struct ColumnTime {
  std::int64_t window = 0;  ///< nanoseconds
  bool since_last = false;
};

/// Rows in a file without a name, so that memory does not grow with time.
class Spool {
 public:
  Spool();
  /// Throws Error(failed) where there is no room.
  void add(std::string const& line);
  void rewind();
  std::optional<std::string> next();

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// Adds up rows by phase. Rows come in order; a figure of a phase is of those values whose whole time lies in
/// one stretch of it, and there is none without any.
class PhaseFigures {
 public:
  /// `columns`: of the figures that are wanted, its decimals, none for text.
  PhaseFigures(cli::Marks marks, cli::Names names, std::vector<std::optional<int>> decimals,
               std::vector<ColumnTime> times);

  struct Place {
    std::optional<std::int64_t> step;
    std::optional<std::string_view> phase;
  };
  /// Where the sample from `begin` to `end` on the marks' clock fell as a whole, after it was added.
  Place add(std::int64_t begin, std::int64_t end, Json const& row);

  /// {"rank", "ranks", "first_step", "last_step", "windows_ms", "phases"}.
  Json json() const;
  std::string table(int width) const;

 private:
  struct Group {
    std::string name;
    std::vector<cli::Mark> stretches;
    std::size_t at = 0;  ///< the first one that has not ended before the last sample began
    std::int64_t samples = 0;
    std::vector<std::optional<Counts>> counts;

    cli::Mark const* around(std::int64_t begin, std::int64_t end);
    double seconds() const;
    double shortest_ms() const;
  };

  cli::Marks marks_;
  cli::Names names_;
  std::vector<ColumnTime> times_;
  std::vector<std::optional<std::int64_t>> last_;  ///< when a column had its last value
  std::vector<Group> groups_;                      ///< the phases, and the steps as one
  std::size_t step_ = 0;
};

/// Throws Error(data) where no step ran while samples were taken, from `begin` to `end`: such marks are of
/// another run.
void check_overlap(std::string const& path, cli::Marks const& marks, std::int64_t begin, std::int64_t end);

}  // namespace monitor
}  // namespace programs
