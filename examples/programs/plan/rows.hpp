// SPDX-License-Identifier: Apache-2.0
// Writes the rows of the result table of the program `plan` as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "plan/planning.hpp"
#include "plan/settings.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// Returns a row as an object of the JSON file. `picked` is the row that `plan` recommends for the family of
/// this row; null if there is none.
results::Row to_json(Planned const& row, MemoryLimit const& limit, Planned const* picked);

/// Returns the plans as rows of result files without measured values, for the comparison with published rows.
std::vector<results::Row> result_rows(std::vector<Planned> const& rows);

/// Returns a size as text: "1.50 GiB", "12.3 MiB", "7.8 KiB", "640 B".
std::string size_text(std::int64_t bytes);

/// Returns one row of the result table as text. If `first` is true, the row is the first of its group, and
/// the heading of the group precedes it. A row is printed as soon as it is planned, so the widths of columns
/// do not depend on later rows. Appends to `left_out` the names of columns that do not fit the terminal.
std::string row_text(Planned const& row, bool first, Settings const& settings, cli::Terminal const& terminal,
                     cli::Names& left_out);

}  // namespace planning
}  // namespace programs
