// SPDX-License-Identifier: Apache-2.0
// What the timed steps of a training took.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/train/options.hpp"

namespace programs {
using namespace tessera;
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

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace compare
}  // namespace programs
