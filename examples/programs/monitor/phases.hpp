// SPDX-License-Identifier: Apache-2.0
// Finds the phase of a training step (forward, backward, update) in which the program `monitor` took each
// sample. Computes statistics of the samples for each phase.
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

/// The span of time that a value of a column describes. The span ends with the sample of the value. If
/// `since_last` is true, the span begins at the column's previous value. If it is false, the span begins
/// `window` nanoseconds before the sample began.
struct ColumnTime {
  std::int64_t window = 0;  ///< nanoseconds
  bool since_last = false;
};

/// Stores rows (one row of values for each sample) in a temporary file without a name, so that the memory
/// does not grow with time.
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

/// Computes statistics of the samples for each phase. `marks` holds the begin and the end of each step and
/// phase, as the training program recorded them. Samples must be added in order. A phase runs many times; a
/// value counts for the phase only if one run of the phase contains the whole span that the value describes.
/// A phase without such values has no statistics.
class PhaseFigures {
 public:
  /// `decimals` holds the number of decimals of each column. It is nullopt for text columns, which have no
  /// statistics.
  PhaseFigures(cli::Marks marks, cli::Names names, std::vector<std::optional<int>> decimals,
               std::vector<ColumnTime> times);

  struct Place {
    std::optional<std::int64_t> step;
    std::optional<std::string_view> phase;
  };
  /// Adds a sample that was taken from `begin` to `end`, in nanoseconds of the marks' clock. Returns the step
  /// and the phase that contain this whole span; a member is nullopt if there is none.
  Place add(std::int64_t begin, std::int64_t end, Json const& row);

  /// Returns the statistics as {"rank", "ranks", "first_step", "last_step", "windows_ms", "phases"}.
  Json json() const;
  std::string table(int width) const;

 private:
  struct Group {
    std::string name;
    std::vector<cli::Mark> stretches;
    /// index of the first element of `stretches` (runs of the phase) that had not ended when the last sample
    /// began
    std::size_t at = 0;
    std::int64_t samples = 0;
    std::vector<std::optional<Counts>> counts;

    cli::Mark const* around(std::int64_t begin, std::int64_t end);
    double seconds() const;
    double shortest_ms() const;
  };

  cli::Marks marks_;
  cli::Names names_;
  std::vector<ColumnTime> times_;
  std::vector<std::optional<std::int64_t>> last_;  ///< the time of each column's last value
  /// one group for each phase; the last group is for all steps together
  std::vector<Group> groups_;
  std::size_t step_ = 0;
};

/// `marks` holds the begin and the end of each step. Throws Error(data) if no step of `marks` ran between
/// `begin` and `end` (nanoseconds). Such marks belong to another run. `path` is the file of the marks.
void check_overlap(std::string const& path, cli::Marks const& marks, std::int64_t begin, std::int64_t end);

}  // namespace monitor
}  // namespace programs
