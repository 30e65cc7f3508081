// SPDX-License-Identifier: Apache-2.0
// A program that prints the columns of results in three forms: a row of the result table with only one value,
// the JSON schema and the CSV of the columns, and the columns that the terminal shows. The test column.cmake
// checks this output.
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
