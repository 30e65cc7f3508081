// SPDX-License-Identifier: Apache-2.0
// Decides which steps of a training run get a printed line, and estimates the time until the run ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/train/options.hpp"

#include "cli/terminal.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Estimates the seconds that `left` steps take, if `timed` steps took `seconds` seconds. Returns nullopt if
/// fewer than three steps or less than three seconds are timed, since the first steps can be slow.
inline std::optional<double> seconds_left(std::int64_t timed, double seconds, std::int64_t left) {
  if (timed < 3 || seconds < 3.0 || left <= 0) return std::nullopt;
  return seconds / static_cast<double>(timed) * static_cast<double>(left);
}

/// The settings of StepLines.
struct StepLinesOptions {
  std::int64_t first = 0;  ///< number of steps that earlier runs did, from whose checkpoint this run resumes
  std::int64_t last = 0;   ///< number of steps at the end of the run
  std::int64_t every = 0;  ///< steps between two lines; 0: the default
  bool bar = false;        ///< whether a progress bar is drawn, which shows the time left
  bool extended = false;   ///< whether the run adds steps after `last`, so that its length is not known
};

/// Without a progress bar, the first ten steps, about a hundred further steps and the last one get a line.
/// The first step with an estimate of the time left gets a line too. With a bar, the first step and about
/// twenty further steps get a line, or one step a minute. A skipped step always gets a line.
class StepLines {
 public:
  explicit StepLines(StepLinesOptions const& options) : options_(options) {}

  /// Returns whether the step of `report` gets a line. Must be called after each step.
  bool add(StepReport const& report) {
    auto const now = Clock::now();
    std::int64_t const done = report.step, run = done - options_.first;
    if (run == 1) first_ended_ = now;  // the first step is not timed
    bool const known = left_.has_value();
    left_ = options_.bar || options_.extended
                ? std::nullopt
                : seconds_left(run - 1, std::chrono::duration<double>(now - first_ended_).count(),
                               options_.last - done);
    bool const standard = options_.every == 0;
    std::int64_t const every =
        standard ? std::max<std::int64_t>(1, options_.last / (options_.bar ? 20 : 100)) : options_.every;
    bool const late = options_.bar && now - printed_ >= std::chrono::minutes(1);
    bool const early = standard && (done <= (options_.bar ? 1 : 10) || (left_ && !known));
    bool const beyond = standard && done > options_.last;  // added by --min-time: a line per second
    bool const second = now - printed_ >= std::chrono::seconds(1);
    bool const wanted =
        report.skipped || early || (beyond ? second : done % every == 0) || done == options_.last || late;
    if (wanted) printed_ = now;
    return wanted;
  }
  /// Returns the end of the line of this step: " | ETA 2:05 min", or "" if the time left is not known.
  std::string time_left() const { return left_ ? " | ETA " + duration_text(*left_) : std::string(); }

 private:
  using Clock = std::chrono::steady_clock;
  StepLinesOptions options_;
  Clock::time_point first_ended_{}, printed_ = Clock::now();
  std::optional<double> left_;  // seconds until the run ends, after the newest step
};

}  // namespace cli
}  // namespace programs
