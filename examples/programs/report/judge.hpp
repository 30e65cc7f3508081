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

/// Returns the rows on the Pareto frontier of memory and speed, in the order of rising memory. Each row is
/// faster than the row before it by more than the sum of the deviations of these two rows. Rows without a
/// rate or without a peak memory are left out.
RowList frontier(RowList rows);

/// Returns the rows that are possibly the fastest: the row with the highest rate, and all rows whose rates
/// are lower by no more than the deviations. Returns an empty list if the deviations are unknown, or if all
/// rows would be returned.
RowList fastest_of(RowList rows);
/// Returns the rows that need the least device memory; empty if all rows need the same.
RowList smallest_of(RowList rows);

/// Returns a few sentences about the measured rows of `inputs`: what ran, and for each model the fastest row
/// and the row with the least memory. No row is called the fastest if its lead is within the deviations.
std::vector<std::string> verdict(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
