// SPDX-License-Identifier: Apache-2.0
// Defines the timing of the steps of a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/train/options.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// The timed steps, measured by the device's clock from the end of one step to the end of the next. The
/// host's clock is unsuitable: it sees the reports of enqueued steps late and several at once, so that some
/// steps seem to take no time.
struct TimedSteps {
  std::vector<double> seconds;  ///< one per step
  double total_s = 0.0;
  std::int64_t tokens = 0;  ///< over all steps and ranks

  void add(StepReport const& report) {
    seconds.push_back(report.interval);
    total_s += report.interval;
    tokens += report.tokens;
  }
  /// Returns tokens per second; 0 before the first step.
  double rate() const { return total_s > 0.0 ? static_cast<double>(tokens) / total_s : 0.0; }
};

/// Returns a sum, or nothing if a part is unknown.
inline std::optional<double> plus(std::optional<double> sum, std::optional<double> part) {
  return sum && part ? std::optional(*sum + *part) : std::nullopt;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace compare
}  // namespace programs
