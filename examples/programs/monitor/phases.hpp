// SPDX-License-Identifier: Apache-2.0
// Assigns samples to the phases of training steps (forward, backward, update) and summarizes each phase.
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

/// The span of time that a value of a column describes. With `since_last`, it begins at the previous value of
/// the column; else it begins `window` nanoseconds before its sample began. It ends with the sample.
struct ColumnTime {
  std::int64_t window = 0;  ///< nanoseconds
  bool since_last = false;
};

/// Stores rows in a temporary file without a name, so that memory does not grow with time.
class Spool {
 public:
  Spool();
  /// Appends a row. Throws Error(failed) if the disk is full.
  void add(std::string const& line);
  void rewind();
  std::optional<std::string> next();

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// Summarizes rows by phase. Rows must be added in order. A value counts for a phase only if the whole span
/// that it describes lies within one run of the phase. A phase without such values has no figures.
class PhaseFigures {
 public:
  /// `decimals` holds the decimals of each column, or nullopt for text columns, which get no figures.
  PhaseFigures(cli::Marks marks, cli::Names names, std::vector<std::optional<int>> decimals,
               std::vector<ColumnTime> times);

  struct Place {
    std::optional<std::int64_t> step;
    std::optional<std::string_view> phase;
  };
  /// Adds the sample that was taken from `begin` to `end`, in nanoseconds of the marks' clock. Returns the
  /// step and the phase that contain this whole span, if any.
  Place add(std::int64_t begin, std::int64_t end, Json const& row);

  /// Returns {"rank", "ranks", "first_step", "last_step", "windows_ms", "phases"}.
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

/// Throws Error(data) if no step of the marks ran between `begin` and `end`, because the marks then belong to
/// another run.
void check_overlap(std::string const& path, cli::Marks const& marks, std::int64_t begin, std::int64_t end);

}  // namespace monitor
}  // namespace programs
