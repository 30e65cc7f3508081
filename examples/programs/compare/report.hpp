// SPDX-License-Identifier: Apache-2.0
// Converts the measured rows of the program `compare` to rows of result files, and to the text that the
// program prints: tables of the rows, and a verdict (a summary, for example which row is the fastest). A row
// is one model and recipe with one batch, sequence and number of ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tessera/train/any_trainer.hpp"

#include "cli/terminal.hpp"
#include "compare/measure.hpp"
#include "prediction/ceiling.hpp"
#include "results/results.hpp"
#include "results/verdicts.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// Returns the values of the result columns for each measured row. Some columns depend on several rows: the
/// speedup, the saved memory, the verdict, the scaling efficiency, and the first row with the same program
/// (schedule and buffers of a step). Rows with the same program get the speedup and the efficiency of the row
/// that represents the program.
/// `device` describes the device on which the rows ran. `rate(recipe)` returns the FLOP/s of matrix products
/// on this device, or nullopt.
std::vector<results::Measurements> measurements(std::vector<Measured> const& measured,
                                                Settings const& settings, DeviceFacts const& device,
                                                cli::ProductRate const& rate = &product_rate);

/// Returns the rows of the result file as JSON.
std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                      std::vector<results::Measurements> const& rows);
inline std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                             Settings const& settings) {
  return result_rows(measured,
                     measurements(measured, settings, device_facts(device_named(settings.matrix.device))));
}

/// The rows of one table, as indices into the measured rows. `tables_of` returns one table for each pair of
/// model and precision. If each pair has only one row, it returns one table with all rows.
using TableRows = std::vector<std::size_t>;
std::vector<TableRows> tables_of(std::vector<Measured> const& measured);

/// Returns the facts from which the rows are judged, in the order of the rows.
std::vector<results::Candidate> candidates_of(std::vector<Measured> const& measured);

/// Returns the row to which the speedups of a table are relative; null if no row completed. Among completed
/// rows it prefers a row without offload, then the fewest ranks, then stage 0. If several rows have the
/// program of this row, returns the row that represents the program.
Measured const* base_of(TableRows const& table, std::vector<Measured> const& measured);

/// Returns the peak of the arena of a rank's device in MB (2^20 bytes), the maximum over the repeats.
double peak_mb_of(Measured const& row);

/// Returns the standard deviation of a row's rate, as a fraction of the rate. With several repeats it is the
/// deviation over repeats, otherwise over steps. Returns nullopt if only one step was timed.
std::optional<double> spread_of(Measured const& row);
/// Returns the standard deviation of the step times in seconds, within the repeats of a row; nullopt if only
/// one step was timed.
std::optional<double> step_deviation(Measured const& row);
/// Returns whether the steps or repeats vary by more than `steady_share` (5%); nullopt if only one step was
/// timed.
std::optional<bool> is_unsteady(Measured const& row);
/// timed_skips returns how many timed steps of all repeats skipped the update because of an overflow in fp16.
/// skips_many_steps returns whether more than 5% of the timed steps skipped it. The rate of such a row does
/// not represent training.
std::int64_t timed_skips(Measured const& row);
bool skips_many_steps(Measured const& row);
/// Returns the rate in tokens per second over the timed steps that updated the weights; nullopt if no step
/// did. Predictions are compared with this rate.
std::optional<double> rate_of_updates(Measured const& row);
/// own_load returns the share of all core time that this program used during the timed steps of a row.
/// other_load returns the share that other programs used; nullopt if a repeat is too short to measure it.
double own_load(Measured const& row);
std::optional<double> other_load(Measured const& row);
/// Returns whether other programs used so much CPU time that the row's rate is not comparable. Always false
/// for a row on a GPU without offload, since its speed hardly depends on the CPU.
bool is_disturbed(Measured const& row);
/// Returns whether the row's rate may be compared with other rows: the row completed, did not skip many
/// steps, and other programs did not disturb it.
bool is_ranked(Measured const& row);
/// Compares the last row with the earlier rows. If some of them have the same program (schedule and buffers),
/// sets `program` and `twins_differ` of all these rows.
void note_twins(std::vector<Measured>& measured);
/// Returns whether the two rows have the same program, according to note_twins.
inline bool are_one_program(Measured const& one, Measured const& other) {
  return one.program && one.program == other.program;
}
/// Returns the uncertainty of the speedup of `row` over `base`. It is the sum of the relative deviations of
/// the two rows, times the larger of 1 and the speedup. If rows have the same program, they do the same work,
/// so the difference of their measured rates is noise: a deviation is at least this difference. Returns
/// nullopt if a deviation is unknown or if other programs disturbed one of the two rows.
std::optional<double> speedup_uncertainty(Measured const& row, Measured const& base);
/// Returns whether `one` is faster than `other` by more than the uncertainty of the speedup.
bool is_faster(Measured const& one, Measured const& other);

/// Returns the tables and the verdict as text. A table has a column for each setting that varies and for each
/// measurement that some row has, as far as the terminal is wide enough. It marks the best values. The
/// verdict says whether the weights of each precision are equal, whether the planned memory of every row
/// equals its peak, which row is fastest, which row needs the least memory and which row has the most tokens
/// per second for its memory. It also compares precisions, the utilization of GPUs, and the speed of the disk
/// with the advised speed.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Measurements> const& rows,
                       cli::Terminal const& terminal);

}  // namespace compare
}  // namespace programs
