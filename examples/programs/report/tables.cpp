// SPDX-License-Identifier: Apache-2.0
// Builds the tables of a report, for example the table of results with one row for each measured
// configuration.
#include "report/tables.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "cli/command_line.hpp"
#include "cli/values.hpp"
#include "report/judge.hpp"
#include "results/verdicts.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// A numeric column of a table. `value` returns a field of a row, or a value computed from several fields.
struct Shown {
  std::string header, unit;
  std::function<std::optional<double>(Row const&)> value;
  int decimals = -1;  ///< -1: enough that the smallest value has three significant digits
  bool mark_unsteady = false;
};

Shown of(Number number, int decimals = -1) {
  results::Unit const& unit = column_of(number).unit;
  return {header_of(number), std::string(unit.name),
          [number, factor = unit.factor](Row const& row) {
            return row[number] ? std::optional(*row[number] * factor) : std::nullopt;
          },
          decimals};
}

int decimals_for(std::vector<std::optional<double>> const& values) {
  double smallest = INFINITY, largest = 0.0;
  bool integers = true;
  for (auto const& value : values) {
    if (!value || *value == 0.0) continue;
    smallest = std::min(smallest, std::fabs(*value));
    largest = std::max(largest, std::fabs(*value));
    integers = integers && *value == std::round(*value);
  }
  if (integers || !std::isfinite(smallest)) return 0;
  int const decimal_places = std::clamp(2 - static_cast<int>(std::floor(std::log10(smallest))), 0, 4);
  return largest >= 1e5   ? 0
         : largest >= 1e4 ? std::min(decimal_places, 1)
         : largest >= 1e3 ? std::min(decimal_places, 2)
                          : decimal_places;
}

/// Adds the numeric columns `all` to the table. Leaves out a column if no row has a value other than 0 in it.
void add_numbers(std::vector<Shown> const& all, RowList const& rows, Table& table) {
  for (Shown const& shown : all) {
    std::vector<std::optional<double>> values;
    for (Row const* row : rows) values.push_back(shown.value(*row));
    if (std::none_of(values.begin(), values.end(), [](auto const& value) { return value && *value != 0.0; }))
      continue;
    int const decimals = shown.decimals >= 0 ? shown.decimals : decimals_for(values);
    table.columns.push_back({shown.header, shown.unit, true});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      bool const mark = shown.mark_unsteady && rows[at]->is_unsteady() && values[at];
      table.cells[at].push_back((mark ? "~" : "") + number_text(values[at], decimals));
    }
  }
}

void add_dimensions(RowList const& rows, Inputs const& inputs, Table& table) {
  std::vector<std::size_t> varying = varying_dimensions(rows, inputs);
  table.cells.resize(rows.size());
  if (varying.empty()) {
    table.columns.push_back({"experiment", "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) table.cells[at].push_back((*rows[at])[Word::experiment]);
  }
  for (std::size_t const dimension : varying) {
    std::string const header = dimensions()[dimension].header;
    bool const number = header == "ranks" || header == "batch" || header == "sequence" ||
                        header == "accum." || header == "seed";
    table.columns.push_back({header, "", number});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      std::string value = dimensions()[dimension].value(*rows[at], inputs);
      table.cells[at].push_back(value.empty() ? "-" : std::move(value));
    }
  }
}

RowList pointers(std::vector<Row> const& rows) {
  RowList list;
  for (Row const& row : rows) list.push_back(&row);
  return list;
}

std::size_t column_of(Table const& table, std::string const& header) {
  auto const found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](Column const& column) { return column.header == header; });
  return static_cast<std::size_t>(found - table.columns.begin());
}

/// Marks the best cells of the table: the rates of the fastest rows of each model, the device memory of the
/// rows that need the least, and the best efficiencies. `fastest_of`, `smallest_of` and `most_efficient_of`
/// find these rows.
void mark_best(RowList const& rows, Table& table) {
  table.best.resize(rows.size());
  std::map<std::string, RowList> models;
  std::map<Row const*, std::size_t> places;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    places[rows[at]] = at;
    if (rows[at]->ok()) models[(*rows[at])[Word::model]].push_back(rows[at]);
  }
  std::size_t const rate = column_of(table, header_of(Number::median_tokens_per_sec));
  std::size_t const peak = column_of(table, header_of(Number::peak_gpu_mem_mb));
  std::size_t const efficiency = column_of(table, header_of(Number::efficiency));
  for (auto const& [model, list] : models) {
    for (Row const* row : fastest_of(list))
      if (rate < table.columns.size()) table.best[places[row]].push_back(rate);
    for (Row const* row : smallest_of(list))
      if (peak < table.columns.size()) table.best[places[row]].push_back(peak);
    for (Row const* row : most_efficient_of(list))
      if (efficiency < table.columns.size()) table.best[places[row]].push_back(efficiency);
  }
}

std::string speedup_text(Row const& row) {
  if (!row[Number::speedup]) return "-";
  return is_inconclusive_speedup(row) ? "~1.0" : number_text(row[Number::speedup], 2);
}

}  // namespace

std::string number_text(std::optional<double> const& value, int decimals) {
  if (!value || !std::isfinite(*value)) return "-";
  std::string digits = cli::fixed(*value, decimals);
  if (std::fabs(*value) >= 1e18) return cli::shortest(*value);
  std::size_t const begin = digits.starts_with('-') ? 1 : 0;
  std::size_t point = std::min(digits.find('.'), digits.size());
  while (point > begin + 3) digits.insert(point -= 3, ",");
  return digits;
}

Table sources_table(Inputs const& inputs) {
  Table table{"sources",
              "Inputs",
              {},
              {{"source", "", false},
               {"program", "", false},
               {"rows", "", true},
               {"machine", "", false},
               {"notes", "", false},
               {"file", "", false}},
              {},
              {},
              {}};
  for (Source const& source : inputs.sources) {
    auto const fact = [&](char const* key) -> std::string {
      for (auto const& [name, value] : source.environment)
        if (name == key) return value;
      return {};
    };
    std::string const gpus =
        fact("device") == "cuda" || source.kind == Kind::recording ? fact("gpus") : std::string();
    std::string machine = gpus.empty() ? fact("cpu") : gpus;
    if (gpus.empty() && !fact("cores").empty()) machine += ", " + fact("cores") + " cores";
    if (!fact("host").empty()) machine += machine.empty() ? fact("host") : " (" + fact("host") + ")";
    std::string const notes = cli::joined(source.notes, "; ");
    table.cells.push_back({source.label, source.kind_text(),
                           cli::grouped(static_cast<std::int64_t>(source.rows)),
                           machine.empty() ? "-" : machine, notes.empty() ? "-" : notes, source.path});
  }
  return table;
}

Table results_table(Inputs const& inputs) {
  RowList const rows = pointers(inputs.rows);
  Table table{"results", "Results", {}, {}, {}, {}, {}};
  if (rows.empty()) return table;
  Labels const labels(rows, inputs);
  add_dimensions(rows, inputs, table);
  Shown rate = of(Number::median_tokens_per_sec);
  rate.mark_unsteady = true;
  std::vector<Shown> first = {rate,
                              {"+-", "tokens/s", rate_deviation},
                              of(Number::median_step_time_s),
                              {"+- step", "ms",
                               [](Row const& row) {
                                 auto const deviation = step_deviation(row);
                                 return deviation ? std::optional(1e3 * *deviation) : std::nullopt;
                               }},
                              of(Number::peak_gpu_mem_mb, 2)};
  if (std::any_of(rows.begin(), rows.end(), [](Row const* row) {
        return (*row)[Number::peak_gpu_mem_mb] != (*row)[Number::planned_gpu_mem_mb];
      }))
    first.push_back(of(Number::planned_gpu_mem_mb, 2));
  add_numbers(first, rows, table);
  Shown efficiency = of(Number::efficiency, 0);
  efficiency.value = [](Row const& row) {  // logs of `train` lack the column
    return row[Number::efficiency]
               ? row[Number::efficiency]
               : results::efficiency_of(row[Number::median_tokens_per_sec], row.memory_mb());
  };
  add_numbers({efficiency,
               of(Number::memory_saved_pct, 1),
               of(Number::host_mem_mb, 2),
               of(Number::nvme_mb, 2),
               of(Number::nvme_gb_per_s, 2),
               of(Number::library_mb, 0),
               of(Number::process_mem_mb, 0),
               of(Number::comm_bytes_per_step),
               {"collectives", "% of a step",
                [](Row const& row) -> std::optional<double> {
                  auto const &comm = row[Number::comm_time_s], &step = row[Number::avg_step_time_s];
                  if (!comm || !step || !(*step > 0.0)) return std::nullopt;
                  return 100.0 * *comm / *step;
                },
                1},
               of(Number::predicted_tokens_per_sec, 0),
               of(Number::prediction_error_pct, 1),
               of(Number::mfu_pct, 1),
               of(Number::avg_gpu_util_pct, 0),
               of(Number::avg_cpu_util_pct, 0),
               of(Number::train_time_s, 1),
               of(Number::total_time_s, 1),
               of(Number::cpu_time_s, 1),
               of(Number::gpu_busy_s, 1),
               of(Number::avg_power_w, 0),
               of(Number::energy_j),
               of(Number::temp_end_c, 0)},
              rows, table);
  auto const has = [&](auto const& test) { return std::any_of(rows.begin(), rows.end(), test); };
  if (has([](Row const* row) {
        return row->words[static_cast<std::size_t>(Word::speedup_against)] != "" && (*row)[Number::speedup];
      })) {
    table.columns.push_back({"speed-up", "x", true});
    for (std::size_t at = 0; at < rows.size(); ++at) table.cells[at].push_back(speedup_text(*rows[at]));
  }
  add_numbers({of(Number::scaling_efficiency, 0), of(Number::final_loss, 4),
               of(Number::loss_reduction_pct, 1), of(Number::repeats, 0)},
              rows, table);
  if (has([](Row const* row) { return !(*row)[Word::verdict].empty(); })) {
    table.columns.push_back({"verdict", "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      std::string const& words = (*rows[at])[Word::verdict];
      table.cells[at].push_back(words.empty() ? "-" : words);
    }
  }
  if (has([](Row const* row) { return !(*row)[Word::weights_hash].empty(); })) {
    table.columns.push_back({"weights", "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      std::string const& hash = (*rows[at])[Word::weights_hash];
      table.cells[at].push_back(hash.empty() ? "-" : hash.substr(0, 8));
    }
  }
  if (has([](Row const* row) { return !row->ok() || !(*row)[Word::reason].empty(); })) {
    table.columns.push_back({"status", "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      Row const& row = *rows[at];
      table.cells[at].push_back(row[Word::status] +
                                (row[Word::reason].empty() ? "" : ": " + row[Word::reason]));
    }
  }
  for (Row const* row : rows) table.unsteady.push_back(row->is_unsteady());
  mark_best(rows, table);
  if (std::string const shared = labels.shared(); !shared.empty()) table.note = "All rows: " + shared + ". ";
  std::map<std::string, int> bases;
  for (Row const* row : rows)
    if (row->ok() && (*row)[Number::speedup]) ++bases[(*row)[Word::speedup_against]];
  if (bases.size() == 1)
    table.note +=
        "Speed-up against " + bases.begin()->first + "; ~1.0 differs from 1 by less than the two rows vary. ";
  if (bases.size() > 1)
    table.note +=
        "Speed-up against the base of its table in compare; ~1.0 differs from 1 by less than the two rows "
        "vary. ";
  return table;
}

Table plans_table(Inputs const& inputs) {
  RowList const rows = pointers(inputs.plans);
  Table table{"plans", "Plans", "Of the rank that uses the most; MB are 2^20 bytes. ", {}, {}, {}, {}};
  if (rows.empty()) return table;
  add_dimensions(rows, inputs, table);
  add_numbers(
      {of(Number::planned_gpu_mem_mb, 2), of(Number::planned_host_mem_mb, 2), of(Number::planned_nvme_mb, 2)},
      rows, table);
  std::vector<Shown> categories;
  for (auto const& [name, size] : rows.front()->categories) {
    auto const value = [name = name](Row const& row) -> std::optional<double> {
      for (auto const& [other, bytes] : row.categories)
        if (other == name) return bytes;
      return std::nullopt;
    };
    categories.push_back({name, "MB", value, 2});
  }
  add_numbers(categories, rows, table);
  add_numbers({of(Number::largest_batch, 0),
               of(Number::longest_sequence, 0),
               of(Number::predicted_tokens_per_sec, 0),
               {"predicted step", "ms",
                [](Row const& row) -> std::optional<double> {
                  auto const &rate = row[Number::predicted_tokens_per_sec],
                             &samples = row[Number::global_batch], &tokens = row[Number::sequence];
                  if (!rate || !samples || !tokens || !(*rate > 0.0)) return std::nullopt;
                  return 1e3 * *samples * *tokens / *rate;
                },
                1},
               of(Number::predicted_slower, 2),
               of(Number::predicted_epoch_time_s)},
              rows, table);
  if (std::any_of(rows.begin(), rows.end(),
                  [](Row const* row) { return (*row)[Number::predicted_slower].has_value(); }))
    table.note +=
        "Predicted slower is the predicted time of a step divided by the smallest one of all rows with the "
        "same model, precision, ranks, batch and sequence. ";
  table.columns.push_back({"status", "", false});
  for (std::size_t at = 0; at < rows.size(); ++at) {
    Row const& row = *rows[at];
    table.cells[at].push_back(row[Word::status] +
                              (row[Word::reason].empty() ? "" : ": " + row[Word::reason]));
  }
  if (std::string const shared = Labels(rows, inputs).shared(); !shared.empty())
    table.note += "All rows: " + shared + ". ";
  return table;
}

Table rivals_table(Inputs const& inputs) {
  Table table{"rivals",
              "Other programs",
              "Other programs than Tessera, not measured by compare, each with its machine. The sentences "
              "and best values above do not include them. ",
              {},
              {},
              {},
              {}};
  if (inputs.rivals.empty()) return table;
  RowList rows;
  table.columns = {{"program", "", false}, {"version", "", false}};
  for (Rival const& rival : inputs.rivals) {
    rows.push_back(&rival.row);
    table.cells.push_back({rival.program, rival.version.empty() ? "-" : rival.version});
    table.unsteady.push_back(rival.row.is_unsteady());
  }
  for (char const* const header : {"model", "precision", "sharding", "offload", "recompute"}) {
    auto const dimension = std::find_if(dimensions().begin(), dimensions().end(), [&](Dimension const& one) {
      return one.header == std::string(header);
    });
    table.columns.push_back({header, "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      std::string value = dimension->value(*rows[at], inputs);
      table.cells[at].push_back(value.empty() ? "-" : std::move(value));
    }
  }
  Shown rate = of(Number::median_tokens_per_sec);
  rate.mark_unsteady = true;
  add_numbers({of(Number::world, 0),
               of(Number::batch, 0),
               of(Number::sequence, 0),
               of(Number::accumulation, 0),
               rate,
               {"+-", "tokens/s", rate_deviation},
               of(Number::peak_gpu_mem_mb),
               of(Number::repeats, 0)},
              rows, table);
  for (auto const& [header, text] : {std::pair("date", &Rival::date), std::pair("machine", &Rival::machine),
                                     std::pair("note", &Rival::note)}) {
    table.columns.push_back({header, "", false});
    for (std::size_t at = 0; at < rows.size(); ++at) {
      std::string const& words = inputs.rivals[at].*text;
      table.cells[at].push_back(words.empty() ? "-" : words);
    }
  }
  return table;
}

Table environment_table(Inputs const& inputs) {
  Table table{"environment", "Environment", {}, {{"", "", false}}, {}, {}, {}};
  std::vector<Source const*> sources;
  for (Source const& source : inputs.sources)
    if (!source.environment.empty()) sources.push_back(&source);
  std::vector<std::string> keys;
  for (Source const* source : sources) {
    table.columns.push_back({source->label, "", false});
    for (auto const& [key, value] : source->environment)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  for (std::string const& key : keys) {
    std::vector<std::string> cells = {key};
    for (Source const* source : sources) {
      auto const found = std::find_if(source->environment.begin(), source->environment.end(),
                                      [&](auto const& entry) { return entry.first == key; });
      cells.push_back(found == source->environment.end() ? "-" : found->second);
    }
    table.cells.push_back(std::move(cells));
  }
  return table;
}

Table repeat_table(Inputs const& inputs) {
  Table table{"repeat", "How to repeat it", {}, {}, {}, {}, {}};
  table.commands = true;
  table.columns = {{"rows", "", false}, {"command", "", false}};
  for (Source const& source : inputs.sources)
    if (!source.command.empty()) table.cells.push_back({"all of " + source.label, source.command});
  RowList const rows = pointers(inputs.rows);
  Labels const labels(rows, inputs);
  for (Row const* row : rows) {
    Source const& source = inputs.sources[row->source];
    if (source.kind != Kind::comparison || source.command.empty() || !row->ok()) continue;
    table.cells.push_back({labels.of(*row), "train --from " + cli::in_shell(source.path) + " --row " +
                                                cli::in_shell((*row)[Word::experiment])});
  }
  return table;
}

}  // namespace reporting
}  // namespace programs
