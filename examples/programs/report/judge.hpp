// SPDX-License-Identifier: Apache-2.0
// Compares rows of the result table, and decides whether the difference of two rows is larger than their
// measured variation. A row has the results of one measured configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Returns the standard deviation of a row's rate, in tokens per second; nullopt if it is unknown.
std::optional<double> rate_deviation(Row const& row);
/// Returns the standard deviation of a row's step time in seconds. If the row has several repeats of the
/// measurement, the result is the deviation over the repeats, otherwise the deviation over the steps.
std::optional<double> step_deviation(Row const& row);
/// Returns whether `one` is faster than `other` by more than the sum of the two deviations. The program
/// `compare` uses the same rule.
bool is_faster(Row const& one, Row const& other);
/// Returns whether the speedup of a row is possibly only noise: it differs from 1 by at most its uncertainty,
/// or the uncertainty is unknown.
bool is_inconclusive_speedup(Row const& row);

/// Returns the rows that no other row represents. If several rows have the same program, the plainest one
/// represents all of them. See results::represented_by.
RowList represented(RowList rows);

/// Returns the rows on the Pareto frontier of memory and speed, in the order of rising memory. Each row is
/// faster than the row before it by more than the sum of the deviations of these two rows. Leaves out rows
/// without a rate, rows without a peak memory, and rows that another row represents.
RowList frontier(RowList rows);

/// Returns the rows that are possibly the fastest: the row with the highest rate, and all rows whose rates
/// are lower by no more than the deviations. If several rows have the same program, only the row that
/// represents them is compared. The others follow it in the list. Returns an empty list if the deviations are
/// unknown, or if all rows would be returned.
RowList fastest_of(RowList rows);
/// Like fastest_of, but for the efficiency: tokens per second for the peak of the memory.
RowList most_efficient_of(RowList rows);
/// Returns the rows that need the least memory (Row::memory_mb); empty if all rows need the same.
RowList smallest_of(RowList rows);

/// Computes the columns that files of older versions of `compare` lack: the efficiency, the saved memory, the
/// reduction of the loss and the verdict. Rows with the same program get the speedup of the row that
/// represents them. `first` is the index of the first row of the file in `inputs`. `rows` are the rows of the
/// file. `environment` is the section of the file that has the memory of the GPUs. Does nothing if the file
/// has these columns.
void complete_rows(Inputs& inputs, std::size_t first, results::Row const& rows,
                   results::Row const& environment);

/// Returns a few sentences about the measured rows of `inputs`: the number of rows of each status, and for
/// each model the fastest row, the row with the least memory and the row with the best efficiency. No row is
/// called the best if its lead is within the deviations. Also compares precisions and the utilization of
/// GPUs.
std::vector<std::string> verdict(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
