// SPDX-License-Identifier: Apache-2.0
// Times the entries of a few steps, and writes them as a trace for Perfetto or as a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/train/any_trainer.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// A time span, in nanoseconds of the machine's monotonic clock.
struct TimeSpan {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

/// The static facts of a schedule entry.
struct TimedEntry {
  std::string name;  ///< "forward h.3": verb and unit, as in plan --schedule
  std::string kind;  ///< "forward", "reduce reduce_scatter": verb and move
  std::string unit;  ///< "-": none
  Lane lane = Lane::compute;
  int phase = -1;               ///< index into phase_names in marks.hpp; -1: none, as for moves
  bool collective = false;      ///< moves values between ranks
  double flops = 0, bytes = 0;  ///< bytes: carried by a move; least read and written by work
};

struct TimedInstance {
  int entry = 0;
  int micro_batch = -1;
  TimeSpan ran;
};

struct TimedStep {
  std::int64_t number = 0;  ///< from 1
  TimeSpan whole;
  double reported = 0;  ///< seconds, from its StepReport
  std::vector<TimedInstance> instances;
};

/// The timed steps of one rank.
struct RankTimes {
  int rank = 0;
  std::vector<TimedEntry> entries;  ///< of the schedule
  std::vector<TimedStep> steps;
};

/// Returns nanoseconds on a clock that all threads and processes of this machine share.
std::int64_t monotonic_nanoseconds() noexcept;

/// Times the steps of a trainer one after the other. The trainer must outlive it.
class StepTimer final : public EntryTimer {
 public:
  /// Names the entries, and takes their costs from a recorded step.
  StepTimer(AnyTrainer& trainer, int rank, std::function<std::int64_t()> clock = &monotonic_nanoseconds);

  /// Starts timing the next step. Call `end` after its ticket was read.
  void begin(std::int64_t number);
  /// Ends the step. If not `kept`, the step was a warm-up and is dropped.
  void end(double reported_seconds, bool kept = true);
  /// Moves out the steps so far.
  RankTimes take() { return std::move(times_); }

  std::int64_t now() noexcept override { return clock_(); }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override;

 private:
  AnyTrainer& trainer_;
  std::function<std::int64_t()> clock_;
  RankTimes times_;
};

/// The steps to time.
struct TimedSteps {
  std::function<Batch(std::int64_t step)> batch;
  std::int64_t kept = 3;  ///< the most steps to time, after one warm-up step
  double enough_s = 1.0;  ///< no further step is timed after this many seconds
};

/// Trains these steps and returns the times of their entries on this rank. Collective.
RankTimes time_steps(AnyTrainer& trainer, comm::Comm const& comm, TimedSteps const& steps);

/// A part of a step: adjacent entries of one phase, from the first to the last.
struct TimedPhase {
  int phase = 0;  ///< index into phase_names in marks.hpp
  TimeSpan ran;
};

/// Returns the phases of a step, sorted and disjoint. If two overlap, the one that began first continues.
std::vector<TimedPhase> phases_of(RankTimes const& times, TimedStep const& step);

/// The totals of one kind of entry in one lane, per step.
struct KindTimes {
  std::string kind;
  std::int64_t count = 0;
  double seconds = 0;
  double flops = 0, bytes = 0;

  std::optional<double> flops_per_second() const { return per_second(flops); }
  std::optional<double> bytes_per_second() const { return per_second(bytes); }

 private:
  std::optional<double> per_second(double what) const {
    return what > 0 && seconds > 0 ? std::optional(what / seconds) : std::nullopt;
  }
};

/// A lane, per step. Kinds are in the order in which they first ran. Idle is all time in which no entry of
/// the lane ran.
struct LaneTimes {
  Lane lane = Lane::compute;
  double busy = 0, idle = 0;
  std::vector<KindTimes> kinds;
};

/// The mean of a rank's timed steps, in seconds.
struct Profile {
  int rank = 0;
  std::vector<std::int64_t> steps;
  double step = 0;  ///< from the reports
  std::vector<LaneTimes> lanes;
  double collectives = 0;  ///< all collectives, including waits for other ranks
  double hidden = 0;       ///< the part that overlaps entries of the compute lane

  double exposed() const { return collectives - hidden; }
};

Profile profile_of(RankTimes const& times);
std::string profile_text(Profile const& profile, std::size_t ranks);
/// {"steps", "ranks": [{"rank", "step_ms", "lanes", "collectives"}]}.
nlohmann::ordered_json profile_json(std::vector<RankTimes> const& ranks);

/// Returns, for example, "steps 3 to 5".
std::string steps_text(RankTimes const& times);
/// Writes Chrome's trace events: one process per rank, one thread per lane, one for the steps and one for
/// their phases, and one slice per instance. otherData holds the clock and its reading at time 0, for
/// `read_marks`. The write is atomic. Throws Error(failed) with the path.
void write_trace(std::filesystem::path const& path, std::vector<RankTimes> const& ranks);

}  // namespace cli
}  // namespace programs
