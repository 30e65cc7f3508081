// SPDX-License-Identifier: Apache-2.0
// What can be said of rows against each other, as far as they can be told apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Tokens a second by which its rate varies.
std::optional<double> rate_deviation(Row const& row);
/// Seconds by which its steps vary, over repeats where there are several.
std::optional<double> step_deviation(Row const& row);
/// Whether one row is faster than another by more than both vary, as compare says it.
bool is_faster(Row const& one, Row const& other);
/// Whether the speed-up of a row is within what it and its base vary by, or that is not known.
bool is_untold_speedup(Row const& row);

/// Of rows the ones that buy speed with memory: by rising memory, each faster than the one before it by more
/// than they vary. Rows without a rate or a peak are left out.
RowList frontier(RowList rows);

/// The rows that may be the fastest: none is faster than they by more than both vary. None where that is not
/// known, or all of them.
RowList fastest_of(RowList rows);
/// The rows that need the least device memory; none where all need the same.
RowList smallest_of(RowList rows);

/// What the rows say together, a sentence each: what ran, which row of a model is the fastest and which
/// needs the least memory. No row is the fastest within what rows vary by.
std::vector<std::string> verdict(Material const& material);

}  // namespace reporting
}  // namespace programs
