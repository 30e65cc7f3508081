// SPDX-License-Identifier: Apache-2.0
// Kinds of figures: what they show, as plain values, to SVG. They are drawn 400 units wide, so that their
// letters can be read on a phone.
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
  std::optional<double> target = std::nullopt;  ///< a line across the bar
  bool unsteady = false;
};
struct BarGroup {
  std::string heading;
  std::vector<Bar> bars;
};
/// Bars below their labels, from 0 on; all groups have one scale.
struct BarChart {
  std::string title, unit;
  std::vector<std::string> parts;  ///< what they mean, where they are several
  std::string target;              ///< what the line means
  std::vector<BarGroup> groups;
};
/// A panel for each group.
std::vector<std::string> draw(BarChart const& chart);

/// Bars right of their labels, in columns of one measure each; a group has a scale of its own in each column,
/// from 0 on.
struct SideBar {
  std::string label;
  std::size_t series = 0;                  ///< of its colour
  std::vector<std::optional<Bar>> values;  ///< by column; their labels are not used
};
struct SideGroup {
  std::string heading;
  std::vector<SideBar> bars;
};
struct SideChart {
  std::string title;
  std::vector<std::string> columns;  ///< what each measures, with its unit
  bool deviations = false;           ///< in words behind the bars, beside the whiskers
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
  std::vector<std::pair<double, double>> band;  ///< lowest and highest, of each point; or none
  bool ideal = false;                           ///< a thin dashed line without marks
};
struct LineChart {
  std::string title, x_title, y_title;
  std::vector<Series> series;
  bool marks = true;
  bool from_zero = true;   ///< the values; what deviates to below 0 ends there
  bool own_ticks = false;  ///< x has a tick where points are
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
  std::vector<std::pair<Spot, std::string>> frontier;  ///< values with what stands there
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

/// Names with their marks, or boxes of their colour, from y on; gives where it ends.
double draw_legend(Svg& svg, double y, std::vector<std::string> const& names, bool boxes);

}  // namespace reporting
}  // namespace programs
