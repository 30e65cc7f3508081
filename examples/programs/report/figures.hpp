// SPDX-License-Identifier: Apache-2.0
// Which figures a report has. One whose data is not there is left out, with the reason.
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
  std::string note;                 ///< what it shows of how much, and how to read it
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

Figures figures_of(Material const& material);

/// Rows that differ in their recipes alone.
struct Panel {
  std::string heading;  ///< what the rows of other panels have not in common with these
  RowList rows;
};
/// Few rows as one panel, many by model, ranks and shape, then by precision: the largest groups, of each the
/// fastest dozen. What all rows have in common, and what is not shown of them, is said in `note`.
std::vector<Panel> panels_of(RowList const& rows, Material const& material, std::string& note);

/// Rows by what they have in common, in the order of the files.
std::vector<RowList> grouped_by(RowList const& rows, std::function<std::string(Row const&)> const& key);
/// What belongs to a recipe: all dimensions of a row but those named.
std::string key_without(Row const& row, Material const& material, std::vector<std::string> const& left_out);

// The parts of `figures_of`.
void add_bar_figures(Material const& material, Figures& figures);
void add_side_figures(Material const& material, Figures& figures);
void add_loss_figure(Material const& material, Figures& figures);
void add_scaling_figure(Material const& material, Figures& figures);
void add_latency_figures(Material const& material, Figures& figures);
void add_trade_off_figures(Material const& material, Figures& figures);
void add_recording_figures(Material const& material, Figures& figures);

/// A figure has so many lines at most, of so many points.
inline constexpr std::size_t series_at_most = 6, buckets_at_most = 240;
/// " Shown are 6 of 18 curves."; nothing where all are shown.
std::string of_text(std::size_t shown, std::size_t all, char const* what);

/// Values in at most `buckets` means, with the lowest and highest of each; unknown ones are left out.
Series condensed(std::vector<double> const& x, std::vector<std::optional<double>> const& y,
                 std::size_t buckets);

}  // namespace reporting
}  // namespace programs
