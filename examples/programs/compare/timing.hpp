// SPDX-License-Identifier: Apache-2.0
// Computes the rate of a training run from the reports of its steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/train/options.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// The times of the timed steps. The device's clock measures the time of a step, from the end of the previous
/// step to its own end. The host's clock is unsuitable: the host reads the reports of several enqueued steps
/// at once, so some steps would seem to need no time.
struct TimedSteps {
  std::vector<double> seconds;  ///< the time of each step
  double total_s = 0.0;
  std::int64_t tokens = 0;  ///< the tokens of all steps on all ranks

  void add(StepReport const& report) {
    seconds.push_back(report.interval);
    total_s += report.interval;
    tokens += report.tokens;
  }
  /// Returns tokens per second; 0 before the first step.
  double rate() const { return total_s > 0.0 ? static_cast<double>(tokens) / total_s : 0.0; }
};

/// Returns the sum of the two values; nullopt if one of them is unknown.
inline std::optional<double> plus(std::optional<double> sum, std::optional<double> part) {
  return sum && part ? std::optional(*sum + *part) : std::nullopt;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace compare
}  // namespace programs
