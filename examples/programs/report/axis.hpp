// SPDX-License-Identifier: Apache-2.0
// Provides axis ticks, number formatting and linear scales for charts.
#pragma once

#include <string>
#include <vector>

namespace programs {
namespace reporting {

/// Returns about `count` round numbers that cover [low, high], spaced 1, 2 or 5 times a power of ten. The
/// list is never empty, and low may equal high.
std::vector<double> ticks(double low, double high, int count);
/// Formats a tick: 1500000 as "1.5M", 0.0003 as "0.0003". `step` is the distance between ticks.
std::string tick_text(double value, double step);
/// Formats a value with three significant digits, or with all digits before the decimal point: "12,345",
/// "0.194".
std::string figure_text(double value);

/// Maps values linearly to coordinates.
class Scale {
 public:
  /// Widens [low, high] to ticks and maps it to [begin, end].
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
