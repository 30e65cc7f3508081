// SPDX-License-Identifier: Apache-2.0
// When the entries of a few steps ran: as a trace that Perfetto opens, and as a profile.
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

/// A stretch of time, in nanoseconds of the machine's monotonic clock.
struct TimeSpan {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

/// What is known of an entry of the schedule before it runs.
struct TimedEntry {
  std::string name;  ///< "forward h.3": verb and unit, as plan --schedule has them
  std::string kind;  ///< "forward", "reduce reduce_scatter": verb and move
  std::string unit;  ///< "-": none
  Lane lane = Lane::compute;
  int phase = -1;               ///< of phase_names in marks.hpp; -1: none, as moves have
  bool collective = false;      ///< values go between ranks
  double flops = 0, bytes = 0;  ///< bytes: of a move what it carries, of work what its operations read and
                                ///< write at least
};

struct TimedInstance {
  int entry = 0;
  int micro_batch = -1;
  TimeSpan ran;
};

struct TimedStep {
  std::int64_t number = 0;  ///< from 1
  TimeSpan whole;
  double reported = 0;  ///< seconds, of its StepReport
  std::vector<TimedInstance> instances;
};

/// The timed steps of one rank.
struct RankTimes {
  int rank = 0;
  std::vector<TimedEntry> entries;  ///< of the schedule
  std::vector<TimedStep> steps;
};

/// Nanoseconds since some moment that is the same for all threads and processes of this machine.
std::int64_t monotonic_nanoseconds() noexcept;

/// Times the steps of a trainer, which it must not outlive, one after the other.
class StepTimer final : public EntryTimer {
 public:
  /// Names the entries, and asks a recorded step what each costs.
  StepTimer(AnyTrainer& trainer, int rank, std::function<std::int64_t()> clock = &monotonic_nanoseconds);

  /// The next step is timed; `end` after its ticket was read.
  void begin(std::int64_t number);
  /// Not `kept`: it warmed up what timed steps use.
  void end(double reported_seconds, bool kept = true);
  /// The steps so far.
  RankTimes take() { return std::move(times_); }

  std::int64_t now() noexcept override { return clock_(); }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override;

 private:
  AnyTrainer& trainer_;
  std::function<std::int64_t()> clock_;
  RankTimes times_;
};

/// Steps to be timed one after the other.
struct TimedSteps {
  std::function<Batch(std::int64_t step)> batch;
  std::int64_t kept = 3;  ///< the most steps that are timed; one more step before them warms up
  double enough_s = 1.0;  ///< the seconds after which no further step is timed
};

/// Trains these steps and returns the times of their entries on this rank. Collective.
RankTimes time_steps(AnyTrainer& trainer, comm::Comm const& comm, TimedSteps const& steps);

/// A part of a step, from the first to the last of neighbouring entries of one phase.
struct TimedPhase {
  int phase = 0;  ///< of phase_names in marks.hpp
  TimeSpan ran;
};

/// The phases of a step in order and apart: of two at once the one that began first lasts.
std::vector<TimedPhase> phases_of(RankTimes const& times, TimedStep const& step);

/// What all entries of one kind did in one lane, a step.
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

/// A lane, a step: the kinds in the order in which they first ran. Idle is every moment in which none of its
/// entries ran.
struct LaneTimes {
  Lane lane = Lane::compute;
  double busy = 0, idle = 0;
  std::vector<KindTimes> kinds;
};

/// The mean of a rank's timed steps, in seconds.
struct Profile {
  int rank = 0;
  std::vector<std::int64_t> steps;
  double step = 0;  ///< as the reports say
  std::vector<LaneTimes> lanes;
  double collectives = 0;  ///< all of them, waiting for other ranks included
  double hidden = 0;       ///< of that, while the compute lane ran an entry

  double exposed() const { return collectives - hidden; }
};

Profile profile_of(RankTimes const& times);
std::string profile_text(Profile const& profile, std::size_t ranks);
/// {"steps", "ranks": [{"rank", "step_ms", "lanes", "collectives"}]}.
nlohmann::ordered_json profile_json(std::vector<RankTimes> const& ranks);

/// "steps 3 to 5".
std::string steps_text(RankTimes const& times);
/// Writes Chrome's trace events: a process a rank, a thread a lane, one for the steps and one for their
/// phases, a slice an instance. otherData says the clock and its reading at time 0, for `read_marks`.
/// Whole or not at all; throws Error(failed) with the path.
void write_trace(std::filesystem::path const& path, std::vector<RankTimes> const& ranks);

}  // namespace cli
}  // namespace programs
