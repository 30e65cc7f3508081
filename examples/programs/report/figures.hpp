// SPDX-License-Identifier: Apache-2.0
// Defines the figures of a report. A figure without data is not drawn; the report then gives the reason.
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
  std::string name;  ///< the file name without its ending
  std::string title;
  std::string note;  ///< caption: what the figure shows, how many rows it shows, how to read it
  std::vector<std::string> panels;  ///< an SVG image for each panel
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

/// A group of rows of the result table for one panel of a figure. The rows differ only in their recipes
/// (sharding, precision, offload and so on).
struct Panel {
  std::string heading;  ///< the settings that distinguish this panel from the other panels
  RowList rows;
};
/// Splits rows into panels. Few rows make one panel. Many rows make one panel for each model, number of ranks
/// and shape, and a large panel is divided by precision. Only the largest groups remain, and only the twelve
/// fastest rows of each group. Appends to `note` the settings that all rows share and the number of rows that
/// are not shown.
std::vector<Panel> panels_of(RowList const& rows, Inputs const& inputs, std::string& note);

/// Returns groups of rows with equal keys. Groups and rows are in the order of the input files.
std::vector<RowList> grouped_by(RowList const& rows, std::function<std::string(Row const&)> const& key);
/// Returns a key for grouped_by: the values of `row` in all dimensions (settings), except the dimensions that
/// `left_out` names.
std::string key_without(Row const& row, Inputs const& inputs, std::vector<std::string> const& left_out);

// `figures_of` calls the functions below. Each of them adds one kind of figure.
void add_bar_figures(Inputs const& inputs, Figures& figures);
void add_side_figures(Inputs const& inputs, Figures& figures);
void add_loss_figure(Inputs const& inputs, Figures& figures);
void add_rank_figures(Inputs const& inputs, Figures& figures);
void add_latency_figures(Inputs const& inputs, Figures& figures);
void add_trade_off_figures(Inputs const& inputs, Figures& figures);
void add_recording_figures(Inputs const& inputs, Figures& figures);

/// The largest number of lines in a line chart, and the largest number of points of a line.
inline constexpr std::size_t max_series = 6, max_buckets = 240;
/// Returns a sentence for a caption, such as " Shown are 6 of 18 curves."; "" if all are shown. `what` is the
/// plural noun, here "curves".
std::string of_text(std::size_t shown, std::size_t all, char const* what);

/// Returns the line through the points (x, y), condensed to at most `buckets` points. Each new point is the
/// mean of neighbouring values, with the lowest and the highest of these values. Unknown values are left out.
Series condensed(std::vector<double> const& x, std::vector<std::optional<double>> const& y,
                 std::size_t buckets);

}  // namespace reporting
}  // namespace programs
