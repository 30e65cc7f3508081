// SPDX-License-Identifier: Apache-2.0
// Draws the figures that combine several rows in one chart: lines, points and heat maps.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/values.hpp"
#include "report/axis.hpp"
#include "report/figures.hpp"
#include "report/judge.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

std::string integer_text(double value) { return std::to_string(std::llround(value)); }

std::set<double> values_of(RowList const& rows, Number number) {
  std::set<double> values;
  for (Row const* row : rows)
    if ((*row)[number]) values.insert(*(*row)[number]);
  return values;
}

LinePoint latency_point(Row const& row, Number x) {
  LinePoint point{*row[x], 1e3 * *row.step_seconds()};
  if (auto const deviation = step_deviation(row)) point.deviation = 1e3 * *deviation;
  point.unsteady = row.is_unsteady();
  return point;
}

void add_heat_map(RowList const& rows, std::string const& name, std::string const& note, Figures& figures) {
  auto const batches = values_of(rows, Number::batch), sequences = values_of(rows, Number::sequence);
  HeatMap map{"Step time in ms by batch and sequence", "sequence", "batch", {}, {}, {}};
  std::size_t const columns = std::min<std::size_t>(sequences.size(), 9),
                    lines = std::min<std::size_t>(batches.size(), 16);
  std::vector<double> const x(sequences.begin(),
                              std::next(sequences.begin(), static_cast<std::ptrdiff_t>(columns)));
  std::vector<double> const y(batches.begin(),
                              std::next(batches.begin(), static_cast<std::ptrdiff_t>(lines)));
  for (double const value : x) map.columns.push_back(integer_text(value));
  for (double const value : y) map.rows.push_back(integer_text(value));
  map.cells.resize(y.size(), std::vector<HeatCell>(x.size()));
  for (Row const* row : rows) {
    auto const column = std::find(x.begin(), x.end(), *(*row)[Number::sequence]);
    auto const line = std::find(y.begin(), y.end(), *(*row)[Number::batch]);
    if (column == x.end() || line == y.end()) continue;
    HeatCell& cell =
        map.cells[static_cast<std::size_t>(line - y.begin())][static_cast<std::size_t>(column - x.begin())];
    if (!cell.value) cell = {1e3 * *row->step_seconds(), row->is_unsteady()};
  }
  std::string text = note + " - is a shape without a measured row." +
                     of_text(columns, sequences.size(), "sequences") +
                     of_text(lines, batches.size(), "batches");
  figures.drawn.push_back({name, map.title, std::move(text), {draw(map)}});
}

}  // namespace

void add_loss_figure(Inputs const& inputs, Figures& figures) {
  std::string const title = "Loss";
  RowList rows;
  for (Row const& row : inputs.rows)
    if (std::count_if(row.losses.begin(), row.losses.end(),
                      [](auto const& loss) { return loss.has_value(); }) > 1)
      rows.push_back(&row);
  if (rows.empty()) {
    figures.left_out.push_back({title, "no row has the losses of two steps"});
    return;
  }
  std::vector<RowList> groups;
  std::map<std::vector<double>, std::size_t> places;
  for (Row const* row : rows) {
    std::vector<double> losses;
    for (auto const& loss : row->losses) losses.push_back(loss.value_or(-1e300));
    auto const [place, is_new] = places.emplace(std::move(losses), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(row);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](RowList const& one, RowList const& other) { return one.size() > other.size(); });
  std::size_t const all = groups.size();
  if (groups.size() > max_series) groups.resize(max_series);
  RowList shown;
  std::size_t longest = 0;
  for (RowList const& group : groups) {
    shown.insert(shown.end(), group.begin(), group.end());
    longest = std::max(longest, group.front()->losses.size());
  }
  auto const varying = varying_dimensions(shown, inputs);
  LineChart chart{title, "step", "loss", {}, false, false, false};
  for (RowList const& group : groups) {
    std::vector<double> steps(group.front()->losses.size());
    for (std::size_t at = 0; at < steps.size(); ++at) steps[at] = static_cast<double>(at + 1);
    Series series = condensed(steps, group.front()->losses, max_buckets);
    std::string const label = common_label(group, varying, inputs);
    series.label = label.empty() ? (*group.front())[Word::experiment] : label;
    if (group.size() > 1) series.label += " (" + std::to_string(group.size()) + " rows)";
    chart.series.push_back(std::move(series));
  }
  std::string note = "Rows whose losses are equal in every digit share one line.";
  auto const [least, most] = std::minmax_element(
      chart.series.begin(), chart.series.end(),
      [](Series const& one, Series const& other) { return one.points.back().y < other.points.back().y; });
  if (chart.series.size() > 1)
    note += " They end between " + cli::shortest(least->points.back().y) + " and " +
            cli::shortest(most->points.back().y) + ".";
  if (longest > max_buckets)
    note += " Each point is a mean of neighbouring steps, with their lowest and highest.";
  figures.drawn.push_back(
      {"loss",
       title,
       note + of_text(groups.size(), all, "different curves, first the ones of most rows"),
       {draw(chart)}});
}

void add_latency_figures(Inputs const& inputs, Figures& figures) {
  std::string const title = "Step time over batch and sequence", heat = "Step time by batch and sequence";
  RowList rows = ok_rows(inputs.rows);
  std::erase_if(rows, [](Row const* row) {
    return !row->step_seconds() || !(*row)[Number::batch] || !(*row)[Number::sequence];
  });
  auto groups = grouped_by(rows, [&](Row const& row) {
    return key_without(row, inputs, {"batch", "sequence"});
  });
  auto const shapes = [](RowList const& group) {
    return values_of(group, Number::batch).size() * values_of(group, Number::sequence).size();
  };
  std::erase_if(groups, [&](RowList const& group) { return shapes(group) < 2; });
  if (groups.empty()) {
    figures.left_out.push_back({title, "no recipe was measured with two batches or two sequences"});
    figures.left_out.push_back({heat, "no recipe was measured with two batches and two sequences"});
    return;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](RowList const& one, RowList const& other) { return shapes(one) > shapes(other); });
  RowList const& group = groups.front();
  bool const over_batch = values_of(group, Number::batch).size() > 1;
  Number const x = over_batch ? Number::batch : Number::sequence;
  Number const other = over_batch ? Number::sequence : Number::batch;
  std::vector<double> lines;
  for (double const value : values_of(group, other)) lines.push_back(value);
  std::size_t const all = lines.size();
  if (lines.size() > max_series) lines.erase(lines.begin(), lines.end() - max_series);
  LineChart chart{title, over_batch ? "batch of a rank" : "sequence", "ms a step", {}, true, true, true};
  for (double const value : lines) {
    Series series;
    series.label = (over_batch ? "sequence " : "batch ") + integer_text(value);
    std::map<double, LinePoint> points;
    for (Row const* row : group)
      if (*(*row)[other] == value) points.emplace(*(*row)[x], latency_point(*row, x));
    for (auto const& [at, point] : points) series.points.push_back(point);
    chart.series.push_back(std::move(series));
  }
  Labels const labels(group, inputs);
  std::string const recipe =
      "Of " +
      (inputs.sources.size() > 1 ? inputs.sources[group.front()->source].label + ", " : std::string()) +
      labels.shared_briefly() + ".";
  std::string const which = groups.size() > 1 ? " It is the recipe with the most shapes, out of " +
                                                    std::to_string(groups.size()) + "; the table has all."
                                              : std::string();
  figures.drawn.push_back(
      {"latency",
       title,
       recipe + which + " Whiskers are one deviation, hollow marks vary by more than 5% or were disturbed." +
           of_text(lines.size(), all, over_batch ? "sequences, the longest" : "batches, the largest"),
       {draw(chart)}});
  auto const both = [](RowList const& list) {
    return values_of(list, Number::batch).size() > 1 && values_of(list, Number::sequence).size() > 1;
  };
  auto const found = std::find_if(groups.begin(), groups.end(), both);
  if (found == groups.end())
    figures.left_out.push_back({heat, "no recipe was measured with two batches and two sequences"});
  else
    add_heat_map(*found, "latency-map", recipe + which, figures);
}

void add_trade_off_figures(Inputs const& inputs, Figures& figures) {
  std::string const title = "Throughput against memory";
  RowList rows = ok_rows(inputs.rows);
  std::erase_if(rows,
                [](Row const* row) { return !(*row)[Number::median_tokens_per_sec] || !row->memory_mb(); });
  auto models = grouped_by(rows, [](Row const& row) { return row[Word::model]; });
  std::erase_if(models, [](RowList const& group) { return group.size() < 2; });
  if (models.empty()) {
    figures.left_out.push_back({title, "no model has two rows with a rate and a measured peak"});
    return;
  }
  std::stable_sort(models.begin(), models.end(),
                   [](RowList const& one, RowList const& other) { return one.size() > other.size(); });
  std::size_t const all = models.size();
  if (models.size() > 2) models.resize(2);
  for (std::size_t at = 0; at < models.size(); ++at) {
    RowList const& group = models[at];
    Labels const labels(group, inputs);
    bool const sources = std::any_of(group.begin(), group.end(),
                                     [&](Row const* row) { return row->source != group.front()->source; });
    ScatterChart chart{title, "peak memory of a rank, MB", "tokens/s", {}, {}, {}};
    double max_x = 0.0, max_y = 0.0;
    bool others = false;
    for (Row const* row : group) {
      max_x = std::max(max_x, *row->memory_mb());
      max_y = std::max(max_y, *(*row)[Number::median_tokens_per_sec]);
    }
    struct Drawn {
      std::size_t point;
      std::size_t rows;
    };
    std::map<std::string, Drawn> places;  // rows with equal positions are drawn as one point
    for (Row const* row : group) {
      std::string const name = sources ? inputs.sources[row->source].label : (*row)[Word::sharding];
      auto found = std::find(chart.series.begin(), chart.series.end(), name);
      if (found == chart.series.end() && chart.series.size() == max_series) {
        found = chart.series.end() - 1;
        others = true;
      }
      if (found == chart.series.end()) found = chart.series.insert(found, name);
      auto const series = static_cast<std::size_t>(found - chart.series.begin());
      double const x = *row->memory_mb(), y = *(*row)[Number::median_tokens_per_sec];
      std::string const place = std::to_string(series) + (row->is_unsteady() ? "~" : " ") +
                                integer_text(120.0 * x / std::max(max_x, 1e-30)) + " " +
                                integer_text(80.0 * y / std::max(max_y, 1e-30));
      auto const [entry, is_new] = places.emplace(place, Drawn{chart.points.size(), 0});
      ++entry->second.rows;
      if (is_new)
        chart.points.push_back(
            {x, y, series, row->is_unsteady(),
             labels.of(*row) + ": " + figure_text(y) + " tokens/s, " + figure_text(x) + " MB"});
    }
    for (auto const& [place, drawn] : places)
      if (drawn.rows > 1)
        chart.points[drawn.point].tip +=
            " and " + std::to_string(drawn.rows - 1) + " more rows at this place";
    if (others) chart.series.back() += " and others";
    RowList const best = frontier(group);
    std::size_t const marked = std::min<std::size_t>(best.size(), 12);
    for (std::size_t i = 0; i < marked; ++i) {
      Row const& row = *best[best.size() - marked + i];
      double const x = *row.memory_mb(), y = *row[Number::median_tokens_per_sec];
      chart.frontier.push_back({{x, y},
                                (row.is_unsteady() ? "~" : "") + figure_text(y) + " tokens/s, " +
                                    figure_text(x) + " MB: " + labels.of(row)});
    }
    std::string note =
        "The line is the frontier: each step to more memory is faster by more than the rows vary. "
        "Hollow marks vary by more than 5% or were disturbed.";
    if (chart.points.size() < group.size())
      note += " " + cli::grouped(static_cast<std::int64_t>(group.size())) + " rows share " +
              cli::grouped(static_cast<std::int64_t>(chart.points.size())) + " places.";
    note += of_text(marked, best.size(), "steps of the frontier, the fastest") +
            of_text(models.size(), all, "models");
    std::string const& model = (*group.front())[Word::model];
    figures.drawn.push_back({at == 0 ? "trade-off" : "trade-off-2",
                             models.size() > 1 && !model.empty() ? title + ", " + model : title,
                             std::move(note),
                             {draw(chart)}});
  }
}

}  // namespace reporting
}  // namespace programs
