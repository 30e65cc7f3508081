// SPDX-License-Identifier: Apache-2.0
// Times the schedule entries of a few steps, such as the forward pass of one block. Writes the times as a
// trace for Perfetto or as a table.
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

/// The properties of a schedule entry that are the same in every step.
struct TimedEntry {
  std::string name;  ///< "forward h.3": verb and unit, as in plan --schedule
  std::string kind;  ///< "forward", "reduce reduce_scatter": verb and move
  std::string unit;  ///< "-": none
  Lane lane = Lane::compute;
  int phase = -1;               ///< index into phase_names in marks.hpp; -1: none, as for moves
  bool collective = false;      ///< moves values between ranks
  double flops = 0, bytes = 0;  ///< bytes: carried by a move, or the least that other work reads and writes
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
  std::vector<TimedEntry> entries;  ///< all entries of the step's schedule
  std::vector<TimedStep> steps;
};

/// Returns a rank's times as a text, which `rank_times` reads in another process.
std::string text_of(RankTimes const& times);
RankTimes rank_times(std::string const& text);

/// Returns nanoseconds on a clock that all threads and processes of this machine share.
std::int64_t monotonic_nanoseconds() noexcept;

/// Times the steps of a trainer one after the other. The trainer must outlive it.
class StepTimer final : public EntryTimer {
 public:
  /// Reads the names of the entries from the trainer's schedule, and their FLOPs and bytes by recording a
  /// step without running it.
  StepTimer(AnyTrainer& trainer, int rank, std::function<std::int64_t()> clock = &monotonic_nanoseconds);

  /// Starts timing the next step, whose number is `number`. Call `end` once the step's report has been read.
  void begin(std::int64_t number);
  /// Ends the step. With `keep` false, drops its times, as for a warm-up step.
  void end(double reported_seconds, bool keep = true);
  /// Returns the times of all kept steps and moves them out of the timer.
  RankTimes take() { return std::move(times_); }

  std::int64_t now() noexcept override { return clock_(); }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override;

 private:
  AnyTrainer& trainer_;
  std::function<std::int64_t()> clock_;
  RankTimes times_;
};

/// Tells `time_steps` which batches to train on and when to stop.
struct TimedSteps {
  std::function<Batch(std::int64_t step)> batch;
  std::int64_t max_steps = 3;  ///< the most steps to time, after one warm-up step
  double enough_s = 1.0;       ///< no further step is timed after this many seconds
};

/// Trains these steps and returns the times of their entries on this rank. All ranks must call it.
RankTimes time_steps(AnyTrainer& trainer, comm::Comm const& comm, TimedSteps const& steps);

/// One part of a step, such as forward. Spans its first to its last entry.
struct TimedPhase {
  int phase = 0;  ///< index into phase_names in marks.hpp
  TimeSpan ran;
};

/// Returns the forward, backward and update parts of a step, sorted by time. Where two overlap, the later one
/// starts at the end of the earlier one, so the results are disjoint.
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

/// Mean seconds per step of one lane (a queue of entries that run in order): busy is the time with a running
/// entry, idle the rest of the step. Kinds are listed in the order in which they first ran.
struct LaneTimes {
  Lane lane = Lane::compute;
  double busy = 0, idle = 0;
  std::vector<KindTimes> kinds;
};

/// Mean times over a rank's timed steps, in seconds.
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
/// Returns {"steps", "ranks": [{"rank", "step_ms", "lanes", "collectives"}]}.
nlohmann::ordered_json profile_json(std::vector<RankTimes> const& ranks);

/// Returns the numbers of the timed steps as text, for example "steps 3 to 5".
std::string steps_text(RankTimes const& times);
/// Writes a file in Chrome's trace event format. Each rank is a process; each lane, the steps and the phases
/// of a step are threads; each run of an entry is one slice. The field otherData holds the clock and its
/// reading at time 0, for `read_marks`. The write is atomic. Throws Error(failed) with the path.
void write_trace(std::filesystem::path const& path, std::vector<RankTimes> const& ranks);

}  // namespace cli
}  // namespace programs
