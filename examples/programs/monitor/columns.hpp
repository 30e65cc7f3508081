// SPDX-License-Identifier: Apache-2.0
// Rounds the values of sampled columns as they are written, and summarizes them in memory that does not grow
// with time.
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

/// The statistics of a numeric column.
struct Summary {
  std::int64_t samples = 0;
  double mean = 0.0, std = 0.0, min = 0.0, max = 0.0, median = 0.0;
};

/// A histogram of a column's values, rounded to a fixed number of decimals as in the file. The summary,
/// including the median, then matches the file exactly. Memory grows with the number of distinct values only.
class Counts {
 public:
  explicit Counts(int decimals) : decimals_(decimals), scale_(std::pow(10.0, decimals)) {}

  int decimals() const { return decimals_; }

  /// Adds a value and returns it rounded, as it is written to the file.
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

/// Returns when to take each sample: at multiples of the interval since the start, so that slow samples cause
/// no drift. Times are nanoseconds since the start.
class Deadlines {
 public:
  explicit Deadlines(std::int64_t interval) : interval_(interval) {}

  std::int64_t next() const { return next_ * interval_; }
  /// Call it when a sample begins. Skips deadlines that have passed by a whole interval.
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
  /// late returns the number of samples that came more than one interval late, missed the number of deadlines
  /// that were skipped because of them.
  std::int64_t late() const { return late_; }
  std::int64_t missed() const { return missed_; }

 private:
  std::int64_t interval_, next_ = 0, samples_ = 0, late_ = 0, missed_ = 0;
};

}  // namespace monitor
}  // namespace programs
