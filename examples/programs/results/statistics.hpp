// SPDX-License-Identifier: Apache-2.0
// Computes statistics of times and rates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

namespace programs {
namespace cli {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  std::size_t const half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

inline double mean(std::vector<double> const& values) {
  if (values.empty()) return 0.0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the sample standard deviation; 0 for fewer than two values.
inline double deviation(std::vector<double> const& values) {
  if (values.size() < 2) return 0.0;
  double const middle = mean(values);
  double sum = 0.0;
  for (double const value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

/// Returns the pooled standard deviation of several lists: each list contributes the distances of its values
/// from its own mean. Returns nullopt if every list has fewer than two values.
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

/// If the standard deviation is more than this fraction of the mean, tables mark the value with "~".
inline constexpr double steady_share = 0.05;

/// Returns whether other programs used so much CPU time that a rate is not meaningful. This is so if they
/// used more than a tenth of all core time while the cores were more than 60 % busy. `own` is this program's
/// share of the time of all cores, and `others` is the share of all other programs.
inline bool is_disturbed(double own, double others) { return others > 0.1 && own + others > 0.6; }

}  // namespace cli
}  // namespace programs
