// SPDX-License-Identifier: Apache-2.0
// Compares rows of the result table (one row for each measured configuration), and writes the sentences about
// the fastest and the smallest row. A difference of two rows counts only if it exceeds their deviations.
#include "report/judge.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "cli/values.hpp"
#include "report/tables.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// Returns the names of the first three rows as text, then the number of further rows. Rows that ran the same
/// schedule over the same buffers count as one: "A = B".
std::string names_of(RowList const& rows, Labels const& labels) {
  cli::Names names;
  std::size_t more = rows.size();
  for (auto row = rows.begin(); row != rows.end() && names.size() < 3; ++row) {
    auto const is_twin = [&](Row const* other) { return are_one_program(**row, *other); };
    if (std::any_of(rows.begin(), row, is_twin)) continue;
    std::string& name = names.emplace_back(labels.of(**row));
    --more;
    for (auto other = row + 1; other != rows.end(); ++other)
      if (is_twin(*other)) {
        name += " = " + labels.of(**other);
        --more;
      }
  }
  return cli::joined(names) + (more > 0 ? " and " + std::to_string(more) + " more" : std::string());
}

/// Returns the rows without the rows whose rates cannot be compared. These are rows without a rate, and rows
/// that other programs disturbed.
RowList ranked(RowList rows) {
  std::erase_if(rows, [](Row const* row) {
    return !(*row)[Number::median_tokens_per_sec] || row->disturbed.value_or(false);
  });
  return rows;
}

Row const* nominally_fastest(RowList const& rows) {
  return *std::max_element(rows.begin(), rows.end(), [](Row const* one, Row const* other) {
    return (*one)[Number::median_tokens_per_sec].value_or(-1.0) <
           (*other)[Number::median_tokens_per_sec].value_or(-1.0);
  });
}

std::string fastest(RowList const& all, Labels const& labels) {
  if (all.size() > 1 && std::all_of(all.begin() + 1, all.end(),
                                    [&](Row const* row) { return are_one_program(*all.front(), *row); }))
    return "Fastest: none, all " + std::to_string(all.size()) +
           " rows run the same program: " + names_of(all, labels) + ".";
  RowList const rows = ranked(all);
  if (rows.size() < 2) return {};
  RowList const best = fastest_of(all);
  if (best.empty() && !rate_deviation(*nominally_fastest(rows)))
    return "Fastest: unknown, because each row has only one timed step.";
  Row const& first = *nominally_fastest(rows);
  std::string const figure = cli::grouped(std::llround(*first[Number::median_tokens_per_sec])) + " +- " +
                             cli::grouped(std::llround(*rate_deviation(first))) + " tokens/s";
  if (best.empty()) return "Fastest: none; all rows differ by less than they vary, up to " + figure + ".";
  if (best.size() == 1) return "Fastest: " + labels.of(first) + " with " + figure + ".";
  return "Fastest: " + std::to_string(best.size()) + " rows differ by less than they vary, up to " + figure +
         ": " + names_of(best, labels) + ".";
}

std::string smallest(RowList const& rows, Labels const& labels) {
  RowList const least = smallest_of(rows);
  if (least.empty()) return {};
  return "Least device memory: " + number_text((*least.front())[Number::peak_gpu_mem_mb], 2) +
         " MB a rank: " + names_of(least, labels) + ".";
}

}  // namespace

std::optional<double> rate_deviation(Row const& row) {
  if (row[Number::std_tokens_per_sec]) return row[Number::std_tokens_per_sec];
  auto const spread = spread_of(row);
  return spread && row[Number::median_tokens_per_sec]
             ? std::optional(*spread * *row[Number::median_tokens_per_sec])
             : std::nullopt;
}

std::optional<double> step_deviation(Row const& row) {
  return row[Number::std_step_time_s] ? row[Number::std_step_time_s] : row[Number::step_to_step_std_s];
}

bool is_faster(Row const& one, Row const& other) {
  auto const &a = one[Number::median_tokens_per_sec], &b = other[Number::median_tokens_per_sec];
  auto const of_one = spread_of(one), of_other = spread_of(other);
  if (!a || !b || !of_one || !of_other || !(*b > 0.0)) return false;
  if (one.disturbed.value_or(false) || other.disturbed.value_or(false)) return false;
  return *a / *b - 1.0 > std::max(1.0, *a / *b) *
                             (std::max(*of_one, one.twins_differ) + std::max(*of_other, other.twins_differ));
}

bool is_inconclusive_speedup(Row const& row) {
  auto const &speedup = row[Number::speedup], &uncertainty = row[Number::speedup_uncertainty];
  if (!speedup || row[Word::speedup_against] == row[Word::experiment]) return false;
  return !uncertainty || std::fabs(*speedup - 1.0) <= *uncertainty;
}

RowList fastest_of(RowList all) {
  std::erase_if(all, [](Row const* row) { return !(*row)[Number::median_tokens_per_sec]; });
  RowList const candidates = ranked(all);
  if (candidates.size() < 2) return {};
  Row const* const first = nominally_fastest(candidates);
  if (!rate_deviation(*first)) return {};
  RowList unbeaten = candidates;
  std::erase_if(unbeaten, [&](Row const* row) { return row != first && is_faster(*first, *row); });
  // Adds the rows that run the same program as one of the unbeaten rows.
  RowList rows;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rows), [&](Row const* row) {
    return std::any_of(unbeaten.begin(), unbeaten.end(),
                       [&](Row const* other) { return other == row || are_one_program(*row, *other); });
  });
  if (rows.size() == all.size()) return {};
  std::stable_sort(rows.begin(), rows.end(), [](Row const* one, Row const* other) {
    return *(*one)[Number::median_tokens_per_sec] > *(*other)[Number::median_tokens_per_sec];
  });
  return rows;
}

RowList smallest_of(RowList rows) {
  std::erase_if(rows, [](Row const* row) { return !(*row)[Number::peak_gpu_mem_mb]; });
  if (rows.size() < 2) return {};
  double least = *(*rows.front())[Number::peak_gpu_mem_mb];
  for (Row const* row : rows) least = std::min(least, *(*row)[Number::peak_gpu_mem_mb]);
  std::size_t const all = rows.size();
  std::erase_if(rows, [&](Row const* row) { return *(*row)[Number::peak_gpu_mem_mb] > least; });
  return rows.size() == all ? RowList() : rows;
}

RowList frontier(RowList rows) {
  std::erase_if(rows, [](Row const* row) {
    return !(*row)[Number::median_tokens_per_sec] || !(*row)[Number::peak_gpu_mem_mb];
  });
  std::stable_sort(rows.begin(), rows.end(), [](Row const* one, Row const* other) {
    double const a = *(*one)[Number::peak_gpu_mem_mb], b = *(*other)[Number::peak_gpu_mem_mb];
    return a != b ? a < b : *(*one)[Number::median_tokens_per_sec] > *(*other)[Number::median_tokens_per_sec];
  });
  RowList pareto;
  for (Row const* row : rows)
    if (pareto.empty() || is_faster(*row, *pareto.back())) pareto.push_back(row);
  return pareto;
}

std::vector<std::string> verdict(Inputs const& inputs) {
  std::vector<std::string> lines;
  std::map<std::string, std::size_t> counts;
  std::size_t unsteady = 0, disturbed = 0, exact = 0, inexact = 0;
  std::vector<std::pair<std::string, RowList>> models;
  for (Row const& row : inputs.rows) {
    ++counts[row[Word::status]];
    if (!row.ok()) continue;
    unsteady += row.is_unsteady() ? 1 : 0;
    disturbed += row.disturbed.value_or(false) ? 1 : 0;
    auto const &peak = row[Number::peak_gpu_mem_mb], &planned = row[Number::planned_gpu_mem_mb];
    if (peak && planned) (*peak == *planned ? exact : inexact) += 1;
    auto found = std::find_if(models.begin(), models.end(),
                              [&](auto const& entry) { return entry.first == row[Word::model]; });
    if (found == models.end()) found = models.insert(found, {row[Word::model], {}});
    found->second.push_back(&row);
  }
  if (!inputs.rows.empty()) {
    cli::Names parts;
    for (auto const& [status, count] : counts)
      parts.push_back(cli::grouped(static_cast<std::int64_t>(count)) + " " + status);
    lines.push_back("Rows: " + cli::joined(parts) + ".");
  }
  std::size_t line_count = 0;
  for (auto const& [model, rows] : models) {
    if (line_count++ == 4) {
      lines.push_back(std::to_string(models.size() - 4) + " more models are in the table.");
      break;
    }
    Labels const labels(rows, inputs);
    std::string const of =
        models.size() > 1 ? (model.empty() ? "no model named" : model) + ": " : std::string();
    for (std::string const& line : {fastest(rows, labels), smallest(rows, labels)})
      if (!line.empty()) lines.push_back(of + line);
  }
  if (exact + inexact > 0)
    lines.push_back(inexact == 0 ? "Memory: the plan is the peak to the byte in all " +
                                       std::to_string(exact) + " rows."
                                 : "Memory: plan and peak differ in " + std::to_string(inexact) + " of " +
                                       std::to_string(exact + inexact) + " rows.");
  if (!inputs.rivals.empty())
    lines.push_back("Other programs: " + std::to_string(inputs.rivals.size()) +
                    (inputs.rivals.size() == 1 ? " row" : " rows") +
                    " in a separate table, not measured by compare; the lines above do not include them.");
  if (disturbed > 0)
    lines.push_back("Busy: other programs used the processor while " + std::to_string(disturbed) +
                    (disturbed == 1 ? " row" : " rows") +
                    " ran. These rows are not ranked; compare again when the other programs have ended.");
  if (unsteady > 0)
    lines.push_back("~ marks " + std::to_string(unsteady) +
                    (unsteady == 1 ? " row that varies" : " rows that vary") +
                    " by more than 5% from step to step or repeat to repeat" +
                    (disturbed > 0 ? ", or that other programs disturbed." : "."));
  return lines;
}

}  // namespace reporting
}  // namespace programs
