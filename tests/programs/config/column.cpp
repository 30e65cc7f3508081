// SPDX-License-Identifier: Apache-2.0
// Prints an empty result row, the schema of its columns, and the columns of the table in the terminal.
// column.cmake checks this output.
#include <iostream>
#include <span>

#include "results/results.hpp"

int main() {
  namespace results = programs::results;
  results::Row row = results::empty_row();
  results::Measurements measured;
  measured.trial = 1.5;
  results::write(row, measured);
  std::cout << row.dump() << "\n"
            << results::column_schemas().dump() << "\n"
            << results::to_csv(std::span<results::Row const>(&row, 1));
  for (results::Column const* column : results::terminal_columns()) {
    std::cout << column->terminal.header;
    if (auto const number = column->number(measured)) std::cout << ": " << *number * column->unit.factor;
    std::cout << "\n";
  }
}
