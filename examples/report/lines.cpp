// SPDX-License-Identifier: Apache-2.0
// Lines and points.
#include <algorithm>
#include <cmath>
#include <set>

#include "report/axis.hpp"
#include "report/charts.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

namespace {

constexpr double letter = 6.3, plot_top = 26.0, plot_bottom = 256.0, plot_left = 50.0;
constexpr std::size_t direct_letters = 16;

/// Lowest and highest of what is drawn.
struct Extent {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

std::string number(std::size_t at) { return std::to_string(at % 6 + 1); }

/// Grid, numbers and titles; `own` ticks replace those of the x scale.
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
    svg.text(x(tick), plot_bottom + 18.0, own.empty() ? x.text(tick) : figure_text(tick), "t", "middle");
  }
  svg.line(plot_left, plot_bottom, right, plot_bottom, "a");
  svg.text(2.0, 13.0, y_title, "t");
  svg.text(right, plot_bottom + 34.0, x_title, "t", "end");
}

/// Where labels at given heights may stand without lying on each other.
std::vector<double> apart(std::vector<double> const& wanted) {
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
  std::sort(order.begin(), order.end(), [&](auto one, auto other) { return wanted[one] < wanted[other]; });
  std::vector<double> places = wanted;
  constexpr double gap = 13.0;
  double above = plot_top - gap;
  for (std::size_t const at : order) above = places[at] = std::max(places[at], above + gap);
  double below = plot_bottom + gap;
  for (auto at = order.rbegin(); at != order.rend(); ++at)
    below = places[*at] = std::min(places[*at], below - gap);
  return places;
}

}  // namespace

std::string draw(LineChart const& chart) {
  Svg svg(figure_width);
  Extent xs, ys;
  std::set<double> own;
  std::size_t longest = 0;
  for (Series const& series : chart.series) {
    longest = std::max(longest, series.label.size());
    for (LinePoint const& point : series.points) {
      xs.add(point.x);
      ys.add(point.y + point.deviation.value_or(0.0));
      ys.add(point.y - point.deviation.value_or(0.0));
      if (!series.ideal) own.insert(point.x);
    }
    for (auto const& [low, high] : series.band) {
      ys.add(low);
      ys.add(high);
    }
  }
  if (xs.empty() || ys.empty()) return {};
  bool const direct = longest <= direct_letters;
  double const right = figure_width - 12.0 -
                       (chart.series.size() < 2 ? 6.0
                        : direct                ? letter * static_cast<double>(longest) + 6.0
                                                : 16.0);
  bool const own_ticks = chart.own_ticks && own.size() <= 9;
  Scale const x(chart.own_ticks ? std::min(0.0, xs.low) : xs.low, xs.high, plot_left, right, 5);
  Scale const y(chart.from_zero ? std::min(0.0, ys.low) : ys.low, ys.high, plot_bottom, plot_top, 5);
  draw_frame(svg, x, y, right, chart.x_title, chart.y_title,
             own_ticks ? std::vector<double>(own.begin(), own.end()) : std::vector<double>());
  for (std::size_t at = 0; at < chart.series.size(); ++at) {
    Series const& series = chart.series[at];
    std::vector<Spot> spots, area;
    for (LinePoint const& point : series.points) spots.push_back({x(point.x), y(point.y)});
    if (series.band.size() == series.points.size() && !series.band.empty()) {
      for (std::size_t i = 0; i < series.band.size(); ++i)
        area.push_back({spots[i].x, y(series.band[i].second)});
      for (std::size_t i = series.band.size(); i-- > 0;)
        area.push_back({spots[i].x, y(series.band[i].first)});
      svg.path(area, "band f" + number(at), true);
    }
    svg.path(spots, series.ideal ? "ideal" : "l s" + number(at));
    if (!chart.marks || series.ideal) continue;
    for (std::size_t i = 0; i < spots.size(); ++i) {
      LinePoint const& point = series.points[i];
      if (point.deviation) {
        double const low = y(point.y - *point.deviation), high = y(point.y + *point.deviation);
        svg.line(spots[i].x, low, spots[i].x, high, "w");
        for (double const end : {low, high}) svg.line(spots[i].x - 3.0, end, spots[i].x + 3.0, end, "w");
      }
      svg.mark(spots[i], at, point.unsteady,
               series.label + ": " + figure_text(point.x) + ", " + (point.unsteady ? "~" : "") +
                   figure_text(point.y));
    }
  }
  double bottom = plot_bottom + 42.0;
  if (chart.series.size() > 1) {
    std::vector<double> wanted;
    for (Series const& series : chart.series)
      wanted.push_back(series.points.empty() ? plot_bottom : y(series.points.back().y));
    std::vector<double> const places = apart(wanted);
    for (std::size_t at = 0; at < chart.series.size(); ++at) {
      Series const& series = chart.series[at];
      std::string const style = series.ideal ? "t" : "c" + number(at);
      double const end = series.points.empty() ? right : std::min(right, x(series.points.back().x));
      svg.text(end + 7.0, places[at] + 4.0,
               direct ? series.label : std::string(1, static_cast<char>('A' + at % 26)), style);
      if (direct) continue;
      svg.text(2.0, bottom + 8.0, std::string(1, static_cast<char>('A' + at % 26)), "h " + style);
      svg.text(18.0, bottom + 8.0, shortened(series.label, 66));
      bottom += 16.0;
    }
  }
  svg.grow(bottom);
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
  double const right = figure_width - 12.0;
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
  std::size_t at = 0;
  for (auto const& [value, label] : chart.frontier) {
    std::string const letter_of(1, static_cast<char>('A' + at++ % 26));
    svg.text(x(value.x) - 5.0, y(value.y) - 7.0, letter_of, "h halo", "end");
    svg.text(2.0, bottom + 10.0, letter_of, "h");
    svg.text(18.0, bottom + 10.0, shortened(label, 66));
    bottom += 16.0;
  }
  svg.grow(bottom + 4.0);
  return svg.finish(chart.title);
}

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
