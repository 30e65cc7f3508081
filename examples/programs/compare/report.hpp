// SPDX-License-Identifier: Apache-2.0
// Converts measured rows to rows of result files, and to a table with a verdict.
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

namespace programs {
using namespace tessera;
namespace compare {

/// Returns the values of each row's columns in result files. Some columns compare the row with others:
/// speedup, scaling efficiency, same program. `device` is the device that the rows ran on.
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

/// The rows of one table, as indices. There is one table per model and precision, or one for all rows if each
/// model and precision has only one row.
using TableRows = std::vector<std::size_t>;
std::vector<TableRows> tables_of(std::vector<Measured> const& measured);

/// Returns the row against which the speedups of a table are computed. It is a completed row, preferably
/// without offload, then on the fewest ranks, then at stage 0. Returns null if no row completed.
Measured const* base_of(TableRows const& table, std::vector<Measured> const& measured);

/// Returns the standard deviation of a row's rate as a fraction of the rate: over repeats if there are
/// several, else over steps. Returns nullopt if only one step was timed.
std::optional<double> spread_of(Measured const& row);
/// Returns the standard deviation of a repeat's step times in seconds; nullopt if only one step was timed.
std::optional<double> step_deviation(Measured const& row);
/// Returns whether steps or repeats vary by more than `steady_share`; nullopt if only one step was timed.
std::optional<bool> is_unsteady(Measured const& row);
/// timed_skips returns the number of timed steps, over all repeats, that skipped the update (fp16 overflow).
/// skips_many_steps returns whether there were too many of them for the rate to represent training.
std::int64_t timed_skips(Measured const& row);
bool skips_many_steps(Measured const& row);
/// Returns the rate in tokens per second over the timed steps that updated the weights. Predictions are
/// compared with this rate. Returns nullopt if no step updated.
std::optional<double> rate_of_updates(Measured const& row);
/// own_load returns the share of all core time that this program used during a row's timed steps. other_load
/// returns the share of other programs, or nullopt if a repeat is too short to measure it.
double own_load(Measured const& row);
std::optional<double> other_load(Measured const& row);
/// Returns whether other programs used so much CPU time that the row's rate cannot be ranked. Always false
/// for rows on a GPU without offload.
bool is_disturbed(Measured const& row);
/// Returns whether the row's rate is compared with other rows: the row completed, trained, and was not
/// disturbed by other programs.
bool is_ranked(Measured const& row);
/// Compares the last row with the earlier ones. Marks rows that run the same schedule over the same buffers
/// as the same program.
void note_twins(std::vector<Measured>& measured);
inline bool are_one_program(Measured const& one, Measured const& other) {
  return one.program && one.program == other.program;
}
/// Returns the uncertainty of a row's speedup over `base`: the sum of both relative deviations, times the
/// speedup or 1, whichever is larger. For rows of the same program, a deviation is at least the measured
/// difference between them, so that neither counts as faster. Returns nullopt if a deviation is unknown or
/// one of the rows was disturbed.
std::optional<double> speedup_uncertainty(Measured const& row, Measured const& base);
/// Returns whether `one` is faster than `other` by more than the uncertainty.
bool is_faster(Measured const& one, Measured const& other);

/// Formats the tables and the verdict. A table has a column for each setting that varies and each measurement
/// that some row has, as far as the terminal is wide enough. Best values are marked. The verdict says whether
/// the weights of each precision are equal, whether every row's planned memory equals its peak, which row is
/// fastest and which needs the least memory.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Measurements> const& rows,
                       cli::Terminal const& terminal);

}  // namespace compare
}  // namespace programs
