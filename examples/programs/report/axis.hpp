// SPDX-License-Identifier: Apache-2.0
// Axes: which numbers stand at them, and where values lie.
#pragma once

#include <string>
#include <vector>

namespace programs {
namespace reporting {

/// Round numbers (1, 2 or 5 times a power of ten apart) that cover [low, high], about `count` of them. Never
/// none, whatever the values are; low may equal high.
std::vector<double> ticks(double low, double high, int count);
/// 1500000 as "1.5M", 0.0003 as "0.0003"; `step` is how far ticks are apart.
std::string tick_text(double value, double step);
/// A value with three significant digits or all digits before its point: "12,345", "0.194".
std::string figure_text(double value);

/// Values to coordinates, linear.
class Scale {
 public:
  /// From [low, high], widened to ticks, to [begin, end].
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
