// SPDX-License-Identifier: Apache-2.0
// Compares rows with regard to their measured variation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Returns the deviation of a row's rate, in tokens per second.
std::optional<double> rate_deviation(Row const& row);
/// Returns the deviation of a row's step time in seconds, over repeats if there are several.
std::optional<double> step_deviation(Row const& row);
/// Checks whether one row is faster than another by more than both vary. compare uses the same rule.
bool is_faster(Row const& one, Row const& other);
/// Checks whether a row's speedup is within the variation of the row and its base, or that variation is
/// unknown.
bool is_untold_speedup(Row const& row);

/// Returns the rows that trade memory for speed, by rising memory. Each is faster than the one before it by
/// more than they vary. Rows without a rate or a peak are left out.
RowList frontier(RowList rows);

/// Returns the rows that may be the fastest: no other row is faster by more than both vary. Empty if the
/// variation is unknown or if this holds for all rows.
RowList fastest_of(RowList rows);
/// Returns the rows that need the least device memory. Empty if all need the same.
RowList smallest_of(RowList rows);

/// Summarizes the rows in one sentence each: what ran, which row of a model is the fastest and which needs
/// the least memory. No row is called the fastest if the difference is within the variation.
std::vector<std::string> verdict(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
