// SPDX-License-Identifier: Apache-2.0
// Rows, table, verdict and files.
#include "compare/report.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <utility>

#include "tessera/io/file.hpp"

#include "common/machine.hpp"
#include "common/peaks.hpp"

namespace tessera::inline v0 {
namespace compare {

namespace {

using results::Row;

Row optional_mb(std::optional<std::int64_t> bytes) {
  return bytes ? Row(cli::mebibytes(*bytes)) : Row(nullptr);
}

/// Whether two rows are comparable at all: equal in everything but sharding, offload and ranks. On more ranks
/// the batch of a rank stays, or with --global-batch the global one.
bool comparable(Measured const& one, Measured const& other, Settings const& settings) {
  Point const &a = one.point, &b = other.point;
  SlotNames const &x = a.recipe.names, &y = b.recipe.names;
  bool const split = settings.matrix.global_batch
                         ? a.split.global() == b.split.global()
                         : a.split.batch == b.split.batch && a.split.accumulation == b.split.accumulation;
  return split && a.model == b.model && a.sequence == b.sequence && x.precision == y.precision &&
         x.recompute == y.recompute && x.reduction == y.reduction && x.capture == y.capture &&
         x.attention == y.attention;
}

/// The row that a speedup is against: one rank, else stage 0, else the first, of the same offload and
/// numbers.
Measured const* reference_of(Measured const& row, std::vector<Measured> const& all,
                             Settings const& settings) {
  Measured const* best = nullptr;
  int best_rank = 3;
  for (Measured const& other : all) {
    if (!other.ok() || !comparable(other, row, settings) ||
        other.point.recipe.names.offload != row.point.recipe.names.offload)
      continue;
    bool const alone = other.point.world() == 1;
    if (!alone && other.point.world() != row.point.world()) continue;
    int const rank = alone ? 0 : other.point.recipe.stage == 0 ? 1 : 2;
    if (rank < best_rank) {
      best = &other;
      best_rank = rank;
    }
  }
  return best;
}

/// The same recipe and shape on the fewest ranks; nothing when there is only one rank count.
Measured const* scaling_base(Measured const& row, std::vector<Measured> const& all,
                             Settings const& settings) {
  Measured const* least = nullptr;
  std::set<int> worlds;
  for (Measured const& other : all) {
    if (!other.ok() || !comparable(other, row, settings) || !(other.point.recipe == row.point.recipe))
      continue;
    worlds.insert(other.point.world());
    if (!least || other.point.world() < least->point.world()) least = &other;
  }
  return worlds.size() > 1 ? least : nullptr;
}

/// The earlier row that runs the identical schedule over identical buffers.
Measured const* twin_of(Measured const& row, std::vector<Measured> const& all, Settings const& settings) {
  for (Measured const& other : all) {
    if (&other == &row) break;
    if (!row.schedule_hash.empty() && other.schedule_hash == row.schedule_hash &&
        comparable(other, row, settings) && other.point.world() == row.point.world() &&
        other.point.recipe.names.offload == row.point.recipe.names.offload &&
        other.planned_device == row.planned_device)
      return &other;
  }
  return nullptr;
}

void add_measurements(Row& row, Measured const& of, Settings const& settings) {
  std::vector<double> rates, steps, peaks;
  double train_s = 0.0, total_s = 0.0, first_s = 0.0, cpu = 0.0, window = 0.0, bytes = 0.0;
  std::optional<double> comm = 0.0, waiting = 0.0;
  double const count = static_cast<double>(of.repeats.size());
  std::int64_t peak = 0, arena = 0, host = 0, resident = -1;
  for (Repeat const& repeat : of.repeats) {
    if (!repeat.timed.seconds.empty()) rates.push_back(repeat.timed.rate());
    steps.insert(steps.end(), repeat.timed.seconds.begin(), repeat.timed.seconds.end());
    train_s += repeat.timed.total_s;
    total_s += repeat.total_s;
    first_s += repeat.first_step_s / count;
    cpu += repeat.cpu_seconds;
    window += repeat.window_s;
    bytes = std::max(bytes, repeat.comm_bytes);
    comm = plus(comm, repeat.comm_s);
    waiting = plus(waiting, repeat.comm_waiting_s);
    peak = std::max(peak, repeat.peak_device);
    arena = std::max(arena, repeat.arena_device);
    host = std::max(host, repeat.arena_host);
    resident = std::max(resident, repeat.peak_resident);
  }
  if (!rates.empty()) {
    double const rate = median(rates);
    row["median_tokens_per_sec"] = rate;
    if (rates.size() > 1) row["std_tokens_per_sec"] = deviation(rates);
    row["tokens_per_sec_per_rank"] = rate / of.point.world();
    row["avg_step_time_s"] = mean(steps);
    row["median_step_time_s"] = median(steps);
    if (steps.size() > 1) row["std_step_time_s"] = deviation(steps);
    row["samples_per_sec"] = rate / static_cast<double>(of.point.sequence);
    row["train_time_s"] = train_s;
    row["avg_cpu_util_pct"] = window > 0.0 ? Row(100.0 * cpu / (window * cli::core_count())) : Row(nullptr);
    row["comm_bytes_per_step"] = static_cast<std::int64_t>(std::llround(bytes));
    row["comm_time_s"] = comm ? Row(*comm / count) : Row(nullptr);
    row["comm_exposed_s"] = row["comm_time_s"];  // where it is known, nothing runs beside a collective
    row["comm_waiting_s"] = waiting ? Row(*waiting / count) : Row(nullptr);
  }
  row["total_time_s"] = total_s;
  row["first_step_s"] = first_s;
  row["peak_gpu_mem_mb"] = cli::mebibytes(peak);
  row["arena_mb"] = cli::mebibytes(arena);
  row["host_mem_mb"] = cli::mebibytes(host);
  row["process_mem_mb"] = resident > 0 ? Row(cli::mebibytes(resident)) : Row(nullptr);
  Repeat const& first = of.repeats.front();
  Row losses = Row::array(), norms = Row::array();
  for (auto const& line : first.log) {
    losses.push_back(line.loss ? Row(*line.loss) : Row(nullptr));
    norms.push_back(line.grad_norm ? Row(*line.grad_norm) : Row(nullptr));
  }
  if (!losses.empty()) {
    row["first_loss"] = losses.front();
    row["final_loss"] = losses.back();
  }
  row["losses"] = std::move(losses);
  row["grad_norms"] = std::move(norms);
  row["steps"] = static_cast<std::int64_t>(first.log.size());
  row["warmup"] = settings.warmup;
  row["skipped_steps"] =
      std::count_if(first.log.begin(), first.log.end(), [](auto const& line) { return line.skipped; });
  if (!first.weights_hash.empty()) row["weights_hash"] = first.weights_hash;
}

/// Of the devices of a row the documented peak of each; nothing where they differ.
std::optional<double> peak_of(Point const& point, DeviceFacts const& device) {
  auto const world = static_cast<std::size_t>(point.world());
  if (device.models.size() < world) return std::nullopt;
  for (std::size_t rank = 1; rank < world; ++rank)
    if (device.models[rank] != device.models[0]) return std::nullopt;
  return cli::peak_flops(device.models[0], point.recipe.precision);
}

Row row_of(Measured const& of, std::vector<Measured> const& all, Settings const& settings,
           DeviceFacts const& device) {
  Row row = results::empty_row();
  for (char const* field : {"planned_host_mem_mb", "process_mem_mb", "comm_waiting_s", "speedup_against",
                            "steps", "warmup", "skipped_steps", "schedule_hash"})
    row[field] = nullptr;
  Point const& point = of.point;
  cli::describe_point(row, point);
  row["params"] = of.params ? Row(*of.params) : Row(nullptr);
  row["repeats"] = static_cast<std::int64_t>(of.repeats.size());
  row["status"] = of.status;
  row["reason"] = of.reason.empty() ? Row(nullptr) : Row(of.reason);
  row["planned_gpu_mem_mb"] = optional_mb(of.planned_device);
  row["planned_host_mem_mb"] = optional_mb(of.planned_host);
  row["seed"] = settings.trainer.seed;
  row["schedule_hash"] = of.schedule_hash.empty() ? Row(nullptr) : Row(of.schedule_hash);
  if (!of.repeats.empty()) {
    add_measurements(row, of, settings);
    if (auto const ran = attention_that_runs(point.recipe)) row["attention"] = name_of(*ran);
  }
  if (Measured const* twin = twin_of(of, all, settings)) row["same_program_as"] = twin->point.experiment;
  if (of.ok()) {
    double const rate = of.tokens_per_second();
    if (auto const peak = peak_of(point, device))
      row["mfu_pct"] =
          100.0 * rate / of.point.world() * gpt2_flops_per_token(point.model.options, point.sequence) / *peak;
    if (Measured const* reference = reference_of(of, all, settings)) {
      row["speedup"] = rate / reference->tokens_per_second();
      row["speedup_against"] = reference->point.experiment;
    }
    if (Measured const* base = scaling_base(of, all, settings))
      row["scaling_efficiency"] =
          (rate / of.point.world()) / (base->tokens_per_second() / base->point.world());
  }
  return row;
}

double number_or(Row const& row, char const* field, double absent) {
  Row const& value = row.at(field);
  return value.is_number() ? value.get<double>() : absent;
}

std::string cell(Row const& row, char const* field, int decimals, double factor = 1.0) {
  Row const& value = row.at(field);
  return value.is_number() ? cli::fixed(value.get<double>() * factor, decimals) : std::string("-");
}

/// One column of the table: what it shows and whether the best is the largest or the smallest.
struct Shown {
  cli::Table::Column column;
  char const* field;
  int decimals;
  double factor;
  int best;  ///< 1: the largest, -1: the smallest, 0: neither
};

std::vector<Shown> const& shown_columns() {
  static std::vector<Shown> const columns = {
      {{"tok/s", true, 9}, "median_tokens_per_sec", 0, 1.0, 1},
      {{"speedup", true, 6}, "speedup", 2, 1.0, 0},
      {{"ms/step", true, 7}, "median_step_time_s", 1, 1e3, -1},
      {{"device MB/rank", true, 8}, "peak_gpu_mem_mb", 2, 1.0, -1},
      {{"host MB/rank", true, 6}, "host_mem_mb", 2, 1.0, 0},
      {{"sent MB/step", true, 5}, "comm_bytes_per_step", 2, 1.0 / 1048576.0, -1},
      {{"comm ms/step", true, 4}, "comm_time_s", 1, 1e3, 0},
      {{"CPU %", true, 2}, "avg_cpu_util_pct", 0, 1.0, 0},
      {{"first step s", true, 1}, "first_step_s", 2, 1.0, 0},
      {{"first loss", true, 3}, "first_loss", 4, 1.0, 0},
      {{"final loss", true, 7}, "final_loss", 4, 1.0, 0},
  };
  return columns;
}

/// Rows whose weights must be equal to the bit: same model, precision and data of every step, ordered sums.
std::string hash_class(Measured const& row) {
  Point const& point = row.point;
  if (point.recipe.reduction != ReductionKind::ordered) return {};
  return point.model.name + "/" + std::string(point.recipe.names.precision) + "/" +
         std::string(point.recipe.names.attention) + "/" + std::to_string(point.split.global()) + "/" +
         std::to_string(point.split.batch) + "/" + std::to_string(point.sequence) + "/" +
         std::to_string(row.repeats.front().log.size());
}

std::string verdict(std::vector<Measured> const& measured, std::vector<Row> const& rows,
                    cli::Terminal const& terminal) {
  std::string out;
  struct Class {
    std::string label;
    std::map<std::string, cli::Names> hashes;  // hash to experiments
    std::size_t rows = 0;
  };
  std::vector<std::pair<std::string, Class>> classes;
  std::map<std::string, int> counts;
  std::size_t exact = 0, inexact = 0;
  for (std::size_t at = 0; at < measured.size(); ++at) {
    Measured const& row = measured[at];
    ++counts[row.status];
    if (!row.ok()) continue;
    (rows[at].at("peak_gpu_mem_mb") == rows[at].at("planned_gpu_mem_mb") ? exact : inexact) += 1;
    std::string const key = hash_class(row);
    if (key.empty()) continue;
    auto found =
        std::find_if(classes.begin(), classes.end(), [&](auto const& entry) { return entry.first == key; });
    if (found == classes.end()) {
      std::string label = row.point.model.name + ", " + std::string(row.point.recipe.names.precision) +
                          ", global batch " + std::to_string(row.point.split.global());
      classes.push_back({key, {std::move(label), {}, 0}});
      found = classes.end() - 1;
    }
    found->second.hashes[row.repeats.front().weights_hash].push_back(row.point.experiment);
    ++found->second.rows;
  }
  for (auto const& [key, entry] : classes) {
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
  Measured const *fastest = nullptr, *smallest = nullptr;
  for (Measured const& row : measured) {
    if (!row.ok()) continue;
    if (!fastest || row.tokens_per_second() > fastest->tokens_per_second()) fastest = &row;
    auto const least = [](Measured const& of) {
      return std::pair{of.repeats.front().peak_device, -of.tokens_per_second()};
    };
    if (!smallest || least(row) < least(*smallest)) smallest = &row;
  }
  if (fastest) {
    auto const line = [](Measured const& row) {
      return row.point.experiment + " with " +
             cli::grouped(static_cast<std::int64_t>(row.tokens_per_second())) + " tok/s and " +
             cli::fixed(cli::mebibytes(row.repeats.front().peak_device), 2) + " MB a rank\n";
    };
    out += "fastest: " + line(*fastest) + "least device memory: " + line(*smallest);
  }
  out += "rows:";
  for (char const* status : {"ok", "oom", "refused", "failed"})
    if (counts[status] > 0) out += " " + std::to_string(counts[status]) + " " + status + ",";
  out.back() = '\n';
  return out;
}

}  // namespace

std::vector<Row> result_rows(std::vector<Measured> const& measured, Settings const& settings,
                             DeviceFacts const& device) {
  std::vector<Row> rows;
  for (Measured const& row : measured) rows.push_back(row_of(row, measured, settings, device));
  return rows;
}

std::string table_text(std::vector<Measured> const& measured, std::vector<Row> const& rows,
                       cli::Terminal const& terminal) {
  std::vector<cli::Table::Column> columns = {{"stage", false, 100}, {"offload", false, 100}};
  for (Shown const& shown : shown_columns()) columns.push_back(shown.column);
  columns.push_back({"weights", false, 5});
  cli::Table table(std::move(columns));
  for (std::size_t begin = 0, end = 0; begin < measured.size(); begin = end) {
    std::string const group = measured[begin].point.group();
    while (end < measured.size() && measured[end].point.group() == group) ++end;
    table.heading(group);
    std::vector<double> best;
    for (Shown const& shown : shown_columns()) {
      double value = -1e300;
      for (std::size_t at = begin; at < end; ++at)
        if (measured[at].ok())
          value = std::max(value, shown.best * number_or(rows[at], shown.field, -1e300 * shown.best));
      best.push_back(value);
    }
    for (std::size_t at = begin; at < end; ++at) {
      Measured const& row = measured[at];
      cli::Names cells = {std::string(row.point.recipe.names.sharding),
                          std::string(row.point.recipe.names.offload)};
      if (!row.ok()) {
        bool const again = at > begin && measured[at - 1].reason == row.reason;
        table.text_row(std::move(cells), row.status + ": " + (again ? "as above" : row.reason));
        continue;
      }
      std::vector<bool> marked = {false, false};
      for (std::size_t column = 0; column < shown_columns().size(); ++column) {
        Shown const& shown = shown_columns()[column];
        cells.push_back(cell(rows[at], shown.field, shown.decimals, shown.factor));
        marked.push_back(shown.best != 0 && end - begin > 1 &&
                         shown.best * number_or(rows[at], shown.field, -1e300 * shown.best) == best[column]);
      }
      cells.push_back(row.repeats.front().weights_hash.substr(0, 8));
      table.row(std::move(cells), std::move(marked));
    }
  }
  return table.text(terminal) + "\n" + verdict(measured, rows, terminal);
}

}  // namespace compare
}  // namespace tessera::inline v0
