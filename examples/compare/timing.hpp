// SPDX-License-Identifier: Apache-2.0
// What the timed steps of a training took, and the statistics of such numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {
namespace compare {

/// The steps that count for a rate, by the clock of the device: from the end of one step to the end of the
/// next. The host's clock would not do: it sees the reports of steps under way late and several at once, so
/// that a few steps seem to take no time.
struct TimedSteps {
  std::vector<double> seconds;  ///< of each
  double total_s = 0.0;
  std::int64_t tokens = 0;  ///< of all, over all ranks

  void add(StepReport const& report) {
    seconds.push_back(report.interval);
    total_s += report.interval;
    tokens += report.tokens;
  }
  /// Tokens a second; 0 before the first step.
  double rate() const { return total_s > 0.0 ? static_cast<double>(tokens) / total_s : 0.0; }
};

/// A sum that is known where all of its parts are.
inline std::optional<double> plus(std::optional<double> sum, std::optional<double> part) {
  return sum && part ? std::optional(*sum + *part) : std::nullopt;
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  std::size_t const half_way = values.size() / 2;
  return values.size() % 2 == 1 ? values[half_way] : 0.5 * (values[half_way - 1] + values[half_way]);
}

inline double mean(std::vector<double> const& values) {
  if (values.empty()) return 0.0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The sample's standard deviation; 0 for fewer than two values.
inline double deviation(std::vector<double> const& values) {
  if (values.size() < 2) return 0.0;
  double const middle = mean(values);
  double sum = 0.0;
  for (double const value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

/// The deviation of lists within each of them, their means left aside; nothing where none has two values.
inline std::optional<double> deviation_within(std::vector<std::vector<double>> const& lists) {
  double sum = 0.0, free = 0.0;
  for (std::vector<double> const& list : lists) {
    if (list.size() < 2) continue;
    double const one = deviation(list), weight = static_cast<double>(list.size() - 1);
    sum += one * one * weight;
    free += weight;
  }
  return free > 0.0 ? std::optional(std::sqrt(sum / free)) : std::nullopt;
}

/// What varies by more than this share of its mean is marked.
inline constexpr double steady_share = 0.05;

}  // namespace compare
}  // namespace v0
}  // namespace tessera
