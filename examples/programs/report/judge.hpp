// SPDX-License-Identifier: Apache-2.0
// Compares rows and decides whether a difference exceeds their measured variation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Returns the standard deviation of a row's rate, in tokens per second.
std::optional<double> rate_deviation(Row const& row);
/// Returns the standard deviation of a row's step time in seconds: over repeats if there are several, else
/// over steps.
std::optional<double> step_deviation(Row const& row);
/// Returns whether `one` is faster than `other` by more than the sum of both deviations. compare uses the
/// same rule.
bool is_faster(Row const& one, Row const& other);
/// Returns whether a row's speedup may be noise: it is within its uncertainty, or the uncertainty is unknown.
bool is_inconclusive_speedup(Row const& row);

/// Returns the rows on the Pareto frontier of memory and speed, by rising memory. Each is faster than the one
/// before by more than their deviations. Leaves out rows without a rate or a peak memory.
RowList frontier(RowList rows);

/// Returns the rows that may be the fastest: the fastest one, and all rows whose difference to it is within
/// the deviations. Returns an empty list if the deviations are unknown or if this holds for all rows.
RowList fastest_of(RowList rows);
/// Returns the rows with the smallest device memory; empty if all rows need the same.
RowList smallest_of(RowList rows);

/// Summarizes the rows in a few sentences: what ran, which row of each model is fastest and which needs the
/// least memory. Calls no row the fastest if its lead is within the deviations.
std::vector<std::string> verdict(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
