// SPDX-License-Identifier: Apache-2.0
// Provides the tables of a report as text cells, for every kind of page.
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
/// Has a column for every dimension that varies and every measurement that some row has.
Table results_table(Inputs const& inputs);
Table plans_table(Inputs const& inputs);
/// Lists measurements of other programs, with their known machine and date.
Table rivals_table(Inputs const& inputs);
/// Lists what the files say of their machines: one line per property, one column per file.
Table environment_table(Inputs const& inputs);
/// Lists the command that repeats each row and the command that made each file.
Table repeat_table(Inputs const& inputs);

}  // namespace reporting
}  // namespace programs
