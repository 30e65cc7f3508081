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

constexpr double bar_right = figure_width - 8.0;

double sum(std::vector<double> const& parts) {
  double total = 0.0;
  for (double const part : parts) total += part;
  return total;
}

std::string value_text(Bar const& bar) {
  std::string const value = (bar.unsteady ? "~" : "") + figure_text(sum(bar.parts));
  return bar.deviation ? value + " \xC2\xB1 " + figure_text(*bar.deviation) : value;
}

std::vector<std::string> label_lines(Bar const& bar) {
  return text_lines(bar.label, bar_right - 16.0 - text_width(value_text(bar)), 3);
}

double bar_height(Bar const& bar) { return 20.0 + 14.0 * static_cast<double>(label_lines(bar).size()); }

void draw_bar(Svg& svg, double y, Bar const& bar, BarChart const& chart, Scale const& scale) {
  svg.text(bar_right, y + 13.0, value_text(bar), "v", "end");
  for (std::string const& line : label_lines(bar)) svg.text(1.0, (y += 14.0) - 1.0, line);
  double from = 0.0;
  for (std::size_t part = 0; part < bar.parts.size(); ++part) {
    double const x = scale(from), width = scale(from + bar.parts[part]) - x;
    from += bar.parts[part];
    if (width <= 0.0) continue;
    std::string tip = bar.label + ": " + figure_text(bar.parts[part]) + " " + chart.unit;
    if (part < chart.parts.size()) tip += ", " + chart.parts[part];
    svg.rect(x, y + 4.0, width, 9.0, "f" + style_number(part) + (bar.unsteady ? " u" : ""), tip);
  }
  if (bar.deviation) {
    double const low = from - *bar.deviation, high = from + *bar.deviation;
    svg.line(scale(std::max(0.0, low)), y + 8.5, scale(high), y + 8.5, "w");
    for (double const end : {low, high})
      if (end >= 0.0) svg.line(scale(end), y + 5.5, scale(end), y + 11.5, "w");
  }
  if (bar.target) svg.line(scale(*bar.target), y + 1.5, scale(*bar.target), y + 15.5, "target");
}

std::string draw_group(BarGroup const& group, BarChart const& chart, Scale const& scale) {
  Svg svg(figure_width);
  double y = 4.0;
  for (std::string const& line : text_lines(group.heading, figure_width - 10.0, 3, 13.0))
    if (!line.empty()) svg.text(1.0, y += 14.0, line, "h");
  if (chart.parts.size() > 1) y = draw_legend(svg, y + 16.0, chart.parts, true) + 4.0;
  double const begin = y + 6.0;
  double end = begin;
  for (Bar const& bar : group.bars) end += bar_height(bar);
  for (double const tick : scale.ticks()) svg.line(scale(tick), begin, scale(tick), end + 4.0, "g");
  y = begin;
  for (Bar const& bar : group.bars) {
    draw_bar(svg, y, bar, chart, scale);
    y += bar_height(bar);
  }
  for (double const tick : scale.ticks()) {
    bool const last = scale(tick) > bar_right - 16.0, first = tick == scale.ticks().front();
    svg.text(scale(tick), y + 18.0, scale.text(tick), "t", last ? "end" : first ? "start" : "middle");
  }
  y += 34.0;
  svg.text(bar_right, y, chart.unit, "t", "end");
  if (!chart.target.empty()) {
    svg.line(5.0, y - 10.0, 5.0, y + 2.0, "target");
    svg.text(13.0, y, chart.target, "t");
  }
  svg.grow(y + 6.0);
  return svg.finish(group.heading.empty() ? chart.title : chart.title + ", " + group.heading);
}

}  // namespace

double draw_legend(Svg& svg, double y, std::vector<std::string> const& names, bool boxes) {
  double x = 2.0;
  for (std::size_t at = 0; at < names.size(); ++at) {
    std::vector<std::string> const lines = text_lines(names[at], svg.width() - 24.0, 2, 11.0);
    double const width = 30.0 + text_width(lines.front(), 11.0);
    if (x > 2.0 && x + width - 12.0 > svg.width()) {
      x = 2.0;
      y += 16.0;
    }
    if (boxes)
      svg.rect(x, y - 9.0, 10.0, 10.0, "f" + style_number(at));
    else
      svg.mark({x + 5.0, y - 4.0}, at, false);
    svg.text(x + 16.0, y, lines.front(), "k");
    if (lines.size() > 1) svg.text(18.0, y += 14.0, lines.back(), "k");
    x = lines.size() > 1 ? svg.width() : x + width;
  }
  return y;
}

std::vector<std::string> draw(BarChart const& chart) {
  double most = 0.0;
  for (BarGroup const& group : chart.groups)
    for (Bar const& bar : group.bars)
      most = std::max({most, sum(bar.parts) + bar.deviation.value_or(0.0), bar.target.value_or(0.0)});
  Scale const scale(0.0, most > 0.0 ? most : 1.0, 1.0, bar_right, 4);
  std::vector<std::string> panels;
  for (BarGroup const& group : chart.groups) panels.push_back(draw_group(group, chart, scale));
  return panels;
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
  std::string const corner = chart.y_title + " \xE2\x86\x93";
  double left = text_width(corner, 11.0);
  for (std::string const& row : chart.rows) left = std::max(left, text_width(row, 11.0));
  left = std::min(left + 10.0, 0.4 * figure_width);
  double const width =
      (figure_width - left - 4.0) / static_cast<double>(std::max<std::size_t>(1, chart.columns.size()));
  double const height = 30.0, top = 40.0;
  svg.text(left - 8.0, top - 8.0, corner, "t", "end");
  svg.text(left + 1.0, 14.0, chart.x_title + " \xE2\x86\x92", "t");
  for (std::size_t column = 0; column < chart.columns.size(); ++column)
    svg.text(left + width * (static_cast<double>(column) + 0.5), top - 8.0,
             text_lines(chart.columns[column], width, 1, 11.0).front(), "t", "middle");
  for (std::size_t row = 0; row < chart.rows.size(); ++row) {
    double const y = top + height * static_cast<double>(row);
    svg.text(left - 8.0, y + 19.0, text_lines(chart.rows[row], left - 8.0, 1, 11.0).front(), "t", "end");
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
