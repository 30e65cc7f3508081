// SPDX-License-Identifier: Apache-2.0
// Formats the measured rows of the program `compare` as tables for the terminal, followed by a verdict:
// sentences about equal weights, the planned memory and the fastest row. A row is one model and recipe with
// one batch, sequence and number of ranks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/policy/parse.hpp"

#include "compare/report.hpp"
#include "machine/machine.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

using results::Best;
using results::Column;
using results::Measurements;

/// One dimension of the matrix of rows, such as the batch or the precision. `header` is the header of the
/// dimension's column, possibly empty. `value(point)` returns the text of a row in this column. If all rows
/// of a table have the same value, the table has no such column; the heading of the table contains
/// phrase(point).
struct List {
  std::string header;
  std::string (*value)(Point const&);
  std::string (*phrase)(Point const&);
  std::string (*differs)(Point const&) = value;  ///< rows vary in this dimension if these texts differ
};

template <class Slot>
std::string name_in(Point const& point) {
  return std::string(point.recipe.names.*Slot::field);
}
/// A slot is one part of a recipe, such as recomputation. Returns the title of the slot and its value in the
/// recipe of `point`, such as "recompute block"; empty if the value is the default of the slot.
template <class Slot>
std::string unless_standard(Point const& point) {
  std::string const name = name_in<Slot>(point);
  return name == Slot::standard(point.recipe) ? std::string() : std::string(Slot::title) + " " + name;
}

std::vector<List> all_lists() {
  std::vector<List> lists = {
      {"model", [](Point const& point) { return point.model.name; },
       [](Point const& point) { return point.model.name; }},
      {"precision", name_in<slot::precision>, name_in<slot::precision>},
      {"ranks", [](Point const& point) { return std::to_string(point.split.ranks); },
       [](Point const& point) {
         return std::to_string(point.split.ranks) + (point.split.ranks == 1 ? " rank" : " ranks");
       }},
      {"replicas", [](Point const& point) { return std::to_string(point.mesh.replicas); },
       [](Point const& point) {
         return point.mesh.replicas > 1 ? "mesh " + point.mesh.text(point.split.ranks) : std::string();
       }},
      {"batch", [](Point const& point) { return std::to_string(point.split.batch); },
       [](Point const& point) { return "batch " + std::to_string(point.split.batch); }},
      {"sequence", [](Point const& point) { return std::to_string(point.sequence); },
       [](Point const& point) { return "sequence " + std::to_string(point.sequence); }},
      {"accum.", [](Point const& point) { return std::to_string(point.split.accumulation); },
       [](Point const& point) { return "accumulation " + std::to_string(point.split.accumulation); }},
      {"", [](Point const& point) { return std::to_string(point.split.global()); },
       [](Point const& point) { return "global batch " + std::to_string(point.split.global()); }}};
  // Every other slot (part of a recipe) is a dimension too. Rows that have the default value of a slot count
  // as equal in it, even if their defaults differ: a default can depend on another slot. For example, fp16
  // and fp32 have different default loss scales, but a column of loss scales would only repeat the precision.
  for_each_slot([&]<class Slot>(Slot) {
    if constexpr (!cli::named_otherwise<Slot>)
      lists.push_back(
          {std::string(Slot::title), name_in<Slot>, unless_standard<Slot>, unless_standard<Slot>});
  });
  lists.push_back({"stage", name_in<slot::sharding>, name_in<slot::sharding>});
  lists.push_back({"offload", name_in<slot::offload>, unless_standard<slot::offload>});
  return lists;
}
std::vector<List> const lists = all_lists();

bool varies(List const& list, TableRows const& table, std::vector<Measured> const& measured) {
  return std::any_of(table.begin(), table.end(), [&](std::size_t at) {
    return list.differs(measured[at].point) != list.differs(measured[table.front()].point);
  });
}

/// Returns the heading of a table: the settings that all rows of the table have in common, and the row to
/// which the speedups are relative.
std::string heading_of(TableRows const& table, std::vector<Measured> const& measured) {
  cli::Names parts;
  for (List const& list : lists) {
    std::string part = list.phrase(measured[table.front()].point);
    if (!part.empty() && !varies(list, table, measured)) parts.push_back(std::move(part));
  }
  if (Measured const* const base = base_of(table, measured); base && table.size() > 1)
    parts.push_back("speedup against " + base->point.experiment);
  return cli::joined(parts);
}

/// Returns whether the speedup of a row is possibly only noise: the speedup differs from 1 by at most its
/// uncertainty, or the uncertainty is unknown.
bool is_inconclusive_speedup(Measurements const& row) {
  // Only the base of the table, and rows with its program, have an uncertainty of 0.
  if (!row.speedup || row.speedup_uncertainty == 0.0) return false;
  return !row.speedup_uncertainty || std::fabs(*row.speedup - 1.0) <= *row.speedup_uncertainty;
}

/// Returns the value of the column `column` as text. `of` is the measured row, and `row` has its result
/// columns. Puts "~" in front if the value is less certain than its digits suggest. The text of `footnote`
/// explains the "~".
std::string cell(Measured const& of, Measurements const& row, Column const& column) {
  auto const value = column.number(row);
  if (!value) return "-";
  if (column.name == "speedup" && is_inconclusive_speedup(row)) return "~1.0";
  bool const rate = column.terminal.best == Best::fastest || column.terminal.best == Best::most_efficient;
  return (rate && (row.unsteady == true || skips_many_steps(of) || row.disturbed == true) ? "~" : "") +
         cli::fixed(*value * column.unit.factor, column.terminal.decimals);
}

/// Returns a verdict as text for the table. The name of the row with the same program is left out.
std::string short_verdict(std::string const& verdict) {
  return verdict.starts_with("same program") ? "same program" : verdict;
}

std::string footnote(std::vector<Measured> const& measured, std::vector<Measurements> const& rows) {
  std::size_t unsteady = 0, skipping = 0, disturbed = 0, inconclusive = 0;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (!measured[at].ok()) continue;
    skipping += skips_many_steps(measured[at]) ? 1 : 0;
    unsteady += rows[at].unsteady == true ? 1 : 0;
    disturbed += rows[at].disturbed == true ? 1 : 0;
    inconclusive += is_inconclusive_speedup(rows[at]) ? 1 : 0;
  }
  cli::Names parts;
  if (unsteady > 0)
    parts.push_back(std::to_string(unsteady) + (unsteady == 1 ? " row varies" : " rows vary") +
                    " by more than 5% from step to step or repeat to repeat");
  if (skipping > 0)
    parts.push_back(std::to_string(skipping) + (skipping == 1 ? " row" : " rows") +
                    " skipped the update in more than 5% of the timed steps");
  if (disturbed > 0)
    parts.push_back(std::to_string(disturbed) + (disturbed == 1 ? " row" : " rows") +
                    " shared the processor with other programs");
  if (inconclusive > 0)
    parts.push_back("a speedup of ~1.0 is within what its row and the base vary by" +
                    std::string(disturbed > 0 ? ", or its row was disturbed" : ""));
  return parts.empty() ? std::string() : "~ " + cli::joined(parts, "; ");
}

/// Returns which rows of a table are the best in a column. In columns of speed and efficiency, a row is the
/// best if no other row is better by more than the uncertainty. Only rows for which is_ranked is true count.
/// If several rows have the same program, only the row that represents the program counts. If one row is
/// marked, all rows with the same program are marked too. If this would mark all rows, the function marks
/// none.
std::vector<bool> marks(Column const& column, TableRows const& table, std::vector<Measured> const& measured,
                        std::vector<Measurements> const& rows,
                        std::vector<results::Candidate> const& candidates) {
  Best const best = column.terminal.best;
  bool const by_rate = best == Best::fastest || best == Best::most_efficient;
  auto const counts = [&](std::size_t row) {
    return by_rate ? is_ranked(measured[row]) && results::represented_by(candidates, row) == row
                   : measured[row].ok();
  };
  auto const figure = [&](results::Candidate const& row) {
    return best == Best::fastest ? results::rate_of(row) : results::efficiency_of(row);
  };
  auto const better = [&](std::size_t one, std::size_t other) {
    results::Candidate const &first = candidates[one], &second = candidates[other];
    if (by_rate) return results::is_higher(figure(first), first.spread, figure(second), second.spread);
    // rows are compared by the whole memory of a rank, of which the column has the part on the device
    bool const is_memory = column.name == "peak_gpu_mem_mb";
    auto const a = is_memory ? first.peak_mb : column.number(rows[one]);
    auto const b = is_memory ? second.peak_mb : column.number(rows[other]);
    return best == Best::least && a && b && *a < *b;
  };
  std::vector<bool> marked;
  bool comparable = false;
  for (std::size_t const at : table) {
    bool beaten = false;
    for (std::size_t const other : table)
      beaten = beaten || (counts(other) && counts(at) && better(other, at));
    marked.push_back(counts(at) && !beaten);
  }
  for (std::size_t line = 0; line < table.size(); ++line) {
    for (std::size_t other = 0; other < table.size() && !marked[line]; ++other)
      marked[line] = marked[other] && are_one_program(measured[table[line]], measured[table[other]]);
    comparable = comparable || (counts(table[line]) && !marked[line]);
  }
  return comparable ? marked : std::vector<bool>(table.size(), false);
}

/// Returns a key that is equal for rows whose final weights must be equal to the bit: rows with the same
/// model, precision and data in every step, which add gradients in a fixed order. Returns "" if the row does
/// not use this order.
std::string hash_class(Measured const& row) {
  Point const& point = row.point;
  if (point.recipe.reduction != ReductionKind::ordered) return {};
  return point.model.name + "/" + std::string(point.recipe.names.precision) + "/" +
         std::string(point.recipe.names.attention) + "/" + std::string(point.recipe.names.adapters) + "/" +
         std::to_string(point.split.global()) + "/" + std::to_string(point.split.batch) + "/" +
         std::to_string(point.sequence) + "/" + std::to_string(row.repeats.front().hashed_after);
}

/// Returns the names of the first three of `rows` as text, then the number of the remaining rows. Rows with
/// the same program (the same schedule and buffers of a step) count as one: "A = B".
std::string names_of(std::vector<Measured const*> const& rows) {
  cli::Names names;
  std::size_t more = rows.size();
  for (auto row = rows.begin(); row != rows.end() && names.size() < 3; ++row) {
    auto const is_twin = [&](Measured const* other) { return are_one_program(**row, *other); };
    if (std::any_of(rows.begin(), row, is_twin)) continue;
    std::string& name = names.emplace_back((*row)->point.experiment);
    --more;
    for (auto other = row + 1; other != rows.end(); ++other)
      if (is_twin(*other)) {
        name += " = " + (*other)->point.experiment;
        --more;
      }
  }
  return cli::joined(names) + (more > 0 ? " and " + std::to_string(more) + " more" : std::string());
}

/// Returns the rows that represent programs, each followed by the other completed rows of its program.
std::vector<Measured const*> with_twins(std::vector<std::size_t> const& programs,
                                        std::vector<Measured> const& measured) {
  std::vector<Measured const*> rows;
  for (std::size_t const at : programs) {
    rows.push_back(&measured[at]);
    for (Measured const& other : measured)
      if (&other != &measured[at] && other.ok() && are_one_program(measured[at], other))
        rows.push_back(&other);
  }
  return rows;
}

std::vector<Measured const*> ok_rows_of(std::vector<Measured> const& measured) {
  std::vector<Measured const*> rows;
  for (Measured const& row : measured)
    if (row.ok()) rows.push_back(&row);
  return rows;
}

/// Returns a sentence that names the rows that other programs disturbed; empty if there are none.
std::string disturbed_text(std::vector<Measured> const& measured) {
  std::vector<Measured const*> rows = ok_rows_of(measured);
  std::size_t const all = rows.size();
  std::erase_if(rows, [](Measured const* row) { return !is_disturbed(*row); });
  if (rows.empty()) return {};
  double most = 0.0;
  for (Measured const* row : rows) most = std::max(most, *other_load(*row));
  return "busy: other programs took up to " + cli::fixed(100.0 * most, 0) + "% of the processor while " +
         (rows.size() == all ? "every row"
                             : std::to_string(rows.size()) + " of " + std::to_string(all) + " rows") +
         " ran. These rows are not ranked: " + names_of(rows) +
         "; compare again when the other programs have ended\n";
}

/// Returns whether all completed rows have the same program.
bool is_one_program(std::vector<Measured const*> const& ok) {
  return ok.size() > 1 && std::all_of(ok.begin() + 1, ok.end(), [&](Measured const* row) {
           return are_one_program(*ok.front(), *row);
         });
}

/// Returns a sentence that names the fastest row, if its lead exceeds the uncertainty. If rows have the same
/// program (the same schedule and buffers of a step), the sentence names them together. Without a clear lead,
/// it names all rows that are possibly the fastest.
std::string fastest_text(std::vector<Measured> const& measured,
                         std::vector<results::Candidate> const& candidates) {
  std::vector<Measured const*> const ok = ok_rows_of(measured);
  if (is_one_program(ok))
    return "fastest: none, all " + std::to_string(ok.size()) + " rows run the same program: " + names_of(ok) +
           "\n";
  results::Leaders const leaders = results::leaders_of(candidates, &results::rate_of);
  if (leaders.programs < 2) return {};
  if (!leaders.is_known)
    return "fastest: unknown, because each row has only one timed step; give more --steps, or --repeat\n";
  Measured const& first = measured[leaders.rows.front()];
  std::vector<Measured const*> const fastest = with_twins(leaders.rows, measured);
  std::string const rate = cli::grouped(std::llround(first.tokens_per_second())) + " +- " +
                           cli::grouped(std::llround(*spread_of(first) * first.tokens_per_second())) +
                           " tok/s";
  if (leaders.rows.size() == 1)
    return "fastest: " + names_of(fastest) + " with " + rate + " and " +
           cli::fixed(*candidates[leaders.rows.front()].peak_mb, 2) + " MB a rank\n";
  return "fastest: " + std::to_string(fastest.size()) + " rows differ by less than they vary, up to " + rate +
         ": " + names_of(fastest) + "\n";
}

/// Returns the name of the memory by which the completed rows are compared (results::rank_memory_mb).
std::string memory_name(std::vector<Measured> const& measured,
                        std::vector<results::Candidate> const& candidates) {
  bool has_host_part = false;
  for (std::size_t at = 0; at < measured.size(); ++at)
    if (measured[at].ok())
      has_host_part = has_host_part || *candidates[at].peak_mb > peak_mb_of(measured[at]);
  return results::memory_name(has_host_part);
}

/// Returns a sentence that names the row with the most tokens per second for its memory, or all rows that are
/// possibly this row. Returns "" if fewer than two programs can be compared.
std::string most_efficient_text(std::vector<Measured> const& measured,
                                std::vector<results::Candidate> const& candidates) {
  results::Leaders const leaders = results::leaders_of(
      candidates, [](results::Candidate const& row) { return results::efficiency_of(row); });
  if (leaders.programs < 2 || !leaders.is_known) return {};
  results::Candidate const& first = candidates[leaders.rows.front()];
  double const most = *results::efficiency_of(first);
  std::vector<Measured const*> const rows = with_twins(leaders.rows, measured);
  std::string const figure = cli::grouped(std::llround(most)) + " +- " +
                             cli::grouped(std::llround(*spread_of(*rows.front()) * most)) +
                             " tok/s per GB of " + memory_name(measured, candidates);
  if (leaders.rows.size() == 1) return "best efficiency: " + names_of(rows) + " with " + figure + "\n";
  return "best efficiency: " + std::to_string(rows.size()) + " rows differ by less than they vary, up to " +
         figure + ": " + names_of(rows) + "\n";
}

/// Returns sentences that compare precisions and the utilization of GPUs, and a sentence if the disk of the
/// rows with state on NVMe is slower than advised.
std::string observed_text(std::vector<results::Candidate> const& candidates,
                          std::vector<Measurements> const& rows) {
  std::string out;
  for (std::string const& sentence : results::observations(candidates)) out += "observed: " + sentence + "\n";
  std::optional<double> disk;
  for (Measurements const& row : rows)
    if (row.nvme_gb_per_s) disk = std::max(disk.value_or(0.0), *row.nvme_gb_per_s);
  if (std::string const text = results::slow_disk_text(disk); !text.empty()) out += "disk: " + text + "\n";
  return out;
}

std::string smallest_text(std::vector<Measured> const& measured,
                          std::vector<results::Candidate> const& candidates) {
  if (ok_rows_of(measured).size() < 2) return {};
  std::optional<double> least;
  std::vector<Measured const*> rows;
  for (std::size_t at = 0; at < measured.size(); ++at) {
    if (!measured[at].ok()) continue;
    double const memory = *candidates[at].peak_mb;
    if (least && memory < *least) rows.clear();
    if (rows.empty()) least = memory;
    if (memory == *least) rows.push_back(&measured[at]);
  }
  return "least " + memory_name(measured, candidates) + ": " + cli::fixed(*least, 2) +
         " MB a rank: " + names_of(rows) + "\n";
}

/// Returns a sentence for each row that skipped so many updates that its rate does not represent training.
std::string skipped_text(std::vector<Measured> const& measured) {
  std::string out;
  for (Measured const& row : measured) {
    if (!row.ok() || !skips_many_steps(row)) continue;
    std::size_t timed = 0;
    for (Repeat const& repeat : row.repeats) timed += repeat.timed.seconds.size();
    out += "skipped: " + row.point.experiment + " skipped the update in " + std::to_string(timed_skips(row)) +
           " of its " + std::to_string(timed) +
           " timed steps because gradients overflowed, so its rate is not the rate of training; give more "
           "--warmup, or "
           "a smaller --initial-loss-scale\n";
  }
  return out;
}

/// Returns sentences for the predicted rates: why some rows have no prediction, and how far the predictions
/// of the other rows are from the measured rates. Returns "" if there is nothing to say.
std::string predicted_text(std::vector<Measured> const& measured, std::vector<Measurements> const& rows) {
  std::string out;
  std::vector<std::string> reasons;
  for (Measured const& row : measured)
    if (std::string const& reason = row.predicted.reason;
        row.ok() && !reason.empty() && std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(reason);
      out += "not predicted: " + row.point.experiment + ": " + reason + "\n";
    }
  std::vector<double> off;
  for (Measurements const& row : rows)
    if (row.prediction_error_pct) off.push_back(std::fabs(*row.prediction_error_pct));
  if (off.empty()) return out;
  return out + "predicted: " + std::to_string(off.size()) + (off.size() == 1 ? " row" : " rows") +
         ", off by " + cli::fixed(cli::median(off), 1) + "% (median) and " +
         cli::fixed(std::ranges::max(off), 1) + "% at the most\n";
}

std::string verdict(std::vector<Measured> const& measured, std::vector<Measurements> const& rows,
                    std::vector<results::Candidate> const& candidates, cli::Terminal const& terminal) {
  std::string out;
  struct Class {
    std::string label;
    std::map<std::string, cli::Names> hashes;  // maps a weights hash to the names of its rows
    std::size_t rows = 0;
  };
  std::vector<std::pair<std::string, Class>> classes;
  std::map<std::string, int> counts;
  std::size_t exact = 0, inexact = 0;
  for (std::size_t at = 0; at < measured.size(); ++at) {
    Measured const& row = measured[at];
    ++counts[row.status];
    if (!row.ok()) continue;
    (rows[at].peak_gpu_mem_mb == rows[at].planned_gpu_mem_mb ? exact : inexact) += 1;
    std::string const key = hash_class(row);
    if (key.empty()) continue;
    auto found =
        std::find_if(classes.begin(), classes.end(), [&](auto const& entry) { return entry.first == key; });
    if (found == classes.end()) {
      std::string label = row.point.model.name + ", " + std::string(row.point.recipe.names.precision) +
                          (row.point.recipe.adapters == AdapterKind::none ? "" : ", adapters") +
                          ", global batch " + std::to_string(row.point.split.global());
      classes.push_back({key, {std::move(label), {}, 0}});
      found = classes.end() - 1;
    }
    found->second.hashes[row.repeats.front().weights_hash].push_back(row.point.experiment);
    ++found->second.rows;
  }
  for (auto const& [key, entry] : classes) {
    if (entry.rows == 1 && classes.size() > 1) continue;  // a single row has no row to compare with
    if (entry.hashes.size() == 1) {
      out +=
          "weights: " + entry.label + ": " +
          (entry.rows == 1 ? std::string("one row")
                           : terminal.green("all " + std::to_string(entry.rows) + " rows equal to the bit")) +
          " (" + entry.hashes.begin()->first + ")\n";
      continue;
    }
    out += "weights: " + entry.label + ": " +
           terminal.red("DIFFERENT, " + std::to_string(entry.hashes.size()) + " hashes in " +
                        std::to_string(entry.rows) + " rows") +
           "\n";
    for (auto const& [hash, experiments] : entry.hashes)
      out += "  " + hash + ": " + cli::joined(experiments) + "\n";
  }
  if (exact + inexact > 0)
    out +=
        "memory: " +
        (inexact == 0 ? terminal.green("planned = peak to the byte in all " + std::to_string(exact) + " rows")
                      : terminal.red("planned and peak differ in " + std::to_string(inexact) + " rows")) +
        "\n";
  out += skipped_text(measured) + disturbed_text(measured) + predicted_text(measured, rows) +
         fastest_text(measured, candidates) + smallest_text(measured, candidates) +
         most_efficient_text(measured, candidates) + observed_text(candidates, rows);
  out += "rows:";
  for (char const* status : {"ok", "oom", "refused", "failed"})
    if (counts[status] > 0) out += " " + std::to_string(counts[status]) + " " + status + ",";
  out.back() = '\n';
  return out;
}

}  // namespace

std::string table_text(std::vector<Measured> const& measured, std::vector<Measurements> const& rows,
                       cli::Terminal const& terminal) {
  std::vector<TableRows> const tables = tables_of(measured);
  std::vector<results::Candidate> const candidates = candidates_of(measured);
  std::vector<cli::Table::Column> columns;
  std::vector<List const*> varying;
  for (List const& list : lists)
    if (!list.header.empty() && std::any_of(tables.begin(), tables.end(), [&](TableRows const& table) {
          return varies(list, table, measured);
        })) {
      varying.push_back(&list);
      columns.push_back({list.header, false, 100});
    }
  std::vector<Column const*> known;  // columns with a number other than 0 in some row
  for (Column const* column : results::terminal_columns())
    if (std::any_of(rows.begin(), rows.end(), [&](Measurements const& row) {
          return row.status.name == "ok" && column->number(row).value_or(0.0) != 0.0;
        })) {
      known.push_back(column);
      columns.push_back({std::string(column->terminal.header), true, column->terminal.importance});
    }
  bool const judged = std::any_of(rows.begin(), rows.end(), [](Measurements const& row) {
    return row.status.name == "ok" && row.verdict;
  });
  if (judged) columns.push_back({"verdict", false, 6});
  columns.push_back({"weights", false, 5});
  cli::Table text(std::move(columns));
  for (TableRows const& table : tables) {
    text.heading(heading_of(table, measured));
    std::vector<std::vector<bool>> best;
    for (Column const* column : known) best.push_back(marks(*column, table, measured, rows, candidates));
    for (std::size_t line = 0; line < table.size(); ++line) {
      Measured const& row = measured[table[line]];
      cli::Names cells;
      for (List const* list : varying) cells.push_back(list->value(row.point));
      if (!row.ok()) {
        bool const again = line > 0 && measured[table[line - 1]].reason == row.reason;
        text.text_row(std::move(cells), row.status + ": " + (again ? "as above" : row.reason));
        continue;
      }
      std::vector<bool> marked(cells.size(), false);
      for (std::size_t column = 0; column < known.size(); ++column) {
        cells.push_back(cell(row, rows[table[line]], *known[column]));
        marked.push_back(best[column][line]);
      }
      if (judged) cells.push_back(short_verdict(rows[table[line]].verdict.value_or("-")));
      cells.push_back(row.repeats.front().weights_hash.substr(0, 8));
      text.row(std::move(cells), std::move(marked));
    }
  }
  std::string out = text.text(terminal);
  out += cli::left_out_text(text.left_out(terminal), terminal, "JSON and CSV have them");
  if (std::string const note = footnote(measured, rows); !note.empty())
    out += cli::wrapped(note, terminal.width) + "\n";
  return out + "\n" + verdict(measured, rows, candidates, terminal);
}

}  // namespace compare
}  // namespace programs
