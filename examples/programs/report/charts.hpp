// SPDX-License-Identifier: Apache-2.0
// Defines the kinds of charts as plain values and draws them as SVG. Charts are 400 units wide, so that their
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
  std::vector<double> parts;  ///< stacked
  std::optional<double> deviation = std::nullopt;
  std::optional<double> target = std::nullopt;  ///< drawn as a line across the bar
  bool unsteady = false;
};
struct BarGroup {
  std::string heading;
  std::vector<Bar> bars;
};
/// Vertical bars from 0, with labels below them. All groups share one scale.
struct BarChart {
  std::string title, unit;
  std::vector<std::string> parts;  ///< names of the stacked parts, if there are several
  std::string target;              ///< name of the target line
  std::vector<BarGroup> groups;
};
/// Draws one SVG for each group.
std::vector<std::string> draw(BarChart const& chart);

/// Horizontal bars from 0, with labels on the left and one column per measurement. Each group has its own
/// scale in each column.
struct SideBar {
  std::string label;
  std::size_t series = 0;                  ///< index of the colour
  std::vector<std::optional<Bar>> values;  ///< by column; their labels are not used
};
struct SideGroup {
  std::string heading;
  std::vector<SideBar> bars;
};
struct SideChart {
  std::string title;
  std::vector<std::string> columns;  ///< name of each measurement, with its unit
  bool deviations = false;           ///< prints deviations as text after the bars, as well as whiskers
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
  std::vector<std::pair<double, double>> band;  ///< lowest and highest value at each point; may be empty
  bool ideal = false;                           ///< a thin dashed line without marks
};
struct LineChart {
  std::string title, x_title, y_title;
  std::vector<Series> series;
  bool marks = true;
  bool from_zero = true;   ///< the y axis starts at 0; deviations below 0 are cut off
  bool own_ticks = false;  ///< the x axis has ticks at the points
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
  std::vector<std::pair<Spot, std::string>> frontier;  ///< the points on the frontier and their labels
};
std::string draw(ScatterChart const& chart);

struct HeatCell {
  std::optional<double> value;
  bool unsteady = false;
};
struct HeatMap {
  std::string title, x_title, y_title;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<HeatCell>> cells;  ///< by row
};
std::string draw(HeatMap const& chart);

/// Draws a legend below y: each name with its mark, or with a box in its colour if `boxes` is set. Returns
/// the y of its lower end.
double draw_legend(Svg& svg, double y, std::vector<std::string> const& names, bool boxes);

}  // namespace reporting
}  // namespace programs
