// SPDX-License-Identifier: Apache-2.0
// Decides which steps of a training run are traced, and collects the times of the schedule entries of these
// steps. A schedule entry is one computation or one data movement of a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"
#include "trace/step_times.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The settings of --trace, --profile and --trace-steps.
struct TraceSettings {
  /// The number of steps before the first traced step. The last of these steps is timed as a warm-up, and its
  /// times are not used.
  static constexpr std::int64_t warmup = 2;

  std::filesystem::path file;  ///< empty: no trace
  bool profile = false;
  std::int64_t steps = 3;

  bool requested() const { return profile || !file.empty(); }
  /// Returns whether the step `number` (the first step is 1) is timed only as a warm-up.
  bool warms_up(std::int64_t number) const { return requested() && number == warmup; }
};

inline void add_trace_flags(CommandLine& line, TraceSettings& settings) {
  line.path("--trace", "FILE", settings.file,
            "write the times of each entry of a few steps, for ui.perfetto.dev: Chrome's trace events, JSON");
  line.toggle("--profile", settings.profile, "print the time that these steps spent in each lane");
  line.integer("--trace-steps", settings.steps, "the number of these steps, after two warm-up steps", 1,
               1000);
}

/// Throws if the flags of tracing contradict other flags. `run_steps` is the number of steps of the run.
/// `adds` says whether --min-time may add steps. `silent` says whether the run prints and logs nothing.
inline void check_trace(CommandLine const& line, TraceSettings const& settings, std::int64_t run_steps,
                        bool adds, bool silent) {
  if (!settings.requested()) {
    if (line.given("--trace-steps"))
      refuse(
          "--trace-steps sets the number of traced steps, but none are traced; give --trace FILE or "
          "--profile");
    return;
  }
  if (settings.profile && silent)
    refuse(
        "--profile prints a table, but --quiet prints none; give --log FILE, which also has the profile, or "
        "leave one out");
  std::int64_t const needed = TraceSettings::warmup + settings.steps;
  if (run_steps < needed)
    throw Error(ErrorKind::config, std::string(settings.file.empty() ? "--profile" : "--trace") + " takes " +
                                       std::to_string(needed) + " steps, " +
                                       std::to_string(TraceSettings::warmup) + " of them to warm up, but " +
                                       (adds ? "--steps gives " : "this run takes ") +
                                       std::to_string(run_steps) + "; raise --steps, or lower --trace-steps");
}

/// Times the traced steps of a run on one rank. Steps are numbered from 0. The traced steps begin after
/// TraceSettings::warmup steps of this run.
class TracedSteps {
 public:
  TracedSteps(TraceSettings const& settings, std::int64_t first_step, AnyTrainer& trainer, int rank)
      : trainer_(trainer),
        rank_(rank),
        first_(first_step + TraceSettings::warmup),
        end_(settings.requested() ? first_ + settings.steps : 0) {}

  /// Returns whether the step is timed: it is traced, or it is the warm-up. Before a timed step, the reports
  /// of all earlier steps must have been read. The report of a timed step must be read before the next step
  /// begins.
  bool times(std::int64_t step) const { return step >= first_ - 1 && step < end_; }
  /// Must be called before a timed step.
  void begin(std::int64_t step) {
    if (!timer_) timer_.emplace(trainer_, rank_);
    timer_->begin(step + 1);
  }
  /// Must be called after a timed step, with the seconds of its report. Returns whether it was the last timed
  /// step.
  bool end(std::int64_t step, double reported_seconds) {
    timer_->end(reported_seconds, step >= first_);
    return step + 1 == end_;
  }
  /// Returns whether timed steps are missing if the run ends before the step `step`.
  bool wants(std::int64_t step) const { return step < end_; }
  RankTimes take() { return timer_ ? timer_->take() : RankTimes(); }

 private:
  AnyTrainer& trainer_;
  int rank_;
  std::int64_t first_, end_;
  std::optional<StepTimer> timer_;
};

/// Writes the trace file, if --trace names one. If writing fails, prints a warning and returns false.
inline bool write_requested(TraceSettings const& settings, std::vector<RankTimes> const& times) {
  if (settings.file.empty()) return true;
  try {
    write_trace(settings.file, times);
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::failed) throw;
    std::cout.flush();
    std::cerr << "warning: " << error.what() << "; the run goes on without its trace" << std::endl;
    return false;
  }
  return true;
}

}  // namespace cli
}  // namespace programs
