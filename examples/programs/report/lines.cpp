// SPDX-License-Identifier: Apache-2.0
// Draws line and scatter charts.
#include <algorithm>
#include <cmath>
#include <set>

#include "cli/values.hpp"
#include "report/axis.hpp"
#include "report/charts.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

constexpr double plot_top = 26.0, plot_bottom = 256.0, plot_left = 50.0;
constexpr double direct_width = 96.0;  // width of the names at the right ends of lines

/// The range of drawn values, from the lowest to the highest.
struct Extent {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// Draws the grid, the numbers at the axes and the titles of the axes. `right` is the right end of the plot.
/// If `own` is not empty, its values replace the ticks of the x axis.
void draw_frame(Svg& svg, Scale const& x, Scale const& y, double right, std::string const& x_title,
                std::string const& y_title, std::vector<double> const& own) {
  for (double const tick : y.ticks()) {
    svg.line(plot_left, y(tick), right, y(tick), "g");
    svg.text(plot_left - 7.0, y(tick) + 4.0, y.text(tick), "t", "end");
  }
  double last = -INFINITY;
  for (double const tick : own.empty() ? x.ticks() : own) {
    if (x(tick) > right + 0.5 || x(tick) - last < 26.0) continue;
    last = x(tick);
    svg.line(x(tick), plot_bottom, x(tick), plot_bottom + 4.0, "a");
    svg.text(x(tick), plot_bottom + 18.0, own.empty() ? x.text(tick) : cli::exact(tick), "t", "middle");
  }
  svg.line(plot_left, plot_bottom, right, plot_bottom, "a");
  svg.text(2.0, 13.0, y_title, "t");
  svg.text(right, plot_bottom + 34.0, x_title, "t", "end");
}

/// Returns a y coordinate for each label, so that the labels do not overlap. `positions` holds the
/// coordinates at which the labels would be drawn without this restriction.
std::vector<double> spread_apart(std::vector<double> const& positions) {
  std::vector<std::size_t> order(positions.size());
  for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
  std::sort(order.begin(), order.end(),
            [&](auto one, auto other) { return positions[one] < positions[other]; });
  std::vector<double> places = positions;
  constexpr double gap = 13.0;
  double above = plot_top - gap;
  for (std::size_t const at : order) above = places[at] = std::max(places[at], above + gap);
  double below = plot_bottom + gap;
  for (auto at = order.rbegin(); at != order.rend(); ++at)
    below = places[*at] = std::min(places[*at], below - gap);
  return places;
}

std::string letter_of(std::size_t at) { return std::string(1, static_cast<char>('A' + at % 26)); }

/// Draws one entry of the key below a figure: the letter number `at`, then its meaning `words` in up to three
/// lines from the coordinate `x`. Returns the y coordinate below the text.
double draw_key(Svg& svg, double y, std::size_t at, double x, std::string const& words) {
  svg.text(2.0, y + 10.0, letter_of(at), "h");
  for (std::string const& line : text_lines(words, figure_width - x - 4.0, 3))
    svg.text(x, (y += 15.0) - 5.0, line);
  return y + 2.0;
}

/// Returns a position near `point` for a letter that does not overlap the letters at the positions
/// `occupied`.
Spot free_place(Spot point, double right, std::vector<Spot> const& occupied) {
  for (double const far : {11.0, 20.0, 30.0, 41.0})
    for (Spot const to : {Spot{-0.7, -0.7}, {0.7, -0.7}, {0.7, 0.7}, {-0.7, 0.7}, {0.0, -1.0}, {0.0, 1.0}}) {
      Spot const place{point.x + far * to.x, point.y + far * to.y};
      bool const inside = place.x > plot_left + 5.0 && place.x < right && place.y > plot_top - 12.0 &&
                          place.y < plot_bottom - 6.0;
      if (inside && std::none_of(occupied.begin(), occupied.end(), [&](Spot const& other) {
            return std::fabs(other.x - place.x) < 11.0 && std::fabs(other.y - place.y) < 13.0;
          }))
        return place;
    }
  return {point.x, point.y - 11.0};
}

Extent extent_of(LineChart const& chart) {
  Extent ys;
  for (Series const& series : chart.series) {
    for (LinePoint const& point : series.points) {
      double const deviation = point.deviation.value_or(0.0);
      bool const cut = chart.from_zero && point.y >= 0.0;
      ys.add(point.y + deviation);
      ys.add(cut ? std::max(0.0, point.y - deviation) : point.y - deviation);
    }
    for (auto const& [low, high] : series.band) {
      ys.add(low);
      ys.add(high);
    }
  }
  return ys;
}

void draw_point(Svg& svg, Spot at, Series const& series, LinePoint const& point, std::size_t number,
                Scale const& y) {
  if (point.deviation) {
    double const floor = y(y.ticks().front());  // nothing is drawn below the axis
    double const low = y(point.y - *point.deviation), high = y(point.y + *point.deviation);
    svg.line(at.x, std::min(low, floor), at.x, high, "w");
    for (double const end : {low, high})
      if (end <= floor) svg.line(at.x - 3.0, end, at.x + 3.0, end, "w");
  }
  svg.mark(at, number, point.unsteady,
           series.label + ": " + cli::shortest(point.x) + ", " + (point.unsteady ? "~" : "") +
               figure_text(point.y));
}

/// Returns a position on the line through the points `spots`: after the fraction `share` of the points.
Spot between(std::vector<Spot> const& spots, double share) {
  double const place = std::clamp(share, 0.0, 1.0) * static_cast<double>(spots.size() - 1);
  auto const first = static_cast<std::size_t>(place);
  Spot const one = spots[first], other = spots[std::min(first + 1, spots.size() - 1)];
  double const part = place - std::floor(place);
  return {one.x + part * (other.x - one.x), one.y + part * (other.y - one.y)};
}

void draw_series(Svg& svg, LineChart const& chart, std::size_t at, Scale const& x, Scale const& y) {
  Series const& series = chart.series[at];
  std::vector<Spot> spots, area;
  for (LinePoint const& point : series.points) spots.push_back({x(point.x), y(point.y)});
  if (series.band.size() == series.points.size() && !series.band.empty()) {
    for (std::size_t i = 0; i < series.band.size(); ++i)
      area.push_back({spots[i].x, y(series.band[i].second)});
    for (std::size_t i = series.band.size(); i-- > 0;) area.push_back({spots[i].x, y(series.band[i].first)});
    svg.path(area, "band f" + style_number(at), true);
  }
  svg.path(spots, series.ideal ? "ideal" : "l s" + style_number(at) + " d" + style_number(at));
  if (series.ideal || spots.empty()) return;
  if (chart.marks) {
    for (std::size_t i = 0; i < spots.size(); ++i) draw_point(svg, spots[i], series, series.points[i], at, y);
  } else if (chart.series.size() > 1) {
    // Draws a few marks on each line. Different lines have their marks at different positions, so lines that
    // coincide all remain visible.
    auto const lines = static_cast<double>(chart.series.size());
    for (double place = 0.5; place < 4.0; place += 1.0)
      svg.mark(between(spots, (place + static_cast<double>(at) / lines - 0.5) / 4.0), at, false,
               series.label);
  }
}

/// If `direct` is true, writes the names of lines at their right ends. Otherwise writes letters there and
/// draws a key below the figure. Returns the y coordinate below the drawing.
double draw_names(Svg& svg, LineChart const& chart, bool direct, double right, Scale const& x,
                  Scale const& y) {
  double bottom = plot_bottom + 42.0;
  std::vector<double> positions;
  for (Series const& series : chart.series)
    positions.push_back(series.points.empty() ? plot_bottom : y(series.points.back().y));
  std::vector<double> const places = spread_apart(positions);
  for (std::size_t at = 0; at < chart.series.size(); ++at) {
    Series const& series = chart.series[at];
    std::string const style = series.ideal ? "t" : "c" + style_number(at);
    double const end = series.points.empty() ? right : std::min(right, x(series.points.back().x));
    svg.text(end + 7.0, places[at] + 4.0, direct ? series.label : letter_of(at), style);
    if (direct) continue;
    double const line = bottom + 6.0;
    svg.path({{18.0, line}, {46.0, line}},
             series.ideal ? "ideal" : "l s" + style_number(at) + " d" + style_number(at));
    if (!series.ideal) svg.mark({32.0, line}, at, false);
    bottom = draw_key(svg, bottom, at, 54.0, series.label);
  }
  return bottom;
}

}  // namespace

std::string draw(LineChart const& chart) {
  Svg svg(figure_width);
  Extent xs;
  Extent const ys = extent_of(chart);
  std::set<double> own;
  double widest = 0.0;
  for (Series const& series : chart.series) {
    widest = std::max(widest, text_width(series.label));
    for (LinePoint const& point : series.points) {
      xs.add(point.x);
      if (!series.ideal) own.insert(point.x);
    }
  }
  if (xs.empty() || ys.empty()) return {};
  bool const several = chart.series.size() > 1, direct = widest <= direct_width;
  double const right = figure_width - (!several ? 18.0 : direct ? widest + 12.0 : 26.0);
  bool const own_ticks = chart.own_ticks && own.size() <= 9;
  Scale const x(chart.own_ticks ? std::min(0.0, xs.low) : xs.low, xs.high, plot_left, right, 5);
  Scale const y(chart.from_zero ? std::min(0.0, ys.low) : ys.low, ys.high, plot_bottom, plot_top, 5);
  draw_frame(svg, x, y, right, chart.x_title, chart.y_title,
             own_ticks ? std::vector<double>(own.begin(), own.end()) : std::vector<double>());
  for (std::size_t at = 0; at < chart.series.size(); ++at) draw_series(svg, chart, at, x, y);
  svg.grow(several ? draw_names(svg, chart, direct, right, x, y) : plot_bottom + 42.0);
  return svg.finish(chart.title);
}

std::string draw(ScatterChart const& chart) {
  Svg svg(figure_width);
  Extent xs, ys;
  for (ScatterPoint const& point : chart.points) {
    xs.add(point.x);
    ys.add(point.y);
  }
  if (xs.empty()) return {};
  double const right = figure_width - 18.0;
  Scale const x(std::min(0.0, xs.low), xs.high, plot_left, right, 5);
  Scale const y(std::min(0.0, ys.low), ys.high, plot_bottom, plot_top, 5);
  draw_frame(svg, x, y, right, chart.x_title, chart.y_title, {});
  std::vector<Spot> steps;
  for (auto const& [value, label] : chart.frontier) {
    Spot const spot{x(value.x), y(value.y)};
    if (!steps.empty()) steps.push_back({spot.x, steps.back().y});
    steps.push_back(spot);
  }
  if (!steps.empty()) steps.push_back({right, steps.back().y});
  svg.path(steps, "front");
  for (ScatterPoint const& point : chart.points)
    svg.mark({x(point.x), y(point.y)}, point.series, point.unsteady, point.tip);
  double bottom = plot_bottom + 42.0;
  if (chart.series.size() > 1) bottom = draw_legend(svg, bottom + 8.0, chart.series, false) + 10.0;
  std::vector<Spot> occupied;
  for (std::size_t at = 0; at < chart.frontier.size(); ++at) {
    auto const& [value, label] = chart.frontier[at];
    Spot const place = free_place({x(value.x), y(value.y)}, right, occupied);
    occupied.push_back(place);
    svg.text(place.x, place.y + 4.0, letter_of(at), "h halo", "middle");
    bottom = draw_key(svg, bottom, at, 18.0, label);
  }
  svg.grow(bottom + 4.0);
  return svg.finish(chart.title);
}

}  // namespace reporting
}  // namespace programs
