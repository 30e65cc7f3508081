// SPDX-License-Identifier: Apache-2.0
// Makes the table of published figures and our figures, from rows of compare and plan.
#include <algorithm>
#include <cmath>

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
  for (auto const* const list : {&inputs.rows, &inputs.plans})
    for (Row const& row : *list)
      if (!row.published.empty()) rows.push_back(&row);
  bool const planned = std::any_of(rows.begin(), rows.end(), [](Row const* row) {
    return std::any_of(row->published.begin(), row->published.end(),
                       [](PublishedFigure const& figure) { return figure.planned.has_value(); });
  });
  if (planned) {
    table.columns.push_back({"planned", "", true});
    table.note += "Planned is the planned memory or the predicted speed of a row that did not run. ";
  }
  Labels const labels(rows, inputs);
  auto const name_of = [&](Row const& row) {
    std::string const label = labels.of(row);
    return label.empty() ? row[Word::experiment] : label;
  };
  auto const text = [](std::optional<double> const& value) {
    if (!value) return std::string("-");
    double const size = std::abs(*value);
    int const decimals = size >= 1000.0 ? 0 : size >= 10.0 ? 1 : size >= 1.0 ? 2 : 4;
    // A value below 0.001, such as a deviation of step times, has two significant digits.
    if (decimals < 4 || size >= 0.001 || size == 0.0) return number_text(value, decimals);
    return number_text(value, 1 - static_cast<int>(std::floor(std::log10(size))));
  };
  // A published value has all its digits: rounded again, a published 1.575 could become 1.57.
  auto const as_published = [](std::optional<double> const& value) {
    if (!value) return std::string("-");
    std::string const digits = cli::exact(*value);
    if (digits.find('e') != digits.npos) return digits;
    std::size_t const point = digits.find('.');
    return number_text(value, point == digits.npos ? 0 : static_cast<int>(digits.size() - point) - 1);
  };
  cli::Names comparisons;
  for (Row const* row : rows)
    for (PublishedFigure const& figure : row->published) comparisons.push_back(figure.comparison);
  for (std::string const& name : cli::distinct(std::move(comparisons)))
    table.note += cli::published_about(name);
  cli::Names impossible;
  for (Row const* row : rows)
    if (!row->published_cannot_be.empty())
      impossible.push_back(name_of(*row) + ": " + row->published_cannot_be);
  if (!impossible.empty()) table.note += "Cannot be: " + cli::joined(impossible, "; ") + ". ";
  for (Row const* row : rows) {
    for (PublishedFigure const& figure : row->published) {
      table.cells.push_back({figure.comparison, name_of(*row), cli::published_header(figure.name),
                             as_published(figure.published), text(figure.published_deviation),
                             text(figure.ours), text(figure.our_deviation), number_text(figure.ratio, 2)});
      if (planned) table.cells.back().push_back(text(figure.planned));
    }
  }
  return table;
}

}  // namespace reporting
}  // namespace programs
