// SPDX-License-Identifier: Apache-2.0
// Measured rows as result rows and as a table with a verdict.
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

/// The columns of each row. Some compare it with other rows: speedup, scaling, same program.
/// `device` is the device that the rows ran on.
std::vector<results::Measurements> measurements(std::vector<Measured> const& measured,
                                                Settings const& settings, DeviceFacts const& device,
                                                cli::ProductRate const& rate = &product_rate);

/// The rows as JSON.
std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                      std::vector<results::Measurements> const& rows);
inline std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                             Settings const& settings) {
  return result_rows(measured,
                     measurements(measured, settings, device_facts(device_named(settings.matrix.device))));
}

/// The rows of one table, by index: those of a model and precision, or all where each of these has one row.
using TableRows = std::vector<std::size_t>;
std::vector<TableRows> tables_of(std::vector<Measured> const& measured);

/// What the speedups of a table are against: of its rows that are ok one without offload, on the fewest
/// ranks, of stage 0, as far as there is one; the first of equals. Null when no row is ok.
Measured const* base_of(TableRows const& table, std::vector<Measured> const& measured);

/// By what share of it tokens_per_second varies: of several repeats the deviation, of one that of its steps.
/// Nothing where only one step was timed.
std::optional<double> spread_of(Measured const& row);
/// Seconds by which the steps of a repeat vary; nothing where only one was timed.
std::optional<double> step_deviation(Measured const& row);
/// Whether steps or repeats vary by more than `steady_share`; nothing where only one step was timed.
std::optional<bool> is_unsteady(Measured const& row);
/// Timed steps of all repeats that updated nothing, and whether these are so many that the rate is another
/// than that of training.
std::int64_t timed_skips(Measured const& row);
bool skips_much(Measured const& row);
/// Tokens a second of the timed steps that updated, which is what a prediction is of; nothing where none did.
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
/// Compares the last row with the others and records which rows run the identical schedule over identical
/// buffers. They are one program.
void note_twins(std::vector<Measured>& measured);
inline bool are_one_program(Measured const& one, Measured const& other) {
  return one.program && one.program == other.program;
}
/// Returns the uncertainty of a row's speedup over another: both spreads combined, times the larger of the
/// speedup and 1. For rows that are one program, the spread is at least the difference between them, so that
/// neither counts as faster. Returns nothing if a spread is unknown or one of the rows was disturbed.
std::optional<double> speedup_uncertainty(Measured const& row, Measured const& base);
/// Whether a row is faster than another by more than that.
bool is_faster(Measured const& one, Measured const& other);

/// The tables, a column for every list that varies and every measurement that some row has, as far as the
/// terminal has room; best values marked. Then the verdict: are the weights of each precision equal, is every
/// plan its peak, which row is fastest and which needs the least memory.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Measurements> const& rows,
                       cli::Terminal const& terminal);

}  // namespace compare
}  // namespace programs
