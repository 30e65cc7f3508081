// SPDX-License-Identifier: Apache-2.0
// Judges measured rows: which of them run the same program, which are the best ones of a figure, and which
// verdict a row gets. A row is one model and recipe with one batch, sequence and number of ranks. A
// difference of two rows counts only if it is larger than the variation of the rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/policy/table.hpp"

#include "results/results.hpp"

namespace programs {
namespace results {

/// The facts about a row from which it is judged.
struct Candidate {
  std::string name;  ///< the name of the row in sentences
  /// Equal for rows that do the same work: the model, ranks, samples and tokens of a step. A user chooses
  /// between such rows.
  std::string work;
  std::string precision, sharding;
  /// the sharding and all other policies that are not the default of their slot, without the precision:
  /// "zs2", "zs3 offload cpu_optimizer"
  std::string recipe;
  std::string status;  ///< ok, oom, refused or failed
  bool ranked = true;  ///< false if the rate does not represent the row, for example in a disturbed row
  std::optional<double> rate;      ///< tokens per second of all ranks
  std::optional<double> spread;    ///< standard deviation of the rate, as a fraction of the rate
  std::optional<double> peak_mb;   ///< peak of the memory of a rank, see rank_memory_mb
  std::optional<double> limit_mb;  ///< the memory that a rank may use, in the same place
  /// mean utilization of the GPUs, and its standard deviation over repeats, both in percent
  std::optional<double> utilization_pct, utilization_deviation_pct;
  /// rows with an equal value run the same program (schedule and buffers of a step); absent if no other row
  /// runs the program of this row
  std::optional<std::size_t> program;

  bool ok() const { return status == "ok"; }
  /// Returns whether the row may be compared with other rows by its rate: it completed, nothing disturbed it,
  /// and its rate is a finite number above 0.
  bool has_rank() const { return ok() && ranked && rate && *rate > 0.0 && std::isfinite(*rate); }
};
using Candidates = std::span<Candidate const>;

/// Sets the precision, the sharding and the recipe of `row` from the names of its policies. Adapters train
/// other parameters, so they are added to the row's work. An empty name means the default of its slot.
void describe_recipe(Candidate& row, SlotNames const& names);

/// Returns the peak of the memory of a rank by which rows are compared, in MB (2^20 bytes). On a GPU it is
/// `device_mb`, the peak of the arena of the device. On the CPU this arena and the arena with offloaded state
/// (`host_mb`) are in the same memory, so it is their sum. Returns nullopt if a part is unknown. `device` and
/// `offload` are the names of the row's policies.
std::optional<double> rank_memory_mb(std::string_view device, std::string_view offload,
                                     std::optional<double> device_mb, std::optional<double> host_mb);
/// Returns the name of this memory for sentences about several rows: "device memory", or "device and host
/// memory" if the memory of a row has both parts.
std::string memory_name(bool has_host_part);

/// Returns how plain a sharding is: 0 for ZeRO stage 0, 3 for stage 3, and 4 for any other sharding, such as
/// dp, in which only one rank updates.
int plainness(std::string_view sharding);

/// Returns the index of the row that represents the program of the row `at`: the plainest completed row with
/// this program whose rate may be ranked. If none may be ranked, it is the plainest completed row, and if
/// none was completed, it is `at`. All rows of a program do the same work, so their measured rates differ
/// only by noise. Therefore only the representing row is compared with other programs.
std::size_t represented_by(Candidates rows, std::size_t at);
/// Returns the indices of the rows that represent programs, in the order of the rows. Leaves out programs
/// whose rates must not be ranked.
std::vector<std::size_t> ranked_programs(Candidates rows);

/// Returns the efficiency: the tokens per second of all ranks for each 2^30 bytes of the peak memory of a
/// rank (rank_memory_mb). Returns nullopt if one of them is unknown.
std::optional<double> efficiency_of(std::optional<double> rate, std::optional<double> peak_mb);
/// Returns by how many percent `value` is less than `base`; negative if it is more. Returns nullopt if a
/// value is unknown or `base` is not above 0.
std::optional<double> percent_less(std::optional<double> value, std::optional<double> base);

/// Returns the uncertainty of the ratio of two figures: the sum of their relative deviations, times the
/// larger of 1 and the ratio.
inline double ratio_uncertainty(double ratio, double spread_of_one, double spread_of_other) {
  return std::max(1.0, ratio) * (spread_of_one + spread_of_other);
}
/// Returns whether the ratio of two figures exceeds 1 by more than its uncertainty. Returns false if a figure
/// or a deviation is unknown.
bool is_higher(std::optional<double> one, std::optional<double> spread_of_one, std::optional<double> other,
               std::optional<double> spread_of_other);

/// A figure of a row that grows with its rate: the rate itself, or the efficiency.
using Figure = std::function<std::optional<double>(Candidate const&)>;
std::optional<double> rate_of(Candidate const& row);
std::optional<double> efficiency_of(Candidate const& row);

/// The programs that are possibly the best ones, as returned by leaders_of.
struct Leaders {
  std::vector<std::size_t> rows;  ///< the first row has the highest figure; no other row is clearly lower
  std::size_t programs = 0;       ///< number of programs that were compared
  bool is_known = false;          ///< false if the variation of rows[0] is unknown
};
Leaders leaders_of(Candidates rows, Figure const& figure);

/// The bounds of the verdicts. docs/choosing.md has the rules.
inline constexpr double roomy_pct = 60.0;          ///< up to this share of its limit, memory is not short
inline constexpr double overkill_loss_pct = 25.0;  ///< a slower row that saves memory nobody needs
inline constexpr double fallback_loss_pct = 100.0 / 3.0;  ///< a slower row that saves memory that is short

/// Returns a verdict for each row: optimal, works, unnecessary, overkill, fallback, oom, or "same program as
/// X". The verdict is nullopt if a row did not run, if its rate must not be ranked, or if too few rows of the
/// same work and precision were measured to judge it.
std::vector<std::optional<std::string>> verdicts(Candidates rows);

/// Returns at most six sentences about the precisions of equal recipes, and about the utilization of GPUs by
/// recipes of equal precision. Leaves out differences within the variation of the rows.
std::vector<std::string> observations(Candidates rows);

/// State on NVMe should be on a disk with at least this many 10^9 bytes per second.
inline constexpr double advised_disk_gb_per_s = 5.0;
/// Returns the speed of a disk as text, and advice if the disk is slower than advised.
std::string disk_text(double gb_per_s);
/// Returns disk_text if the disk is slower than advised; else "".
std::string slow_disk_text(std::optional<double> gb_per_s);

/// Returns the index of the completed row with the highest rate. If several rows have the same program, only
/// the row that represents them counts. Rows that other programs disturbed count only if no other row is
/// left. A measured rate is above 0, so a row with another rate does not count as completed.
/// Returns nullopt if no row was completed.
std::optional<std::size_t> fastest_row(std::span<Row const> rows);

}  // namespace results
}  // namespace programs
