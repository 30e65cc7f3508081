// SPDX-License-Identifier: Apache-2.0
// Builds the tables of a report as text cells, which the HTML and Markdown pages share.
#pragma once

#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

struct Column {
  std::string header;
  std::string unit;  ///< empty: none
  bool number = false;
};
struct Table {
  std::string name;  ///< of its section
  std::string title;
  std::string note;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::vector<std::size_t>> best;  ///< by row: columns with the best value; or empty
  std::vector<bool> unsteady;                  ///< by row; or empty
  bool commands = false;                       ///< the last column holds shell commands

  bool empty() const { return cells.empty(); }
};

/// Formats a number with commas between thousands; "-" if there is no value.
std::string number_text(std::optional<double> const& value, int decimals);

Table sources_table(Inputs const& inputs);
/// Returns the measured rows. The table has a column for every setting that varies and every measurement that
/// some row has.
Table results_table(Inputs const& inputs);
Table plans_table(Inputs const& inputs);
/// Returns the measurements of other programs, with their machine and date if known.
Table rivals_table(Inputs const& inputs);
/// Returns the machines of the input files: one line per property, one column per file.
Table environment_table(Inputs const& inputs);
/// Returns the command that repeats each row and the command that made each file.
Table repeat_table(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
