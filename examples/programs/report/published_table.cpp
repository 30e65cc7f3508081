// SPDX-License-Identifier: Apache-2.0
// Makes the table of published figures and our figures, from rows of `compare --published`.
#include <algorithm>

#include "cli/values.hpp"
#include "report/tables.hpp"
#include "results/published.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

Table published_table(Inputs const& inputs) {
  Table table{"published",
              "Published figures",
              "Published figures and ours in the same units. +- is the standard deviation over repeats. The "
              "machines and methods differ. ",
              {{"comparison", "", false},
               {"row", "", false},
               {"figure", "", false},
               {"published", "", true},
               {"+-", "", true},
               {"ours", "", true},
               {"+- ours", "", true},
               {"ratio", "", true}},
              {},
              {},
              {}};
  RowList rows;
  for (Row const& row : inputs.rows)
    if (!row.published.empty()) rows.push_back(&row);
  Labels const labels(rows, inputs);
  auto const text = [](std::optional<double> const& value) {
    if (!value) return std::string("-");
    double const size = std::max(*value, -*value);
    return number_text(value, size >= 1000.0 ? 0 : size >= 10.0 ? 1 : size >= 1.0 ? 2 : 4);
  };
  cli::Names comparisons;
  for (Row const* row : rows)
    for (PublishedFigure const& figure : row->published) comparisons.push_back(figure.comparison);
  for (std::string const& name : cli::distinct(std::move(comparisons)))
    table.note += cli::published_about(name);
  for (Row const* row : rows) {
    std::string const label = labels.of(*row);
    for (PublishedFigure const& figure : row->published) {
      std::string name = figure.name;
      std::replace(name.begin(), name.end(), '_', ' ');
      table.cells.push_back({figure.comparison, label.empty() ? (*row)[Word::experiment] : label, name,
                             text(figure.published), text(figure.published_deviation), text(figure.ours),
                             text(figure.our_deviation), number_text(figure.ratio, 2)});
    }
  }
  return table;
}

}  // namespace reporting
}  // namespace programs
