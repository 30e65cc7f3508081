// SPDX-License-Identifier: Apache-2.0
// One row: plan it, train it, and say what it cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/tokens.hpp"

#include "compare/settings.hpp"
#include "compare/timing.hpp"
#include "machine/gpu_watch.hpp"
#include "machine/gpus.hpp"
#include "results/results.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// One training of a row. Everything is measured on rank 0 unless it says otherwise.
struct Repeat {
  std::vector<results::StepLogRow> log;  ///< every step, from the very first
  TimedSteps timed;
  std::int64_t untimed = 0;       ///< steps before them
  std::int64_t hashed_after = 0;  ///< the step whose weights the hash is of: beyond it goes --min-time alone
  std::vector<results::EpochLogRow> epochs;  ///< where they say how long
  std::int64_t tokens = 0, unmasked = 0;     ///< of all steps; those that counted
  double final_loss_with_padding = 0.0;
  double first_step_s = 0.0;         ///< from the start of the row to the end of the first step
  double total_s = 0.0;              ///< the row from its start to its hash
  double window_s = 0.0;             ///< host time between the reports before and after the timed steps
  double cpu_seconds = 0.0;          ///< CPU time of the process during window_s
  std::optional<double> other_load;  ///< share of all core time that other programs used during window_s,
                                     ///< if that was long enough to tell
  std::optional<cli::GpuUse> gpus;   ///< use of its GPUs during window_s, if long enough
  std::int64_t peak_device = 0, arena_device = 0, arena_host = 0;  ///< bytes, the largest over ranks
  std::int64_t peak_nvme = 0;                                      ///< bytes of a file, likewise
  double nvme_read = 0.0, nvme_written = 0.0;                      ///< bytes of a step, likewise
  std::optional<cli::DeviceMemoryUse> device_memory;  ///< after the last step, the largest over ranks
  std::string nvme_engine;                            ///< what reads and writes; empty: nothing does
  std::int64_t peak_resident = -1;                    ///< bytes of the process; -1: unknown
  double comm_bytes = 0.0;                            ///< sent in a timed step by the busiest rank
  /// In collectives, of a step, mean over ranks: of the timed steps on the CPU; on GPUs of some steps after
  /// the last one, which are no part of anything else here.
  std::optional<double> comm_s;
  std::optional<double> comm_exposed_s;                ///< of that, while the rank computed nothing
  std::optional<double> comm_waiting_s;                ///< of that, waiting for other ranks
  AttentionKind attention = AttentionKind::automatic;  ///< what ran; automatic: none did
  std::optional<std::size_t> measured_products;        ///< that took a measured plan; none: they could not
  std::string weights_hash;
  bool interrupted = false;
};

/// A measured row.
struct Measured {
  Point point;
  std::string status = "failed";  ///< ok, oom, refused or failed
  std::string reason;
  std::optional<std::int64_t> planned_device, planned_host, planned_nvme;  ///< bytes, the largest over ranks
  std::optional<std::int64_t> params, trainable;
  std::string schedule_hash;
  cli::Prediction predicted;
  std::vector<Repeat> repeats;

  // Set by note_twins for rows that are one program.
  std::optional<std::size_t> program;  ///< index of the first row of that program; empty: no other row
  double twins_differ = 0.0;           ///< the lead of the fastest of them over the slowest, as a share

  bool ok() const { return status == "ok"; }
  /// The median over repeats.
  double tokens_per_second() const {
    std::vector<double> rates;
    for (Repeat const& repeat : repeats) rates.push_back(repeat.timed.rate());
    return cli::median(rates);
  }
};

/// The steps of a row, those to warm up included.
std::int64_t steps_of(Settings const& settings, Point const& point, TokenSource const& data);

/// Told by rank 0 after every step: steps done and to do, tokens a second, the loss.
using StepObserver =
    std::function<void(std::int64_t done, std::int64_t total, double tokens_per_second, double loss)>;

/// Runs one row. Throws nothing that concerns the row alone: that is its status.
Measured measure(Point const& point, Settings const& settings, TokenSource const& data,
                 StepObserver const& observer);

/// A row that was not run, with what the plan says of it.
Measured not_run(Point const& point, Settings const& settings, std::string const& reason);

}  // namespace compare
}  // namespace programs
