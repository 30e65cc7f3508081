// SPDX-License-Identifier: Apache-2.0
// Plans and trains one row of a comparison and measures its cost.
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

/// The results of one training run of a row. A row is run once per --repeat. Measured on rank 0 unless stated
/// otherwise.
struct Repeat {
  std::vector<results::StepLogRow> log;  ///< every step, starting with the first
  TimedSteps timed;
  std::int64_t untimed = 0;                   ///< steps before the timed ones
  std::int64_t hashed_after = 0;              ///< step of the hashed weights; later steps are --min-time's
  std::vector<results::EpochLogRow> epochs;   ///< if the training length is given in epochs
  std::int64_t tokens = 0, valid_tokens = 0;  ///< tokens of all steps, and those that count in the loss
  double final_loss_with_padding = 0.0;
  double first_step_s = 0.0;         ///< from the start of the row to the end of the first step
  double total_s = 0.0;              ///< from the start of the row to its hash
  double window_s = 0.0;             ///< host time between the reports before and after the timed steps
  double cpu_seconds = 0.0;          ///< CPU time of the process during window_s
  std::optional<double> other_load;  ///< other programs' share of core time in window_s; absent if too short
  std::optional<cli::GpuUse> gpus;   ///< GPU use during window_s; absent if too short
  std::int64_t peak_device = 0, arena_device = 0, arena_host = 0;  ///< bytes, the maximum over ranks
  std::int64_t peak_nvme = 0;                                      ///< bytes in a file, likewise
  double nvme_read = 0.0, nvme_written = 0.0;                      ///< bytes per step, the maximum over ranks
  std::optional<cli::DeviceMemoryUse> device_memory;  ///< after the last step, the maximum over ranks
  std::string nvme_engine;                            ///< engine for NVMe I/O; empty: none
  std::int64_t peak_resident = -1;                    ///< bytes of the process; -1 if unknown
  double comm_bytes = 0.0;                            ///< bytes that the busiest rank sent per timed step
  /// Seconds per step in collectives, mean over ranks. On the CPU they are measured in the timed steps. On
  /// GPUs they are measured in a few extra steps at the end, which affect no other field.
  std::optional<double> comm_s;
  std::optional<double> comm_exposed_s;                ///< part of comm_s in which the rank computed nothing
  std::optional<double> comm_waiting_s;                ///< part of comm_s spent waiting for other ranks
  AttentionKind attention = AttentionKind::automatic;  ///< kernel that ran; automatic if none did
  std::optional<std::size_t> measured_products;        ///< products with a measured plan; absent: no plans
  std::string weights_hash;
  bool interrupted = false;
};

/// A measured row.
struct Measured {
  Point point;
  std::string status = "failed";  ///< ok, oom, refused or failed
  std::string reason;
  std::optional<std::int64_t> planned_device, planned_host, planned_nvme;  ///< bytes, the maximum over ranks
  std::optional<std::int64_t> params, trainable;
  std::string schedule_hash;
  cli::Prediction predicted;
  std::vector<Repeat> repeats;

  // note_twins sets these members. A program is the schedule and the buffers of a step; several rows can have
  // the same one.
  std::optional<std::size_t> program;  ///< first row of the same program; absent: no other row
  double twins_differ = 0.0;           ///< lead of the fastest of these rows over the slowest, as a fraction

  bool ok() const { return status == "ok"; }
  /// Returns the median of the rates of all repeats.
  double tokens_per_second() const {
    std::vector<double> rates;
    for (Repeat const& repeat : repeats) rates.push_back(repeat.timed.rate());
    return cli::median(rates);
  }
};

/// Returns the number of steps of a row, including warm-up steps.
std::int64_t steps_of(Settings const& settings, Point const& point, TokenSource const& data);

/// Called on rank 0 after every step, to show the progress.
using StepObserver =
    std::function<void(std::int64_t done, std::int64_t total, double tokens_per_second, double loss)>;

/// Runs one row. If an error concerns only this row, sets its status instead of throwing.
Measured measure(Point const& point, Settings const& settings, TokenSource const& data,
                 StepObserver const& observer);

/// Runs the ranks of this process in the rows that rank 0 measures, until rank 0 ends that. For the other
/// processes of a launch. `points` are all rows of the command, as on rank 0.
void serve_rows(std::vector<Point> const& points, Settings const& settings,
                std::function<TokenSource const&(Point const&)> const& data_of);
/// Ends serve_rows on the other processes. Destroyed on rank 0 when no row follows, also after an error.
class RowServers {
 public:
  RowServers() = default;
  RowServers(RowServers const&) = delete;
  RowServers& operator=(RowServers const&) = delete;
  ~RowServers();
};

/// Returns a row that was skipped for this reason, with its planned memory.
Measured not_run(Point const& point, Settings const& settings, std::string const& reason);

}  // namespace compare
}  // namespace programs
