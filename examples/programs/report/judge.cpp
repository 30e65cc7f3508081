// SPDX-License-Identifier: Apache-2.0
// Compares rows of the result table (one row for each measured configuration), and writes the sentences about
// the fastest and the smallest row. A difference of two rows counts only if it exceeds their deviations.
#include "report/judge.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "cli/values.hpp"
#include "report/tables.hpp"
#include "results/verdicts.hpp"

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

/// Returns the work of a row as text: the model, ranks, samples and tokens of a step, and the row's input if
/// there are several.
std::string work_of(Row const& row, Inputs const& inputs) {
  cli::Names work = {row[Word::model]};
  auto const add = [&](std::string const& name, Number of) {
    if (row[of]) work.push_back(name + number_text(row[of], 0));
  };
  add("ranks ", Number::world);
  if (!row[Word::mesh].empty() && row[Word::mesh] != "none") work.push_back("mesh " + row[Word::mesh]);
  add("global batch ", Number::global_batch);
  add("sequence ", Number::sequence);
  if (inputs.sources.size() > 1 && row.source < inputs.sources.size())
    work.push_back(inputs.sources[row.source].label);
  return cli::joined(work);
}

/// Returns the names of the row's policies.
SlotNames names_in(Row const& row) {
  return {.device = row[Word::device],
          .sharding = row[Word::sharding],
          .precision = row[Word::precision],
          .loss_scale = row[Word::loss_scale],
          .offload = row[Word::offload],
          .recompute = row[Word::recompute],
          .reduction = row[Word::reduction],
          .communication = row[Word::communication],
          .capture = row[Word::capture],
          .attention = row[Word::attention_policy],
          .parallel = row[Word::parallel],
          .adapters = row[Word::adapters]};
}

/// Returns the facts from which the rows are judged, in the order of the rows. If `inputs` is null, the facts
/// lack the work of the rows.
std::vector<results::Candidate> candidates_of(RowList const& rows, Inputs const* inputs = nullptr) {
  std::map<std::string, std::size_t> programs;
  std::vector<results::Candidate> candidates;
  for (Row const* row : rows) {
    results::Candidate& candidate = candidates.emplace_back();
    candidate.name = (*row)[Word::experiment];
    candidate.status = (*row)[Word::status];
    candidate.ranked = !row->disturbed.value_or(false);
    candidate.rate = (*row)[Number::median_tokens_per_sec];
    if (auto const spread = spread_of(*row)) candidate.spread = std::max(*spread, row->twins_differ);
    candidate.peak_mb = row->memory_mb();
    candidate.limit_mb = (*row)[Number::device_limit_mb];
    candidate.utilization_pct = (*row)[Number::avg_gpu_util_pct];
    candidate.utilization_deviation_pct = (*row)[Number::std_gpu_util_pct];
    if (!row->program.empty())
      candidate.program =
          programs.emplace(std::to_string(row->source) + "/" + row->program, programs.size()).first->second;
    if (inputs != nullptr) candidate.work = work_of(*row, *inputs);
    results::describe_recipe(candidate, names_in(*row));
  }
  return candidates;
}

/// The rows with the best figure: for each program the row that represents it, followed by its other rows.
struct BestRows {
  RowList rows;
  results::Leaders leaders;
  double most = 0.0;                  ///< the highest figure
  std::optional<double> deviation{};  ///< of the highest figure
};
BestRows best_rows(RowList const& all, results::Figure const& figure) {
  std::vector<results::Candidate> const candidates = candidates_of(all);
  BestRows best{{}, results::leaders_of(candidates, figure)};
  for (std::size_t const at : best.leaders.rows) {
    best.rows.push_back(all[at]);
    for (std::size_t other = 0; other < all.size(); ++other)
      if (other != at && candidates[other].program && candidates[other].program == candidates[at].program &&
          candidates[other].ok())
        best.rows.push_back(all[other]);
  }
  if (best.leaders.rows.empty()) return best;
  Row const& first = *best.rows.front();
  best.most = *figure(candidates[best.leaders.rows.front()]);
  auto const &deviation = rate_deviation(first), &rate = first[Number::median_tokens_per_sec];
  if (deviation && *rate > 0.0) best.deviation = *deviation / *rate * best.most;
  return best;
}
std::optional<double> efficiency(results::Candidate const& row) { return results::efficiency_of(row); }

std::string best_text(std::string const& title, BestRows const& best, std::size_t all,
                      std::string const& unit, Labels const& labels) {
  std::string const figure = cli::grouped(std::llround(best.most)) + " +- " +
                             cli::grouped(std::llround(*best.deviation)) + " " + unit;
  if (best.rows.size() == all)
    return title + ": none; all rows differ by less than they vary, up to " + figure + ".";
  if (best.leaders.rows.size() == 1)
    return title + ": " + names_of(best.rows, labels) + " with " + figure + ".";
  return title + ": " + std::to_string(best.rows.size()) + " rows differ by less than they vary, up to " +
         figure + ": " + names_of(best.rows, labels) + ".";
}

/// Returns the name of the memory by which the rows are compared.
std::string memory_name(RowList const& rows) {
  return results::memory_name(std::ranges::any_of(
      rows, [](Row const* row) { return row->memory_mb() != (*row)[Number::peak_gpu_mem_mb]; }));
}

std::string fastest(RowList const& all, Labels const& labels) {
  if (all.size() > 1 && std::all_of(all.begin() + 1, all.end(),
                                    [&](Row const* row) { return are_one_program(*all.front(), *row); }))
    return "Fastest: none, all " + std::to_string(all.size()) +
           " rows run the same program: " + names_of(all, labels) + ".";
  BestRows const best = best_rows(all, &results::rate_of);
  if (best.leaders.programs < 2) return {};
  if (!best.deviation) return "Fastest: unknown, because each row has only one timed step.";
  return best_text("Fastest", best, all.size(), "tokens/s", labels);
}

std::string most_efficient(RowList const& all, Labels const& labels) {
  BestRows const best = best_rows(all, &efficiency);
  if (best.leaders.programs < 2 || !best.deviation) return {};
  return best_text("Best efficiency", best, all.size(), "tokens/s per GB of " + memory_name(all), labels);
}

/// Returns the best rows by a figure; empty if they are unknown, or if all rows would be returned.
RowList unless_all(RowList const& all, results::Figure const& figure) {
  BestRows best = best_rows(all, figure);
  bool const known = best.leaders.programs > 1 && best.leaders.is_known && best.rows.size() < all.size();
  return known ? std::move(best.rows) : RowList();
}

std::string smallest(RowList const& rows, Labels const& labels) {
  RowList const least = smallest_of(rows);
  if (least.empty()) return {};
  return "Least " + memory_name(rows) + ": " + number_text(least.front()->memory_mb(), 2) +
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
  if (!of_one || !of_other) return false;
  if (one.disturbed.value_or(false) || other.disturbed.value_or(false)) return false;
  return results::is_higher(a, std::max(*of_one, one.twins_differ), b,
                            std::max(*of_other, other.twins_differ));
}

bool is_inconclusive_speedup(Row const& row) {
  auto const &speedup = row[Number::speedup], &uncertainty = row[Number::speedup_uncertainty];
  // Only the base, and rows with its program, have an uncertainty of 0. Older files lack the uncertainty.
  if (!speedup || uncertainty == 0.0 || row[Word::speedup_against] == row[Word::experiment]) return false;
  return !uncertainty || std::fabs(*speedup - 1.0) <= *uncertainty;
}

RowList represented(RowList rows) {
  std::vector<results::Candidate> const candidates = candidates_of(rows);
  RowList list;
  for (std::size_t at = 0; at < rows.size(); ++at)
    if (results::represented_by(candidates, at) == at) list.push_back(rows[at]);
  return list;
}

RowList fastest_of(RowList rows) {
  std::erase_if(rows, [](Row const* row) { return !(*row)[Number::median_tokens_per_sec]; });
  return unless_all(rows, &results::rate_of);
}
RowList most_efficient_of(RowList rows) {
  std::erase_if(rows,
                [](Row const* row) { return !(*row)[Number::median_tokens_per_sec] || !row->memory_mb(); });
  return unless_all(rows, &efficiency);
}

RowList smallest_of(RowList rows) {
  std::erase_if(rows, [](Row const* row) { return !row->memory_mb(); });
  if (rows.size() < 2) return {};
  double least = *rows.front()->memory_mb();
  for (Row const* row : rows) least = std::min(least, *row->memory_mb());
  std::size_t const all = rows.size();
  std::erase_if(rows, [&](Row const* row) { return *row->memory_mb() > least; });
  return rows.size() == all ? RowList() : rows;
}

RowList frontier(RowList rows) {
  std::erase_if(rows,
                [](Row const* row) { return !(*row)[Number::median_tokens_per_sec] || !row->memory_mb(); });
  rows = represented(std::move(rows));
  std::stable_sort(rows.begin(), rows.end(), [](Row const* one, Row const* other) {
    double const a = *one->memory_mb(), b = *other->memory_mb();
    return a != b ? a < b : *(*one)[Number::median_tokens_per_sec] > *(*other)[Number::median_tokens_per_sec];
  });
  RowList pareto;
  for (Row const* row : rows)
    if (pareto.empty() || is_faster(*row, *pareto.back())) pareto.push_back(row);
  return pareto;
}

void complete_rows(Inputs& inputs, std::size_t first, results::Row const& rows,
                   results::Row const& environment) {
  if (rows.empty() || rows.front().contains("verdict")) return;
  std::optional<double> limit_mb;
  if (auto const gpus = environment.find("gpus"); gpus != environment.end() && gpus->is_array())
    for (results::Row const& gpu : *gpus)
      if (auto const bytes = gpu.is_object() ? gpu.find("memory_bytes") : gpu.end();
          bytes != gpu.end() && bytes->is_number()) {
        double const mb = bytes->get<double>() / 1048576.0;
        limit_mb = std::min(limit_mb.value_or(mb), mb);
      }
  RowList list;
  for (std::size_t at = first; at < inputs.rows.size(); ++at) {
    Row& row = inputs.rows[at];
    if (row[Word::device] == "cuda" && !row[Number::device_limit_mb]) row[Number::device_limit_mb] = limit_mb;
    list.push_back(&row);
  }
  std::vector<results::Candidate> const candidates = candidates_of(list, &inputs);
  std::vector<std::optional<std::string>> const verdicts = results::verdicts(candidates);
  for (std::size_t at = 0; at < list.size(); ++at) {
    Row& row = inputs.rows[first + at];
    row[Word::verdict] = verdicts[at].value_or("");
    if (!row.ok()) continue;
    Row const& program = *list[results::represented_by(candidates, at)];
    row[Number::efficiency] = results::efficiency_of(program[Number::median_tokens_per_sec], row.memory_mb());
    row[Number::loss_reduction_pct] = results::percent_less(row[Number::final_loss], row[Number::first_loss]);
    auto const base = std::find_if(list.begin(), list.end(), [&](Row const* other) {
      return (*other)[Word::experiment] == row[Word::speedup_against];
    });
    if (base == list.end()) continue;
    row[Number::memory_saved_pct] = results::percent_less(row.memory_mb(), (*base)->memory_mb());
    if (&program != &row && program[Number::speedup]) {
      row[Number::speedup] = program[Number::speedup];
      row[Number::speedup_uncertainty] = program[Number::speedup_uncertainty];
    }
  }
}

std::vector<std::string> verdict(Inputs const& inputs) {
  std::vector<std::string> lines;
  std::map<std::string, std::size_t> counts;
  std::size_t unsteady = 0, disturbed = 0, exact = 0, inexact = 0;
  std::optional<double> disk;  // the highest speed of a disk
  std::vector<std::pair<std::string, RowList>> models;
  for (Row const& row : inputs.rows) {
    ++counts[row[Word::status]];
    if (!row.ok()) continue;
    unsteady += row.is_unsteady() ? 1 : 0;
    disturbed += row.disturbed.value_or(false) ? 1 : 0;
    if (auto const& speed = row[Number::nvme_gb_per_s]) disk = std::max(disk.value_or(0.0), *speed);
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
    for (std::string const& line :
         {fastest(rows, labels), smallest(rows, labels), most_efficient(rows, labels)})
      if (!line.empty()) lines.push_back(of + line);
    for (std::string const& sentence : results::observations(candidates_of(rows, &inputs)))
      lines.push_back(of + "Observed: " + sentence + ".");
  }
  if (std::string const text = results::slow_disk_text(disk); !text.empty())
    lines.push_back("Disk: " + text + ".");
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
