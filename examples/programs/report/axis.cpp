// SPDX-License-Identifier: Apache-2.0
// Implements axis.hpp: the ticks and the scales of a chart's axes.
#include "report/axis.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

std::vector<double> ticks(double low, double high, int count) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {0.0, 1.0};
  if (low > high) std::swap(low, high);
  // If the two values are equal up to the printed digits, widens the range.
  double const least = std::max(1e-30, 1e-9 * std::max(std::fabs(low), std::fabs(high)));
  if (high - low < least) {
    double const around = low == 0.0 ? 1.0 : 0.5 * std::fabs(low);
    high = low + around;
    low = low > 0.0 ? std::max(0.0, low - around) : low - around;
  }
  double const rough = (high - low) / std::max(1, count);
  double const power = std::pow(10.0, std::floor(std::log10(rough)));
  double const share = rough / power;
  double const step = power * (share <= 1.0 ? 1.0 : share <= 2.0 ? 2.0 : share <= 5.0 ? 5.0 : 10.0);
  double const first = std::floor(low / step + 1e-6), last = std::ceil(high / step - 1e-6);
  std::vector<double> list;
  for (double at = first; at <= last && list.size() < 50; at += 1.0) list.push_back(at * step);
  return list;
}

std::string tick_text(double value, double step) {
  if (value == 0.0) return "0";
  constexpr std::pair<double, char const*> units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (auto const& [size, letter] : units) {
    if (std::fabs(value) < size || (std::fabs(value) < 1e4 && step < 1e3)) continue;
    double const shown = step / size;
    int const decimals = shown >= 1.0 ? 0 : static_cast<int>(std::ceil(-std::log10(shown) - 1e-9));
    return cli::fixed(value / size, std::min(decimals, 3)) + letter;
  }
  if (std::fabs(value) < 1e-4) return cli::shortest(value);
  int const decimals = step >= 1.0 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return cli::fixed(value, std::clamp(decimals, 0, 6));
}

std::string figure_text(double value) {
  double const size = std::fabs(value);
  if (size >= 1e15) return cli::shortest(value);
  if (size >= 99.95 || value == 0.0) return cli::grouped(std::llround(value));
  if (size < 1e-4) return cli::shortest(value);
  int const digits = static_cast<int>(std::floor(std::log10(size)));
  return cli::fixed(value, std::clamp(2 - digits, 0, 6));
}

Scale::Scale(double low, double high, double begin, double end, int count)
    : ticks_(reporting::ticks(low, high, count)), begin_(begin), end_(end) {}

double Scale::operator()(double value) const {
  double const low = ticks_.front(), high = ticks_.back();
  double const share = high > low ? (value - low) / (high - low) : 0.5;
  return begin_ + std::clamp(share, -0.5, 1.5) * (end_ - begin_);
}

std::string Scale::text(double tick) const {
  return tick_text(tick, ticks_.size() > 1 ? ticks_[1] - ticks_[0] : 1.0);
}

}  // namespace reporting
}  // namespace programs
