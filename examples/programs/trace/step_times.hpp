// SPDX-License-Identifier: Apache-2.0
// Times the schedule entries of a few training steps. An entry is, for example, the forward pass of one
// block. Writes the times as a trace for Perfetto or as a table.
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

/// A span of time in nanoseconds of the machine's monotonic clock.
struct TimeSpan {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

/// The properties of a schedule entry. They are the same in every step.
struct TimedEntry {
  std::string name;  ///< "forward h.3": verb and unit, as `plan --schedule` prints them
  std::string kind;  ///< "forward", "reduce reduce_scatter": verb and move
  std::string unit;  ///< name of the unit; "-": none
  Lane lane = Lane::compute;
  int phase = -1;           ///< index into phase_names in marks.hpp; -1: none, as for moves
  bool collective = false;  ///< whether it moves values between ranks
  /// `bytes` are the bytes that a move carries, or the minimum that other work reads and writes.
  double flops = 0, bytes = 0;
  comm::ProcessGroup group{};  ///< of a collective: the ranks that take part
};

struct TimedInstance {
  int entry = 0;
  int micro_batch = -1;
  TimeSpan ran;
};

struct TimedStep {
  std::int64_t number = 0;  ///< number of the step, counted from 1
  TimeSpan whole;
  double reported = 0;  ///< seconds of the step in its StepReport
  std::vector<TimedInstance> instances;
};

/// The timed steps of one rank.
struct RankTimes {
  int rank = 0;
  std::int64_t clock_error = 0;  ///< nanoseconds by which the times possibly differ from the clock of rank 0
  std::vector<TimedEntry> entries;  ///< all entries of the schedule of a step
  std::vector<TimedStep> steps;
};

/// `text_of` returns the times of a rank as text, so that the rank can send them to another process. There,
/// `rank_times` converts the text back to times.
std::string text_of(RankTimes const& times);
RankTimes rank_times(std::string const& text);

/// Subtracts `offset` nanoseconds from all times.
void shift(RankTimes& times, std::int64_t offset);

/// Returns the time in nanoseconds of a clock that all threads and processes of this machine share.
std::int64_t monotonic_nanoseconds() noexcept;

/// Times steps of a trainer, one after another. The trainer must exist longer than the timer.
class StepTimer final : public EntryTimer {
 public:
  /// Reads the names of the entries from the trainer's schedule. To get their FLOPs and bytes, records a step
  /// without running it.
  StepTimer(AnyTrainer& trainer, int rank, std::function<std::int64_t()> clock = &monotonic_nanoseconds);

  /// Starts to time the next step. `number` is the number of this step. Call `end` after the StepReport of
  /// this step was read.
  void begin(std::int64_t number);
  /// Ends the step. If `keep` is false, drops its times, for example the times of a warm-up step.
  void end(double reported_seconds, bool keep = true);
  /// Returns the times of all kept steps, and removes them from the timer.
  RankTimes take() { return std::move(times_); }

  std::int64_t now() noexcept override { return clock_(); }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override;

 private:
  AnyTrainer& trainer_;
  std::function<std::int64_t()> clock_;
  RankTimes times_;
};

/// Tells `time_steps` on which batches to train and when to stop.
struct TimedSteps {
  std::function<Batch(std::int64_t step)> batch;
  std::int64_t max_steps = 3;  ///< maximum number of timed steps, after one warm-up step
  double enough_s = 1.0;       ///< no further step is timed after this many seconds
};

/// Trains as `steps` says, and returns the times of the steps' entries on this rank. All ranks must call it.
RankTimes time_steps(AnyTrainer& trainer, comm::Comm const& comm, TimedSteps const& steps);

/// One phase of a step: the time from the start of its first entry to the end of its last entry.
struct TimedPhase {
  int phase = 0;  ///< index into phase_names in marks.hpp
  TimeSpan ran;
};

/// Returns the phases of a step, sorted by time: forward, backward and update, possibly several times. If two
/// phases overlap, the later one starts at the end of the earlier one, so the results are disjoint.
std::vector<TimedPhase> phases_of(RankTimes const& times, TimedStep const& step);

/// The totals of one kind of entry (TimedEntry::kind) in one lane, per step.
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

/// The mean seconds per step of one lane, which is a queue of entries that run in order. `busy` is the time
/// in which an entry runs, `idle` the rest of the step. `kinds` are in the order in which they first ran.
struct LaneTimes {
  Lane lane = Lane::compute;
  double busy = 0, idle = 0;
  std::vector<KindTimes> kinds;
};

/// The mean times of a rank's timed steps, in seconds.
struct Profile {
  int rank = 0;
  std::vector<std::int64_t> steps;
  double step = 0;  ///< duration of a step, from the StepReports
  std::vector<LaneTimes> lanes;
  double collectives = 0;  ///< time of all collectives, including waits for other ranks
  double hidden = 0;       ///< the part of `collectives` during which entries compute

  double exposed() const { return collectives - hidden; }
  /// Returns the bytes per second that the entries of a lane move while they run; nullopt if they move none.
  std::optional<double> bytes_per_second(Lane lane) const;
};

Profile profile_of(RankTimes const& times);
std::string profile_text(Profile const& profile, std::size_t ranks);
/// Returns the profiles of all ranks as {"steps", "ranks": [{"rank", "step_ms", "lanes", "collectives"}]}.
nlohmann::ordered_json profile_json(std::vector<RankTimes> const& ranks);

/// Returns the numbers of the timed steps as text, for example "steps 3 to 5".
std::string steps_text(RankTimes const& times);
/// Writes the times in Chrome's trace event format. In the trace each rank is a process. It has one thread
/// for each lane, one for the steps and one for the phases of the steps. Each run of an entry is one slice.
/// Arrows lead from the rank that was the last to reach a collective to the other ranks, which waited for
/// it. The field otherData contains the name of the clock and its reading at time 0, for `read_marks`. The
/// file appears completely or not at all. Throws Error(failed) with the path.
void write_trace(std::filesystem::path const& path, std::vector<RankTimes> const& ranks);

}  // namespace cli
}  // namespace programs
