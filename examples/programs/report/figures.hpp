// SPDX-License-Identifier: Apache-2.0
// Defines the figures of a report. A figure without data is left out, with the reason.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "report/charts.hpp"
#include "report/rows.hpp"

namespace programs {
namespace reporting {

struct Figure {
  std::string name;  ///< of its file
  std::string title;
  std::string note;                 ///< what is shown, how many of how many, and how to read it
  std::vector<std::string> panels;  ///< SVG
};
struct LeftOut {
  std::string title;
  std::string reason;
};
struct Figures {
  std::vector<Figure> drawn;
  std::vector<LeftOut> left_out;
};

Figures figures_of(Inputs const& inputs);

/// A group of rows for one panel of a figure. The rows differ only in their recipes (sharding, precision,
/// offload and so on).
struct Panel {
  std::string heading;  ///< what distinguishes these rows from the other panels
  RowList rows;
};
/// Splits rows into panels. Few rows make one panel. More rows make one panel per model, ranks and shape, and
/// a large panel is divided by precision. Keeps the largest groups and the twelve fastest rows of each.
/// Appends to `note` what all rows share and what is not shown.
std::vector<Panel> panels_of(RowList const& rows, Inputs const& inputs, std::string& note);

/// Groups rows by a key, in the order of the files.
std::vector<RowList> grouped_by(RowList const& rows, std::function<std::string(Row const&)> const& key);
/// Returns a grouping key: the values of a row in all dimensions except `left_out`.
std::string key_without(Row const& row, Inputs const& inputs, std::vector<std::string> const& left_out);

// Called by `figures_of`. Each function adds one kind of figure.
void add_bar_figures(Inputs const& inputs, Figures& figures);
void add_side_figures(Inputs const& inputs, Figures& figures);
void add_loss_figure(Inputs const& inputs, Figures& figures);
void add_scaling_figure(Inputs const& inputs, Figures& figures);
void add_latency_figures(Inputs const& inputs, Figures& figures);
void add_trade_off_figures(Inputs const& inputs, Figures& figures);
void add_recording_figures(Inputs const& inputs, Figures& figures);

/// Limits of a line chart: the number of its lines, and the number of points of a line.
inline constexpr std::size_t max_series = 6, max_buckets = 240;
/// Returns a sentence for captions, such as " Shown are 6 of 18 curves."; "" if all are shown.
std::string of_text(std::size_t shown, std::size_t all, char const* what);

/// Averages values into at most `buckets` means, with the lowest and highest value of each. Unknown values
/// are left out.
Series condensed(std::vector<double> const& x, std::vector<std::optional<double>> const& y,
                 std::size_t buckets);

}  // namespace reporting
}  // namespace programs
