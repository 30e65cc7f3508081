// SPDX-License-Identifier: Apache-2.0
// The tables of a report as text in cells, for every kind of page.
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
  std::vector<std::vector<std::size_t>> best;  ///< of each row the columns whose best value it has; or none
  std::vector<bool> unsteady;                  ///< of each row; or none
  bool commands = false;                       ///< the last column holds lines for a shell

  bool empty() const { return cells.empty(); }
};

/// A number with commas between thousands; "-" where there is none.
std::string number_text(std::optional<double> const& value, int decimals);

Table sources_table(Material const& material);
/// A column for every dimension that varies and every measurement that some row has.
Table results_table(Material const& material);
Table plans_table(Material const& material);
/// What other programs did, with what is known of where and when.
Table rivals_table(Material const& material);
/// A line for each thing that the files say of their machine, a column a file.
Table environment_table(Material const& material);
/// Of each row the line that runs it anew, of each file the line that made it.
Table repeat_table(Material const& material);

}  // namespace reporting
}  // namespace programs
