// SPDX-License-Identifier: Apache-2.0
// Draws the bar figures of a report. Each bar shows one row of the result table, which is one configuration.
#include "report/figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/values.hpp"
#include "report/axis.hpp"
#include "report/judge.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

constexpr std::size_t bars_of_a_panel = 12, max_bars = 36, max_panels = 6, max_parts = 6;

std::string count_text(std::size_t count, char const* what) {
  return cli::grouped(static_cast<std::int64_t>(count)) + " " + what + (count == 1 ? "" : "s");
}

/// A bar figure before it is drawn. `has` says whether a row belongs in the figure, and `bar` returns the
/// row's bar.
struct Bars {
  std::string name, title, unit, note, missing;
  std::vector<std::string> parts = {};
  std::string target = {};
  std::function<bool(Row const&)> has = {};
  std::function<Bar(Row const&)> bar = {};
};

/// Returns a key that is equal for rows with the same model and shape. The figures compare only rows with
/// equal keys, because a difference between such rows is due to their recipes.
std::string shape_of(Row const& row, Inputs const& inputs) {
  return key_without(row, inputs,
                     {"source", "sharding", "precision", "offload", "recompute", "reduction", "communication",
                      "capture", "attention", "parallel", "adapters", "seed"}) +
         row[Word::mesh];
}

void add(Bars const& bars, std::vector<Row> const& all, bool only_ok, Inputs const& inputs,
         Figures& figures) {
  RowList rows;
  for (Row const& row : all)
    if ((!only_ok || row.ok()) && bars.has(row)) rows.push_back(&row);
  if (rows.empty()) {
    figures.left_out.push_back({bars.title, bars.missing});
    return;
  }
  BarChart chart{bars.title, bars.unit, bars.parts, bars.target, {}};
  std::string note = bars.note;
  bool unsteady = false;
  for (Panel const& panel : panels_of(rows, inputs, note)) {
    Labels const labels(panel.rows, inputs);
    BarGroup group{panel.heading, {}};
    for (Row const* row : panel.rows) {
      Bar bar = bars.bar(*row);
      bar.label = labels.of(*row);
      unsteady = unsteady || bar.unsteady;
      group.bars.push_back(std::move(bar));
    }
    chart.groups.push_back(std::move(group));
  }
  if (unsteady) note += " Pale bars with ~ vary by more than 5% or were disturbed.";
  figures.drawn.push_back({bars.name, bars.title, std::move(note), draw(chart)});
}

/// Returns the names of the memory categories in the memory plans `plans`, the largest category first. If
/// there are too many, the name "other" replaces the smallest ones.
std::vector<std::string> categories_of(std::vector<Row> const& plans) {
  std::vector<std::pair<std::string, double>> sizes;
  for (Row const& plan : plans)
    for (auto const& [name, size] : plan.categories) {
      if (size <= 0.0) continue;
      auto found = std::find_if(sizes.begin(), sizes.end(),
                                [name = name](auto const& entry) { return entry.first == name; });
      if (found == sizes.end())
        sizes.emplace_back(name, size);
      else
        found->second = std::max(found->second, size);
    }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](auto const& one, auto const& other) { return one.second > other.second; });
  std::vector<std::string> names;
  for (auto const& [name, size] : sizes) names.push_back(name);
  if (names.size() > max_parts) {
    names.resize(max_parts - 1);
    names.emplace_back("other");
  }
  return names;
}

void add_memory(Inputs const& inputs, Figures& figures) {
  struct Place {
    char const* name;
    Number number;
  };
  std::vector<Place> places;
  for (Place const place :
       {Place{"device", Number::peak_gpu_mem_mb}, Place{"host, for offload", Number::host_mem_mb},
        Place{"NVMe", Number::nvme_mb}, Place{"libraries on the device", Number::library_mb}})
    if (std::any_of(inputs.rows.begin(), inputs.rows.end(),
                    [&](Row const& row) { return row.ok() && row[place.number].value_or(0.0) > 0.0; }))
      places.push_back(place);
  Bars memory{"memory", "Memory of a rank by place", "MB",
              "The peak of the rank that uses the most; MB are 2^20 bytes.", "no row has a measured peak"};
  for (Place const& place : places) memory.parts.emplace_back(place.name);
  memory.has = [](Row const& row) { return row[Number::peak_gpu_mem_mb].has_value(); };
  memory.bar = [&](Row const& row) {
    Bar bar;
    for (Place const& place : places) bar.parts.push_back(row[place.number].value_or(0.0));
    return bar;
  };
  add(memory, inputs.rows, true, inputs, figures);

  std::vector<std::string> const categories = categories_of(inputs.plans);
  Bars planned{"memory-categories", "Planned memory of the device by category", "MB",
               "As planned for the rank that uses the most; MB are 2^20 bytes.",
               "no plan was given (plan --json FILE)"};
  planned.parts = categories;
  planned.has = [](Row const& row) { return !row.categories.empty(); };
  planned.bar = [&](Row const& row) {
    Bar bar;
    bar.parts.resize(categories.size(), 0.0);
    for (auto const& [name, size] : row.categories) {
      auto found = std::find(categories.begin(), categories.end(), name);
      if (found == categories.end()) found = std::find(categories.begin(), categories.end(), "other");
      if (found != categories.end()) bar.parts[static_cast<std::size_t>(found - categories.begin())] += size;
    }
    return bar;
  };
  add(planned, inputs.plans, false, inputs, figures);
}

void add_plan(Inputs const& inputs, Figures& figures) {
  std::map<std::string, double> plans;
  auto const key = [](Row const& row) {
    return row[Word::model] + "\n" + row[Word::device] + "\n" + row[Word::experiment];
  };
  for (Row const& plan : inputs.plans)
    if (plan[Number::planned_gpu_mem_mb]) plans.emplace(key(plan), *plan[Number::planned_gpu_mem_mb]);
  auto const planned = [&](Row const& row) -> std::optional<double> {
    auto const found = plans.find(key(row));
    return found != plans.end() ? std::optional(found->second) : row[Number::planned_gpu_mem_mb];
  };
  std::size_t rows = 0, equal = 0;
  double worst = 0.0;
  for (Row const& row : inputs.rows) {
    auto const plan = planned(row);
    auto const& peak = row[Number::peak_gpu_mem_mb];
    if (!row.ok() || !peak || !plan) continue;
    ++rows;
    equal += *plan == *peak ? 1 : 0;
    if (*plan > 0.0) worst = std::max(worst, std::fabs(*peak / *plan - 1.0));
  }
  Bars bars{"plan", "Planned and measured memory", "MB", {}, "no row has both a plan and a measured peak"};
  bars.note = equal == rows
                  ? "The plan equals the peak to the byte in all " + count_text(rows, "row") + "."
                  : "The plan equals the peak to the byte in " +
                        cli::grouped(static_cast<std::int64_t>(equal)) + " of " + count_text(rows, "row") +
                        "; the largest difference is " + cli::fixed(100.0 * worst, 2) + "%.";
  bars.target = "planned";
  bars.has = [&](Row const& row) { return row[Number::peak_gpu_mem_mb] && planned(row); };
  bars.bar = [&](Row const& row) {
    Bar bar;
    bar.parts = {*row[Number::peak_gpu_mem_mb]};
    bar.target = planned(row);
    return bar;
  };
  add(bars, inputs.rows, true, inputs, figures);
}

}  // namespace

std::string key_without(Row const& row, Inputs const& inputs, std::vector<std::string> const& left_out) {
  std::string key;
  for (Dimension const& dimension : dimensions())
    if (std::find(left_out.begin(), left_out.end(), dimension.header) == left_out.end())
      key += dimension.value(row, inputs) + "\n";
  return key;
}

std::vector<RowList> grouped_by(RowList const& rows, std::function<std::string(Row const&)> const& key) {
  std::vector<RowList> groups;
  std::map<std::string, std::size_t> places;
  for (Row const* row : rows) {
    auto const [place, is_new] = places.emplace(key(*row), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(row);
  }
  return groups;
}

std::string of_text(std::size_t shown, std::size_t all, char const* what) {
  return shown == all
             ? std::string()
             : " Shown are " + std::to_string(shown) + " of " + std::to_string(all) + " " + what + ".";
}

std::vector<Panel> panels_of(RowList const& rows, Inputs const& inputs, std::string& note) {
  Labels const labels(rows, inputs);
  if (!labels.shared_briefly().empty()) note += " All rows: " + labels.shared_briefly() + ".";
  if (rows.size() <= bars_of_a_panel) return {{"", rows}};
  std::vector<RowList> groups;
  for (RowList& shape : grouped_by(rows, [&](Row const& row) { return shape_of(row, inputs); })) {
    if (shape.size() <= bars_of_a_panel)
      groups.push_back(std::move(shape));
    else
      for (RowList& part : grouped_by(shape, [](Row const& row) { return row[Word::precision]; }))
        groups.push_back(std::move(part));
  }
  std::size_t const all = groups.size();
  auto const tokens = [](RowList const& group) {
    Row const& row = *group.front();
    return row[Number::world].value_or(1.0) * row[Number::batch].value_or(1.0) *
           row[Number::sequence].value_or(1.0);
  };
  std::stable_sort(groups.begin(), groups.end(), [&](RowList const& one, RowList const& other) {
    std::size_t const a = std::min(one.size(), bars_of_a_panel), b = std::min(other.size(), bars_of_a_panel);
    return a != b ? a > b : tokens(one) > tokens(other);
  });
  auto const varying = varying_dimensions(rows, inputs);
  std::vector<Panel> panels;
  std::size_t shown = 0;
  bool cut = false;
  for (RowList& group : groups) {
    if (panels.size() == max_panels || shown + std::min(group.size(), bars_of_a_panel) > max_bars) break;
    Panel panel{common_label(group, varying, inputs), std::move(group)};
    if (panel.rows.size() > bars_of_a_panel) {
      std::stable_sort(panel.rows.begin(), panel.rows.end(), [](Row const* one, Row const* other) {
        return (*one)[Number::median_tokens_per_sec].value_or(0.0) >
               (*other)[Number::median_tokens_per_sec].value_or(0.0);
      });
      panel.rows.resize(bars_of_a_panel);
      cut = true;
    }
    shown += panel.rows.size();
    panels.push_back(std::move(panel));
  }
  std::stable_sort(panels.begin(), panels.end(), [&](Panel const& one, Panel const& other) {
    return tokens(one.rows) < tokens(other.rows);
  });
  if (shown < rows.size())
    note += " Shown are " + cli::grouped(static_cast<std::int64_t>(shown)) + " of " +
            count_text(rows.size(), "row") + ": " +
            (panels.size() < all ? "the largest " + std::to_string(panels.size()) + " of " +
                                       count_text(all, "group") + " of rows that differ only in their recipes"
                                 : "all groups") +
            (cut ? ", and in each group the " + std::to_string(bars_of_a_panel) +
                       " rows with the highest throughput"
                 : "") +
            "; the table has all.";
  return panels;
}

void add_bar_figures(Inputs const& inputs, Figures& figures) {
  auto const has = [](Number number) { return [number](Row const& row) { return row[number].has_value(); }; };
  Bars rate{"throughput", "Throughput", "tokens/s",
            "Over all ranks; whiskers are one deviation, over steps, or over repeats if there are several.",
            "no row has a measured rate"};
  rate.has = has(Number::median_tokens_per_sec);
  rate.bar = [](Row const& row) {
    Bar bar;
    bar.parts = {*row[Number::median_tokens_per_sec]};
    bar.deviation = rate_deviation(row);
    bar.unsteady = row.is_unsteady();
    return bar;
  };
  add(rate, inputs.rows, true, inputs, figures);
  Bars step{"step-time", "Step time", "ms",
            "Median step; whiskers are one deviation, over steps, or over repeats if there are several.",
            "no row has a step time"};
  step.has = [](Row const& row) { return row.step_seconds().has_value(); };
  step.bar = [](Row const& row) {
    Bar bar;
    bar.parts = {1e3 * *row.step_seconds()};
    if (auto const deviation = step_deviation(row)) bar.deviation = 1e3 * *deviation;
    bar.unsteady = row.is_unsteady();
    return bar;
  };
  add(step, inputs.rows, true, inputs, figures);
  add_memory(inputs, figures);
  Bars share{"communication", "Share of a step in collectives", "% of the mean step",
             "Mean over ranks, for rows with several ranks; exposed: the rank computes nothing meanwhile. "
             "The share has no deviation, because it is measured as one sum.",
             "no row of several ranks has the time of its collectives"};
  share.parts = {"exposed", "hidden behind computing"};
  share.has = [](Row const& row) {
    return row[Number::world].value_or(1.0) > 1.0 && row[Number::comm_time_s] &&
           row[Number::avg_step_time_s].value_or(0.0) > 0.0;
  };
  share.bar = [](Row const& row) {
    double const step_s = *row[Number::avg_step_time_s], all = *row[Number::comm_time_s];
    double const exposed = std::min(all, row[Number::comm_exposed_s].value_or(all));
    Bar bar;
    bar.parts = {100.0 * exposed / step_s, 100.0 * (all - exposed) / step_s};
    bar.unsteady = row.is_unsteady();
    return bar;
  };
  add(share, inputs.rows, true, inputs, figures);
  add_plan(inputs, figures);
}

Figures figures_of(Inputs const& inputs) {
  Figures figures;
  add_bar_figures(inputs, figures);
  add_side_figures(inputs, figures);
  add_trade_off_figures(inputs, figures);
  add_loss_figure(inputs, figures);
  add_rank_figures(inputs, figures);
  add_latency_figures(inputs, figures);
  add_recording_figures(inputs, figures);
  return figures;
}

}  // namespace reporting
}  // namespace programs
