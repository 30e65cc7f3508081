// SPDX-License-Identifier: Apache-2.0
// Which figures a report has. One whose data is not there is left out, with the reason.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "report/charts.hpp"
#include "report/rows.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

struct Figure {
  std::string name;  ///< of its file
  std::string title;
  std::string note;  ///< what it shows of how much, and how to read it
  std::string svg;
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

/// Rows that differ in their recipes alone, and a heading; what is not shown of them is said in `note`.
struct Panel {
  std::string heading;
  RowList rows;
};
/// Few rows as one panel, many by model, ranks and shape: the largest groups, of each the fastest rows.
std::vector<Panel> panels_of(RowList const& rows, Material const& material, std::string& note);

/// What belongs to a recipe: all dimensions of a row but those named.
std::string key_without(Row const& row, Material const& material, std::vector<std::string> const& left_out);

// The parts of `figures_of`.
void add_bar_figures(Material const& material, Figures& figures);
void add_loss_figure(Material const& material, Figures& figures);
void add_scaling_figure(Material const& material, Figures& figures);
void add_latency_figures(Material const& material, Figures& figures);
void add_trade_off_figures(Material const& material, Figures& figures);
void add_recording_figures(Material const& material, Figures& figures);

/// Values in at most `buckets` means, with the lowest and highest of each; unknown ones are left out.
Series condensed(std::vector<double> const& x, std::vector<std::optional<double>> const& y,
                 std::size_t buckets);

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
