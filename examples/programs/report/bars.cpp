// SPDX-License-Identifier: Apache-2.0
// Draws bar charts and heat maps.
#include <algorithm>
#include <cmath>

#include "report/axis.hpp"
#include "report/charts.hpp"

namespace programs {
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

/// The horizontal layout of a bar chart with several columns: the left end of each column, and the greatest
/// width of its bars.
struct SidePlaces {
  double label = 0.0, pitch = 0.0, bars = 0.0;
  double begin(std::size_t column) const { return label + pitch * static_cast<double>(column); }
};

std::string side_text(Bar const& bar, bool deviations) {
  if (deviations) return value_text(bar);
  return (bar.unsteady ? "~" : "") + figure_text(sum(bar.parts));
}

SidePlaces side_places(SideChart const& chart) {
  double label = 0.0, value = 0.0;
  for (SideGroup const& group : chart.groups)
    for (SideBar const& bar : group.bars) {
      label = std::max(label, text_width(bar.label));
      for (auto const& one : bar.values)
        if (one) value = std::max(value, text_width(side_text(*one, chart.deviations), 11.0));
    }
  SidePlaces places;
  places.label = std::min(label, 170.0) + 8.0;
  places.pitch =
      (figure_width - places.label) / static_cast<double>(std::max<std::size_t>(1, chart.columns.size()));
  places.bars = std::max(30.0, places.pitch - std::min(value, 0.6 * places.pitch) - 16.0);
  return places;
}

void draw_side_bar(Svg& svg, double x, double y, double most, SidePlaces const& places, SideBar const& bar,
                   std::size_t column, SideChart const& chart) {
  auto const& value = bar.values[column];
  if (!value) {
    svg.text(x + 5.0, y + 11.0, "-", "t");
    return;
  }
  auto const place = [&](double of) { return x + places.bars * std::max(0.0, of) / most; };
  double const whole = sum(value->parts), deviation = value->deviation.value_or(0.0);
  std::string const words = side_text(*value, chart.deviations);
  svg.rect(x, y + 1.5, place(whole) - x, 11.0, "f" + style_number(bar.series) + (value->unsteady ? " u" : ""),
           bar.label + ": " + words + " " + chart.columns[column]);
  if (value->deviation) {
    svg.line(place(whole - deviation), y + 7.0, place(whole + deviation), y + 7.0, "w");
    for (double const end : {whole - deviation, whole + deviation})
      if (end >= 0.0) svg.line(place(end), y + 4.0, place(end), y + 10.0, "w");
  }
  svg.text(place(whole + deviation) + 5.0, y + 11.0, words, "k v");
}

}  // namespace

std::string draw(SideChart const& chart) {
  constexpr double bar_pitch = 17.0;
  SidePlaces const places = side_places(chart);
  Svg svg(figure_width);
  double y = 14.0;
  bool unsteady = false;
  for (std::size_t column = 0; column < chart.columns.size(); ++column)
    svg.text(places.begin(column), y, chart.columns[column], "t");
  for (SideGroup const& group : chart.groups) {
    y += 6.0;
    for (std::string const& line : text_lines(group.heading, figure_width - 10.0, 2, 13.0))
      svg.text(1.0, y += 14.0, line, "h");
    y += 6.0;
    double const begin = y;
    std::vector<double> most(chart.columns.size(), 0.0);
    for (SideBar const& bar : group.bars)
      for (std::size_t column = 0; column < most.size(); ++column)
        if (auto const& value = bar.values[column]) {
          most[column] = std::max(most[column], sum(value->parts) + value->deviation.value_or(0.0));
          unsteady = unsteady || value->unsteady;
        }
    for (SideBar const& bar : group.bars) {
      svg.text(places.label - 7.0, y + 11.0, text_lines(bar.label, places.label - 6.0, 1).front(), "", "end");
      for (std::size_t column = 0; column < most.size(); ++column)
        draw_side_bar(svg, places.begin(column), y, most[column] > 0.0 ? most[column] : 1.0, places, bar,
                      column, chart);
      y += bar_pitch;
    }
    for (std::size_t column = 0; column < most.size(); ++column)
      svg.line(places.begin(column), begin - 2.0, places.begin(column), y, "a");
  }
  std::string words = "Bars begin at 0; each group has its own scale.";
  if (unsteady) words += " Pale bars with ~ vary by more than 5% or were disturbed.";
  y += 6.0;
  for (std::string const& line : text_lines(words, figure_width - 4.0, 2, 11.0))
    svg.text(1.0, y += 14.0, line, "t");
  svg.grow(y + 6.0);
  return svg.finish(chart.title);
}

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
      // The colour follows the logarithm of the value, because the times of cells can differ by large
      // factors.
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
}  // namespace programs
