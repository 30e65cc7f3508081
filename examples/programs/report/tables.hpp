// SPDX-License-Identifier: Apache-2.0
// Builds the tables of a report as cells of text. The HTML page and the Markdown page print the same cells.
#pragma once

#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

struct Column {
  std::string header;
  std::string unit;  ///< empty if the column has no unit
  bool number = false;
};
struct Table {
  std::string name;  ///< the name of the table's section on the page, used in links
  std::string title;
  std::string note;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> cells;
  /// for each row the indices of the columns with a best value; empty without marks
  std::vector<std::vector<std::size_t>> best;
  std::vector<bool> unsteady;  ///< whether each row is unsteady; empty if no row is marked
  bool commands = false;       ///< whether the last column holds shell commands

  bool empty() const { return cells.empty(); }
};

/// Returns a number as text with `decimals` decimals and commas between thousands; "-" if there is no value.
std::string number_text(std::optional<double> const& value, int decimals);

Table sources_table(Inputs const& inputs);
/// Returns the table of measured rows. It has a column for each setting in which rows differ and for each
/// measurement that some row has.
Table results_table(Inputs const& inputs);
Table plans_table(Inputs const& inputs);
/// Returns the table of published figures, with our figures next to them.
Table published_table(Inputs const& inputs);
/// Returns the table of measurements of other programs, with their machines and dates as far as they are
/// known.
Table rivals_table(Inputs const& inputs);
/// Returns the table of the machines on which the input files were made: one line for each property, one
/// column for each file.
Table environment_table(Inputs const& inputs);
/// Returns the table of commands: for each row the command that repeats it, and for each file the command
/// that made it.
Table repeat_table(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
