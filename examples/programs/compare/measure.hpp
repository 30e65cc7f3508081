// SPDX-License-Identifier: Apache-2.0
// Plans and trains one row of a comparison and measures its cost. A row is one recipe with one batch,
// sequence and number of ranks.
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

/// The results of one training run of a row. --repeat sets the number of runs of each row. Unless a comment
/// says otherwise, a value is the one of rank 0.
struct Repeat {
  std::vector<results::StepLogRow> log;  ///< every step, starting with the first
  TimedSteps timed;
  std::int64_t untimed = 0;  ///< steps before the timed ones
  /// number of steps before the weights were hashed; later steps were added for --min-time
  std::int64_t hashed_after = 0;
  std::vector<results::EpochLogRow> epochs;   ///< empty if the training length is given in steps
  std::int64_t tokens = 0, valid_tokens = 0;  ///< tokens of all steps, and those that count in the loss
  double final_loss_with_padding = 0.0;
  double first_step_s = 0.0;  ///< from the start of the row to the end of the first step
  double total_s = 0.0;       ///< from the start of the row until its weights are hashed
  double window_s = 0.0;      ///< host time between the reports before and after the timed steps
  double cpu_seconds = 0.0;   ///< CPU time of the process during window_s
  /// share of all core time that other programs used in window_s; absent if window_s is too short
  std::optional<double> other_load;
  std::optional<cli::GpuUse> gpus;  ///< GPU use during window_s; absent if window_s is too short
  std::int64_t peak_device = 0, arena_device = 0, arena_host = 0;  ///< bytes, the maximum over ranks
  /// size of a rank's NVMe file in bytes, the maximum over ranks
  std::int64_t peak_nvme = 0;
  double nvme_read = 0.0, nvme_written = 0.0;  ///< bytes per step, the maximum over ranks
  /// Bytes that are read and written per second while a rank's disk lane is busy, summed over ranks. A few
  /// extra steps at the end measure it. Absent if the row does not use NVMe.
  std::optional<double> nvme_bytes_per_s;
  /// device memory after the last step, the maximum over ranks
  std::optional<cli::DeviceMemoryUse> device_memory;
  /// engine for NVMe I/O; empty if the row does not use NVMe
  std::string nvme_engine;
  std::int64_t peak_resident = -1;  ///< peak memory of the process in bytes; -1 if unknown
  double comm_bytes = 0.0;          ///< bytes that the busiest rank sent per timed step
  /// Seconds per step in collectives, the mean over ranks. On the CPU the timed steps measure it. On GPUs a
  /// few extra steps at the end measure it; these steps affect no other field.
  std::optional<double> comm_s;
  /// the part of comm_s in which the rank computed nothing
  std::optional<double> comm_exposed_s;
  /// the part of comm_s in which the rank waited for other ranks
  std::optional<double> comm_waiting_s;
  /// the attention kernel that ran; automatic if none did
  AttentionKind attention = AttentionKind::automatic;
  /// number of matrix products that ran with an algorithm from --product-plans; absent without this flag
  std::optional<std::size_t> measured_products;
  std::string weights_hash;
  bool interrupted = false;
};

/// A row of a comparison with its measurements.
struct Measured {
  Point point;
  std::string status = "failed";  ///< ok, oom, refused or failed
  std::string reason;
  std::optional<std::int64_t> planned_device, planned_host, planned_nvme;  ///< bytes, the maximum over ranks
  std::optional<std::int64_t> device_limit;  ///< bytes of device memory that a rank may use
  std::optional<std::int64_t> params, trainable;
  std::string schedule_hash;
  cli::Prediction predicted;
  std::vector<Repeat> repeats;

  // note_twins sets the two members below. A program is the schedule of a step with its buffers. Rows with
  // the same program do the same work.
  /// the index of the first row with the same program; absent if no other row has the program of this row
  std::optional<std::size_t> program;
  /// how much faster the fastest row of this program is than the slowest one, as a fraction
  double twins_differ = 0.0;

  bool ok() const { return status == "ok"; }
  /// Returns the tokens per second of all ranks together: the median over the repeats.
  double tokens_per_second() const {
    std::vector<double> rates;
    for (Repeat const& repeat : repeats) rates.push_back(repeat.timed.rate());
    return cli::median(rates);
  }
};

/// Returns the number of steps of the row `point`, including warm-up steps.
std::int64_t steps_of(Settings const& settings, Point const& point, TokenSource const& data);

/// A function that rank 0 calls after every step, to show the progress. `done` is the number of finished
/// steps, and `total` is the number of all steps. `loss` is the loss of the last finished step.
using StepObserver =
    std::function<void(std::int64_t done, std::int64_t total, double tokens_per_second, double loss)>;

/// Trains one row --repeat times and returns its measurements. If an error concerns only this row, returns
/// the row with a status other than "ok" and with the reason. Throws all other errors.
Measured measure(Point const& point, Settings const& settings, TokenSource const& data,
                 StepObserver const& observer);

/// If a launcher started several processes, each process except the one of rank 0 calls this function. For
/// each row that rank 0 measures, the function runs the ranks of its own process. It returns when rank 0
/// destroys its RowServers object. `points` must be the same rows as on rank 0. `data_of` returns the data of
/// a row.
void serve_rows(std::vector<Point> const& points, Settings const& settings,
                std::function<TokenSource const&(Point const&)> const& data_of);
/// On rank 0, the destructor of this class ends serve_rows on the other processes. The object exists while
/// rows are measured, so the other processes also end after an error.
class RowServers {
 public:
  RowServers() = default;
  RowServers(RowServers const&) = delete;
  RowServers& operator=(RowServers const&) = delete;
  ~RowServers();
};

/// Returns the result of the row `point`, which was not trained. The result has the planned memory of the
/// row. If the row was refused, it also has the reason of the refusal; otherwise it has `reason`.
Measured not_run(Point const& point, Settings const& settings, std::string const& reason);

}  // namespace compare
}  // namespace programs
