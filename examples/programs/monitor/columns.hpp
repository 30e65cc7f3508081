// SPDX-License-Identifier: Apache-2.0
// Rounds the values that the program `monitor` writes to the columns of its output files, and computes the
// statistics of each column. The memory for the statistics does not grow with the duration of the run.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "machine/machine.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

using cli::Json;

/// The statistics of all values of a numeric column.
struct Summary {
  std::int64_t samples = 0;
  double mean = 0.0, std = 0.0, min = 0.0, max = 0.0, median = 0.0;
};

/// The values of a column as a histogram: it counts how often each value occurs. Values are rounded to a
/// fixed number of decimals, as in the output file, so the statistics match the file exactly. Memory grows
/// only with the number of distinct values.
class Counts {
 public:
  explicit Counts(int decimals) : decimals_(decimals), scale_(std::pow(10.0, decimals)) {}

  int decimals() const { return decimals_; }

  /// Counts a value. Returns the value rounded, as the file must contain it.
  Json add(double value) {
    std::int64_t const unit = std::llround(value * scale_);
    ++counts_[unit];
    return scale_ == 1.0 ? Json(unit) : Json(of(unit));
  }

  std::optional<Summary> summary() const {
    if (counts_.empty()) return std::nullopt;
    Summary found;
    double sum = 0.0, squares = 0.0;
    for (auto const& [unit, count] : counts_) {
      found.samples += count;
      sum += of(unit) * static_cast<double>(count);
    }
    auto const samples = static_cast<double>(found.samples);
    found.mean = sum / samples;
    std::int64_t before = 0;
    double middle[2] = {};
    for (auto const& [unit, count] : counts_) {
      squares += static_cast<double>(count) * (of(unit) - found.mean) * (of(unit) - found.mean);
      if (before <= (found.samples - 1) / 2) middle[0] = of(unit);
      if (before <= found.samples / 2) middle[1] = of(unit);
      before += count;
    }
    found.std = found.samples > 1 ? std::sqrt(squares / (samples - 1.0)) : 0.0;
    found.min = of(counts_.begin()->first);
    found.max = of(counts_.rbegin()->first);
    found.median = 0.5 * (middle[0] + middle[1]);
    return found;
  }

 private:
  double of(std::int64_t unit) const { return static_cast<double>(unit) / scale_; }

  int decimals_;
  double scale_;
  std::map<std::int64_t, std::int64_t> counts_;
};

/// The deadlines of the samples, in nanoseconds since the start. They are multiples of the interval, so that
/// slow samples cause no drift.
class Deadlines {
 public:
  explicit Deadlines(std::int64_t interval) : interval_(interval) {}

  std::int64_t next() const { return next_ * interval_; }
  /// Must be called when a sample begins, at the time `now`. Moves to the next deadline, and skips deadlines
  /// that have already passed by a whole interval.
  void taken(std::int64_t now) {
    ++samples_;
    std::int64_t const behind = (now - next()) / interval_;
    if (now - next() > interval_) {
      ++late_;
      missed_ += behind;
      next_ += behind;
    }
    ++next_;
  }

  std::int64_t samples() const { return samples_; }
  /// `late` returns the number of samples that began more than one interval after their deadline. `missed`
  /// returns the number of deadlines that were skipped because of late samples.
  std::int64_t late() const { return late_; }
  std::int64_t missed() const { return missed_; }

 private:
  std::int64_t interval_, next_ = 0, samples_ = 0, late_ = 0, missed_ = 0;
};

}  // namespace monitor
}  // namespace programs
