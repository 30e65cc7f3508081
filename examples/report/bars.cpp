// SPDX-License-Identifier: Apache-2.0
// Bars and heat maps.
#include <algorithm>
#include <cmath>

#include "report/axis.hpp"
#include "report/charts.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

namespace {

constexpr double letter = 6.3;  // of the labels, on average

double sum(std::vector<double> const& parts) {
  double total = 0.0;
  for (double const part : parts) total += part;
  return total;
}

std::string number(std::size_t at) { return std::to_string(at % 6 + 1); }

}  // namespace

double draw_legend(Svg& svg, double y, std::vector<std::string> const& names, bool boxes) {
  double x = 2.0;
  for (std::size_t at = 0; at < names.size(); ++at) {
    std::string const name = shortened(names[at], 62);
    double const width =
        18.0 + letter * static_cast<double>(std::min<std::size_t>(names[at].size(), 62)) + 14.0;
    if (x > 2.0 && x + width > svg.width()) {
      x = 2.0;
      y += 17.0;
    }
    if (boxes)
      svg.rect(x, y - 9.0, 10.0, 10.0, "f" + number(at));
    else
      svg.mark({x + 5.0, y - 4.0}, at, false);
    svg.text(x + 16.0, y, name);
    x += width;
  }
  return y;
}

std::string draw(BarChart const& chart) {
  Svg svg(figure_width);
  double y = 4.0, most = 0.0;
  if (chart.parts.size() > 1) y = draw_legend(svg, y + 8.0, chart.parts, true) + 10.0;
  for (BarGroup const& group : chart.groups)
    for (Bar const& bar : group.bars)
      most = std::max({most, sum(bar.parts) + bar.deviation.value_or(0.0), bar.target.value_or(0.0)});
  Scale const scale(0.0, most > 0.0 ? most : 1.0, 1.0, figure_width - 8.0, 4);
  std::size_t bars = 0, headings = 0;
  for (BarGroup const& group : chart.groups) {
    bars += group.bars.size();
    headings += group.heading.empty() ? 0 : 1;
  }
  double const begin = y, end = y + 31.0 * static_cast<double>(bars) + 27.0 * static_cast<double>(headings);
  for (double const tick : scale.ticks()) svg.line(scale(tick), begin, scale(tick), end + 4.0, "g");
  for (BarGroup const& group : chart.groups) {
    if (!group.heading.empty()) {
      svg.text(1.0, y + 18.0, shortened(group.heading, 68), "h");
      y += 27.0;
    }
    for (Bar const& bar : group.bars) {
      double const total = sum(bar.parts);
      std::string value = (bar.unsteady ? "~" : "") + figure_text(total);
      if (bar.deviation) value += " \xC2\xB1 " + figure_text(*bar.deviation);
      double const room = figure_width - 20.0 - letter * static_cast<double>(value.size());
      auto const letters = static_cast<std::size_t>(std::max(8.0, room / letter));
      svg.text(1.0, y + 13.0, shortened(bar.label, letters), "k");
      svg.text(figure_width - 8.0, y + 13.0, value, "k v", "end");
      double from = 0.0;
      for (std::size_t part = 0; part < bar.parts.size(); ++part) {
        double const x = scale(from), width = scale(from + bar.parts[part]) - x;
        from += bar.parts[part];
        if (width <= 0.0) continue;
        std::string tip = bar.label + ": " + figure_text(bar.parts[part]) + " " + chart.unit;
        if (part < chart.parts.size()) tip += ", " + chart.parts[part];
        svg.rect(x, y + 18.0, width, 9.0, "f" + number(part) + (bar.unsteady ? " u" : ""), tip);
      }
      if (bar.deviation) {
        double const low = scale(std::max(0.0, total - *bar.deviation)), high = scale(total + *bar.deviation);
        svg.line(low, y + 22.5, high, y + 22.5, "w");
        for (double const x : {low, high}) svg.line(x, y + 19.5, x, y + 25.5, "w");
      }
      if (bar.target) svg.line(scale(*bar.target), y + 15.5, scale(*bar.target), y + 29.5, "target");
      y += 31.0;
    }
  }
  for (double const tick : scale.ticks()) {
    bool const last = scale(tick) > figure_width - 24.0, first = tick == scale.ticks().front();
    svg.text(scale(tick), y + 18.0, scale.text(tick), "t", last ? "end" : first ? "start" : "middle");
  }
  y += 34.0;
  svg.text(figure_width - 8.0, y, chart.unit, "t", "end");
  if (!chart.target.empty()) {
    svg.line(5.0, y - 10.0, 5.0, y + 2.0, "target");
    svg.text(13.0, y, chart.target, "t");
  }
  svg.grow(y + 6.0);
  return svg.finish(chart.title);
}

std::string draw(HeatMap const& chart) {
  Svg svg(figure_width);
  double low = INFINITY, high = -INFINITY;
  for (auto const& row : chart.cells)
    for (HeatCell const& cell : row)
      if (cell.value) {
        low = std::min(low, *cell.value);
        high = std::max(high, *cell.value);
      }
  std::size_t widest = 1;
  for (std::string const& row : chart.rows) widest = std::max(widest, row.size());
  double const left = 14.0 + letter * static_cast<double>(std::min<std::size_t>(widest, 14));
  double const width =
      (figure_width - left - 4.0) / static_cast<double>(std::max<std::size_t>(1, chart.columns.size()));
  double const height = 30.0, top = 40.0;
  svg.text(left - 8.0, 14.0, chart.y_title, "t", "end");
  svg.text(left, 14.0, chart.x_title, "t");
  for (std::size_t column = 0; column < chart.columns.size(); ++column)
    svg.text(left + width * (static_cast<double>(column) + 0.5), top - 8.0,
             shortened(chart.columns[column], 9), "t", "middle");
  for (std::size_t row = 0; row < chart.rows.size(); ++row) {
    double const y = top + height * static_cast<double>(row);
    svg.text(left - 8.0, y + 19.0, shortened(chart.rows[row], 14), "t", "end");
    for (std::size_t column = 0; column < chart.columns.size(); ++column) {
      HeatCell const& cell = chart.cells[row][column];
      double const x = left + width * static_cast<double>(column);
      // By the logarithm: times of cells differ by factors.
      double const span = low > 0.0 ? std::log(high / low) : high - low;
      double const share = !cell.value || !(span > 0.0)
                               ? 0.0
                               : (low > 0.0 ? std::log(*cell.value / low) : *cell.value - low) / span;
      if (cell.value) svg.rect(x + 1.0, y + 1.0, width - 2.0, height - 2.0, "f1", {}, 0.08 + 0.5 * share);
      std::string const words = !cell.value ? "-" : (cell.unsteady ? "~" : "") + figure_text(*cell.value);
      svg.text(x + 0.5 * width, y + 19.0, words, cell.value ? "v" : "t", "middle");
    }
  }
  svg.grow(top + height * static_cast<double>(chart.rows.size()) + 6.0);
  return svg.finish(chart.title);
}

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
