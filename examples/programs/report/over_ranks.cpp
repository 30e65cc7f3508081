// SPDX-License-Identifier: Apache-2.0
// Draws the figures over the number of ranks: speed-up, throughput, total training time, and total time in
// collectives. A line of such a figure is one recipe on several numbers of ranks.
#include <algorithm>
#include <cmath>
#include <set>

#include "cli/values.hpp"
#include "report/figures.hpp"
#include "report/judge.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

std::set<double> ranks_of(RowList const& rows) {
  std::set<double> ranks;
  for (Row const* row : rows) ranks.insert(*(*row)[Number::world]);
  return ranks;
}

double largest_shape(RowList const& rows) {
  Row const& row = *rows.front();
  return row[Number::batch].value_or(0.0) * row[Number::sequence].value_or(0.0);
}

/// Returns the value as text; "?" if it is unknown.
std::string number_or_unknown(std::optional<double> const& value) {
  return value ? cli::exact(*value) : std::string("?");
}

std::optional<double> global_batch_of(Row const& row) {
  if (row[Number::global_batch]) return row[Number::global_batch];
  if (!row[Number::batch] || !row[Number::world]) return std::nullopt;
  return *row[Number::batch] * *row[Number::world] * row[Number::accumulation].value_or(1.0);
}

/// Returns the number of timed steps of one training; nullopt if it is unknown or 0.
std::optional<double> timed_steps_of(Row const& row) {
  if (!row[Number::steps]) return std::nullopt;
  double const timed = *row[Number::steps] - row[Number::warmup].value_or(0.0);
  return timed > 0.0 ? std::optional(timed) : std::nullopt;
}

/// Returns the number of samples in the timed steps of one training.
std::optional<double> samples_of(Row const& row) {
  auto const steps = timed_steps_of(row), batch = global_batch_of(row);
  return steps && batch ? std::optional(*steps * *batch) : std::nullopt;
}

std::string global_batch_text(Row const& row) { return number_or_unknown(global_batch_of(row)); }
std::string samples_text(Row const& row) { return number_or_unknown(samples_of(row)); }
std::string steps_text(Row const& row) { return number_or_unknown(timed_steps_of(row)); }
std::string global_batch_and_steps_text(Row const& row) {
  return global_batch_text(row) + "\n" + steps_text(row);
}

/// A rule that says which rows form a line: rows whose settings differ only in the ranks, and whose `amount`
/// is equal. If `by_global_batch` is true, they may also differ in batch and accumulation.
struct Rule {
  bool by_global_batch;
  std::string (*amount)(Row const&);
  char const* caption;  ///< the beginning of a sentence
};
std::vector<Rule> const rules_of_rates = {
    {false, [](Row const&) { return std::string(); }, "The batch of a rank is constant"},
    {true, global_batch_text, "The global batch is constant"}};
// A total time depends on the amount of work, so the rows of a line must do equally much. The last rule
// applies only if no rows do equally much work: with this rule, more ranks train on more samples.
std::vector<Rule> const rules_of_totals = {
    {false, samples_text, "The batch of a rank and the number of samples are constant"},
    {true, global_batch_and_steps_text, "The global batch and the number of steps are constant"},
    {false, steps_text,
     "The batch of a rank and the number of steps are constant, so more ranks train on more samples"}};

/// Returns a key that is equal for the rows of one line. Rows of other programs have the program's name as
/// their experiment.
std::string line_of(Row const& row, Rule const& rule, Inputs const& inputs, bool rival) {
  std::vector<std::string> free = {"ranks"};
  if (rule.by_global_batch) free.insert(free.end(), {"batch", "accum."});
  return key_without(row, inputs, free) + rule.amount(row) + (rival ? "\n" + row[Word::experiment] : "");
}

/// Returns a key that is equal for rows that do the same work. A row of another program is drawn only if its
/// work is the work of a line of Tessera.
std::string work_of(Row const& row, Rule const& rule) {
  auto const slot = [&](Word word) { return row[word].empty() ? std::string("none") : row[word]; };
  std::string work = row[Word::model] + "\n" + row[Word::precision] + "\n" + slot(Word::offload) + "\n" +
                     slot(Word::recompute) + "\n" + slot(Word::adapters) + "\n" +
                     number_or_unknown(row[Number::sequence]) + "\n";
  if (!rule.by_global_batch)
    work +=
        number_or_unknown(row[Number::batch]) + "\n" + cli::exact(row[Number::accumulation].value_or(1.0));
  return work + "\n" + rule.amount(row);
}

/// Returns the lines of the rows: each has rows on at least two numbers of ranks, in the order of the ranks,
/// and one row for each number. The lines with the most ranks are first, then the lines with the largest
/// shape.
std::vector<RowList> lines_of(RowList const& rows, Rule const& rule, Inputs const& inputs, bool rivals) {
  std::vector<RowList> lines =
      grouped_by(rows, [&](Row const& row) { return line_of(row, rule, inputs, rivals); });
  std::erase_if(lines, [&](RowList const& line) {
    bool const unknown = rule.amount(*line.front()).find('?') != std::string::npos;
    return unknown || ranks_of(line).size() < 2;
  });
  std::stable_sort(lines.begin(), lines.end(), [](RowList const& one, RowList const& other) {
    std::size_t const a = ranks_of(one).size(), b = ranks_of(other).size();
    return a != b ? a > b : largest_shape(one) > largest_shape(other);
  });
  for (RowList& line : lines) {
    auto const ranks = [](Row const* row) { return *(*row)[Number::world]; };
    std::stable_sort(line.begin(), line.end(),
                     [&](Row const* one, Row const* other) { return ranks(one) < ranks(other); });
    line.erase(std::unique(line.begin(), line.end(),
                           [&](Row const* one, Row const* other) { return ranks(one) == ranks(other); }),
               line.end());
  }
  return lines;
}

bool has_ranks(Row const& row) { return row[Number::world].value_or(0.0) >= 1.0; }

std::string of_lines_text(std::size_t shown, std::size_t all) {
  return of_text(shown, all,
                 "recipes and shapes, first the ones with the most rank counts, then the ones with the "
                 "largest shape");
}

/// Returns the label of a line: the settings in which the lines differ.
std::string label_of(RowList const& line, std::vector<std::size_t> const& varying, std::size_t lines,
                     Inputs const& inputs) {
  std::string const label = common_label(line, varying, inputs);
  if (!label.empty()) return label;
  return lines == 1 ? "measured" : (*line.front())[Word::experiment];
}

/// A figure of a measured value over ranks. `point` returns nullopt if the value was not measured.
struct Measure {
  std::string name, title, unit, note, missing;
  std::vector<Rule> const& rules;
  std::optional<LinePoint> (*point)(Row const& row);
};

LineChart chart_of(Measure const& measure, std::vector<RowList> const& lines,
                   std::vector<std::string> const& labels) {
  LineChart chart{measure.title, "ranks", measure.unit, {}, true, true, true};
  for (std::size_t at = 0; at < lines.size(); ++at) {
    Series series;
    series.label = labels[at];
    for (Row const* row : lines[at]) series.points.push_back(*measure.point(*row));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_measure(Measure const& measure, Inputs const& inputs, Figures& figures) {
  RowList ours, theirs;
  for (Row const* row : ok_rows(inputs.rows))
    if (has_ranks(*row) && measure.point(*row)) ours.push_back(row);
  for (Rival const& rival : inputs.rivals)
    if (has_ranks(rival.row) && measure.point(rival.row)) theirs.push_back(&rival.row);
  std::vector<RowList> own, rivals;
  Rule const* rule = nullptr;
  for (std::size_t at = 0; at < measure.rules.size() && own.empty() && rivals.empty(); ++at) {
    rule = &measure.rules[at];
    own = lines_of(ours, *rule, inputs, false);
    rivals = lines_of(theirs, *rule, inputs, true);
    if (own.empty()) continue;
    std::erase_if(rivals, [&](RowList const& line) {
      return std::none_of(own.begin(), own.end(), [&](RowList const& other) {
        auto const &params = (*line.front())[Number::params], &of_own = (*other.front())[Number::params];
        return work_of(*line.front(), *rule) == work_of(*other.front(), *rule) &&
               (!params || !of_own || *params == *of_own);
      });
    });
  }
  std::size_t const all = own.size() + rivals.size();
  if (all == 0) {
    figures.left_out.push_back({measure.title, measure.missing});
    return;
  }
  own.resize(std::min(own.size(), max_series));
  rivals.resize(std::min(rivals.size(), max_series));
  RowList shown;
  std::set<std::size_t> own_sources;
  for (RowList const& line : own)
    for (Row const* row : line) {
      shown.push_back(row);
      own_sources.insert(row->source);
    }
  for (RowList const& line : rivals) shown.insert(shown.end(), line.begin(), line.end());
  std::vector<std::size_t> varying = varying_dimensions(shown, inputs);
  if (own_sources.size() < 2)  // the name of the program says which rows come from the other file
    std::erase_if(varying, [](std::size_t at) { return dimensions()[at].header == std::string("source"); });
  std::vector<std::string> own_labels, rival_labels;
  for (RowList const& line : own)
    own_labels.push_back((rivals.empty() ? "" : "Tessera ") + label_of(line, varying, own.size(), inputs));
  for (RowList const& line : rivals) {
    std::string const settings = common_label(line, varying, inputs);
    rival_labels.push_back((*line.front())[Word::experiment] + (settings.empty() ? "" : " " + settings));
  }
  std::vector<std::string> panels;
  if (own.size() + rivals.size() <= max_series) {
    std::vector<RowList> lines = own;
    lines.insert(lines.end(), rivals.begin(), rivals.end());
    std::vector<std::string> labels = own_labels;
    labels.insert(labels.end(), rival_labels.begin(), rival_labels.end());
    panels.push_back(draw(chart_of(measure, lines, labels)));
  } else {
    if (!own.empty()) panels.push_back(draw(chart_of(measure, own, own_labels)));
    if (!rivals.empty()) panels.push_back(draw(chart_of(measure, rivals, rival_labels)));
  }
  std::string note = measure.note + " " + rule->caption + ".";
  if (panels.size() > 1) note += " The second panel has the other programs, with its own scale.";
  if (std::any_of(shown.begin(), shown.end(), [](Row const* row) { return row->is_unsteady(); }))
    note += " Hollow marks vary by more than 5% or were disturbed.";
  note += of_lines_text(own.size() + rivals.size(), all);
  figures.drawn.push_back({measure.name, measure.title, std::move(note), std::move(panels)});
}

std::optional<LinePoint> rate_point(Row const& row) {
  if (!(row[Number::median_tokens_per_sec].value_or(0.0) > 0.0)) return std::nullopt;
  LinePoint point{*row[Number::world], *row[Number::median_tokens_per_sec]};
  point.deviation = rate_deviation(row);
  point.unsteady = row.is_unsteady();
  return point;
}

/// Returns the point of a row in the figure of training times. In result files, the training time is the sum
/// over the repeats of a row, so the point is the mean over the repeats.
std::optional<LinePoint> time_point(Row const& row) {
  if (!(row[Number::train_time_s].value_or(0.0) > 0.0) || !timed_steps_of(row)) return std::nullopt;
  LinePoint point{*row[Number::world],
                  *row[Number::train_time_s] / std::max(1.0, row[Number::repeats].value_or(1.0))};
  if (auto const spread = spread_of(row)) point.deviation = point.y * *spread;
  point.unsteady = row.is_unsteady();
  return point;
}

/// Returns the point of a row in the figure of collectives. A row that sends no byte, such as a row of one
/// GPU, has no measured time of its collectives. Its point is at 0 s.
std::optional<LinePoint> collectives_point(Row const& row) {
  auto const steps = timed_steps_of(row);
  std::optional<double> const step_s =
      row[Number::comm_bytes_per_step] == 0.0 ? std::optional(0.0) : row[Number::comm_time_s];
  if (!step_s || !steps) return std::nullopt;
  LinePoint point{*row[Number::world], *step_s * *steps};
  point.unsteady = row.is_unsteady();
  return point;
}

void add_speedup(Inputs const& inputs, Figures& figures) {
  std::string const title = "Speed-up over ranks";
  RowList rows = ok_rows(inputs.rows);
  std::erase_if(rows, [](Row const* row) { return !has_ranks(*row) || !rate_point(*row); });
  std::vector<RowList> lines;
  Rule const* rule = nullptr;
  for (std::size_t at = 0; at < rules_of_rates.size() && lines.empty(); ++at) {
    rule = &rules_of_rates[at];
    lines = lines_of(rows, *rule, inputs, false);
  }
  if (lines.empty()) {
    figures.left_out.push_back({title, "no recipe was measured on two rank counts"});
    return;
  }
  std::size_t const all = lines.size();
  lines.resize(std::min(all, max_series - 1));
  RowList shown;
  for (RowList const& line : lines) shown.insert(shown.end(), line.begin(), line.end());
  std::vector<std::size_t> const varying = varying_dimensions(shown, inputs);
  LineChart chart{title, "ranks", "times the speed of one rank", {}, true, true, true};
  double most = 1.0;
  for (RowList const& line : lines) {
    Series series;
    series.label = label_of(line, varying, lines.size(), inputs);
    Row const& base = *line.front();
    double const ranks = *base[Number::world], rate = *base[Number::median_tokens_per_sec];
    for (Row const* row : line) {
      double const world = *(*row)[Number::world];
      LinePoint point{world, ranks * *(*row)[Number::median_tokens_per_sec] / rate};
      auto const of_row = spread_of(*row), of_base = spread_of(base);
      if (row != &base && of_row && of_base) point.deviation = point.y * (*of_row + *of_base);
      point.unsteady = row->is_unsteady();
      most = std::max(most, world);
      series.points.push_back(point);
    }
    chart.series.push_back(std::move(series));
  }
  Series ideal;
  ideal.label = "ideal";
  ideal.ideal = true;
  ideal.points = {{0.0, 0.0}, {most, most}};
  chart.series.push_back(std::move(ideal));
  std::string note = std::string(rule->caption) +
                     "; for each line, the rate on the fewest ranks counts as ideal. Whiskers are the "
                     "deviations of both rates; hollow marks vary by more than 5% or were disturbed." +
                     of_lines_text(lines.size(), all);
  figures.drawn.push_back({"scaling", title, std::move(note), {draw(chart)}});
}

}  // namespace

void add_rank_figures(Inputs const& inputs, Figures& figures) {
  add_speedup(inputs, figures);
  std::string const missing = "no recipe was measured on two rank counts";
  add_measure({"throughput-ranks", "Throughput over ranks", "tokens/s",
               "The rate of all ranks; whiskers are one deviation.", missing, rules_of_rates, rate_point},
              inputs, figures);
  add_measure({"train-time-ranks", "Total training time over ranks", "seconds",
               "The time of all timed steps of one training; whiskers are one deviation.",
               missing + " with equally many timed steps or samples", rules_of_totals, time_point},
              inputs, figures);
  add_measure({"communication-ranks", "Total time in collectives over ranks", "seconds",
               "The time of a step in collectives, as the mean over ranks, times the timed steps of one "
               "training. It includes the time that overlaps with computation.",
               missing + " with the time of its collectives, and with equally many timed steps or samples",
               rules_of_totals, collectives_point},
              inputs, figures);
}

}  // namespace reporting
}  // namespace programs
