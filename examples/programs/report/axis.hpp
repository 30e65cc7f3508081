// SPDX-License-Identifier: Apache-2.0
// Provides the ticks of axes, the text of numbers, and linear scales for charts.
#pragma once

#include <string>
#include <vector>

namespace programs {
namespace reporting {

/// Returns about `count` round numbers that cover the range [low, high], to be used as the ticks of an axis.
/// Their distance is 1, 2 or 5 times a power of ten. `low` may equal `high`. The list is never empty.
std::vector<double> ticks(double low, double high, int count);
/// Returns a tick as text: 1500000 as "1.5M", 0.0003 as "0.0003". `step` is the distance between ticks.
std::string tick_text(double value, double step);
/// Returns a value as text with at least three significant digits: "12,345", "0.194". Digits before the
/// decimal point are always complete.
std::string figure_text(double value);

/// Maps values linearly to coordinates of a chart.
class Scale {
 public:
  /// Widens [low, high] until it begins and ends at a tick, and maps it to the coordinates [begin, end].
  /// `count` is the approximate number of ticks.
  Scale(double low, double high, double begin, double end, int count = 5);
  double operator()(double value) const;
  std::vector<double> const& ticks() const { return ticks_; }
  std::string text(double tick) const;

 private:
  std::vector<double> ticks_;
  double begin_, end_;
};

}  // namespace reporting
}  // namespace programs
