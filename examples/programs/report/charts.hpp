// SPDX-License-Identifier: Apache-2.0
// Defines the kinds of charts as plain structs, and draws them as SVG. A chart is 400 units wide, so that its
// text is readable on a phone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/svg.hpp"

namespace programs {
namespace reporting {

inline constexpr double figure_width = 400.0;

struct Bar {
  std::string label;
  std::vector<double> parts;  ///< heights of the stacked parts, from the bottom; one value for a simple bar
  std::optional<double> deviation = std::nullopt;
  std::optional<double> target = std::nullopt;  ///< drawn as a line across the bar
  bool unsteady = false;
};
struct BarGroup {
  std::string heading;
  std::vector<Bar> bars;
};
/// A chart of vertical bars that begin at 0, with labels below them. All groups use the same scale.
struct BarChart {
  std::string title, unit;
  std::vector<std::string> parts;  ///< names of the stacked parts, if there are several
  std::string target;              ///< name of the line that BarChart draws at Bar::target
  std::vector<BarGroup> groups;
};
/// Draws one SVG for each group.
std::vector<std::string> draw(BarChart const& chart);

/// One line of a chart of horizontal bars: a label on the left, then one bar per column. A column is a
/// measurement. Within a group, each column has its own scale.
struct SideBar {
  std::string label;
  std::size_t series = 0;                  ///< index of the colour
  std::vector<std::optional<Bar>> values;  ///< one bar for each column; the labels of these bars are not used
};
struct SideGroup {
  std::string heading;
  std::vector<SideBar> bars;
};
struct SideChart {
  std::string title;
  std::vector<std::string> columns;  ///< name of each measurement, with its unit
  /// whether to print the deviations as text after the bars, in addition to the whiskers
  bool deviations = false;
  std::vector<SideGroup> groups;
};
std::string draw(SideChart const& chart);

struct LinePoint {
  double x = 0.0, y = 0.0;
  std::optional<double> deviation = std::nullopt;
  bool unsteady = false;
};
struct Series {
  std::string label;
  std::vector<LinePoint> points;
  std::vector<std::pair<double, double>> band;  ///< lowest and highest value at each point; empty: no band
  bool ideal = false;                           ///< a thin dashed line without point marks
};
struct LineChart {
  std::string title, x_title, y_title;
  std::vector<Series> series;
  bool marks = true;
  bool from_zero = true;   ///< the y axis starts at 0, and deviations below 0 are cut off
  bool own_ticks = false;  ///< the ticks of the x axis are the x values of the points
};
std::string draw(LineChart const& chart);

struct ScatterPoint {
  double x = 0.0, y = 0.0;
  std::size_t series = 0;
  bool unsteady = false;
  std::string tip;
};
struct ScatterChart {
  std::string title, x_title, y_title;
  std::vector<std::string> series;
  std::vector<ScatterPoint> points;
  std::vector<std::pair<Spot, std::string>> frontier;  ///< the points on the frontier, each with its label
};
std::string draw(ScatterChart const& chart);

struct HeatCell {
  std::optional<double> value;
  bool unsteady = false;
};
struct HeatMap {
  std::string title, x_title, y_title;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<HeatCell>> cells;  ///< first index: row; second index: column
};
std::string draw(HeatMap const& chart);

/// Draws a legend below the coordinate `y`: each name with its point mark or, if `boxes` is true, with a box
/// in its colour. Returns the y coordinate of the legend's lower end.
double draw_legend(Svg& svg, double y, std::vector<std::string> const& names, bool boxes);

}  // namespace reporting
}  // namespace programs
