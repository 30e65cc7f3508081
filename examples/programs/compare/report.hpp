// SPDX-License-Identifier: Apache-2.0
// Converts measured rows to result rows and to a table with a verdict.
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

/// Returns the columns of each row. Some compare it with other rows: speedup, scaling, same program. `device`
/// is the device that the rows ran on.
std::vector<results::Measurements> measurements(std::vector<Measured> const& measured,
                                                Settings const& settings, DeviceFacts const& device,
                                                cli::ProductRate const& rate = &product_rate);

/// Returns the rows as JSON.
std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                      std::vector<results::Measurements> const& rows);
inline std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                             Settings const& settings) {
  return result_rows(measured,
                     measurements(measured, settings, device_facts(device_named(settings.matrix.device))));
}

/// The rows of one table, by index. A table holds the rows of one model and precision, or all rows if each
/// model and precision has only one.
using TableRows = std::vector<std::size_t>;
std::vector<TableRows> tables_of(std::vector<Measured> const& measured);

/// Returns the baseline for the speedups of a table: the best row that is ok, where no offload counts first,
/// then the fewest ranks, then stage 0. Of equal rows it is the first. Returns null if no row is ok.
Measured const* base_of(TableRows const& table, std::vector<Measured> const& measured);

/// Returns the relative deviation of tokens_per_second: over repeats if there are several, otherwise over
/// steps. Returns nothing if only one step was timed.
std::optional<double> spread_of(Measured const& row);
/// Returns the standard deviation of a repeat's step times in seconds; nothing if only one step was timed.
std::optional<double> step_deviation(Measured const& row);
/// Checks whether steps or repeats vary by more than `steady_share`. Returns nothing if only one step was
/// timed.
std::optional<bool> is_unsteady(Measured const& row);
/// Returns the number of timed steps in all repeats that skipped the update. skips_much checks whether they
/// are so many that the rate does not represent training.
std::int64_t timed_skips(Measured const& row);
bool skips_much(Measured const& row);
/// Returns tokens per second over the timed steps that updated, the quantity that is predicted. Returns
/// nothing if no step updated.
std::optional<double> rate_of_updates(Measured const& row);
/// Returns the share of all core time that this program used during a row's timed steps. other_load returns
/// the share of other programs, or nothing if a repeat is too short to tell.
double own_load(Measured const& row);
std::optional<double> other_load(Measured const& row);
/// Checks whether other programs used too much CPU time for the row's rate to be ranked. Rows on a GPU
/// without offload are never disturbed.
bool is_disturbed(Measured const& row);
/// Checks whether the row's rate is compared with other rows: it succeeded, trained and was not disturbed.
bool is_ranked(Measured const& row);
/// Compares the last row with the others and records the rows that run the identical schedule over identical
/// buffers. Such rows are the same program.
void note_twins(std::vector<Measured>& measured);
inline bool are_one_program(Measured const& one, Measured const& other) {
  return one.program && one.program == other.program;
}
/// Returns the uncertainty of a row's speedup over another: both spreads combined, times the larger of the
/// speedup and 1. For rows of the same program, the spread is at least the difference between them, so that
/// neither counts as faster. Returns nothing if a spread is unknown or one of the rows was disturbed.
std::optional<double> speedup_uncertainty(Measured const& row, Measured const& base);
/// Checks whether a row is faster than another by more than the uncertainty.
bool is_faster(Measured const& one, Measured const& other);

/// Formats the tables and the verdict. Each varying list and each measurement that some row has gets a
/// column, as far as the terminal is wide enough. Best values are marked. The verdict says whether the
/// weights of each precision are equal, whether every plan equals its peak, which row is fastest and which
/// needs the least memory.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Measurements> const& rows,
                       cli::Terminal const& terminal);

}  // namespace compare
}  // namespace programs
