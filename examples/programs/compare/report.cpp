// SPDX-License-Identifier: Apache-2.0
// Converts the measurements of rows to the columns of result files, and compares rows with each other. A row
// is one model and recipe with one batch, sequence and number of ranks.
#include "compare/report.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "machine/product_plans.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

using results::Measurements;

std::optional<double> optional_mb(std::optional<std::int64_t> bytes) {
  return bytes ? std::optional(cli::mebibytes(*bytes)) : std::nullopt;
}
/// Returns the peak of the arena in host memory of a rank, the maximum over the repeats.
double host_mb_of(Measured const& row) {
  std::int64_t peak = 0;
  for (Repeat const& repeat : row.repeats) peak = std::max(peak, repeat.arena_host);
  return cli::mebibytes(peak);
}
/// Returns the memory of a rank by which rows are compared.
std::optional<double> rank_memory_mb(Measured const& row) {
  SlotNames const& names = row.point.recipe.names;
  return results::rank_memory_mb(names.device, names.offload, peak_mb_of(row), host_mb_of(row));
}
/// Returns the text; nullopt if it is empty.
std::optional<std::string> optional_text(std::string const& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

/// Returns whether the scaling of the rows `one` and `other` may be compared. This is so if the rows differ
/// only in sharding, offload and ranks. Both rows must have the same batch per rank, or with --global-batch
/// the same global batch.
bool comparable(Measured const& one, Measured const& other, Settings const& settings) {
  Point const &a = one.point, &b = other.point;
  bool const split = settings.matrix.global_batch
                         ? a.split.global() == b.split.global()
                         : a.split.batch == b.split.batch && a.split.accumulation == b.split.accumulation;
  bool same = split && a.model == b.model && a.sequence == b.sequence;
  for_each_slot([&]<class Slot>(Slot) {
    if (!std::is_same_v<Slot, slot::sharding> && !std::is_same_v<Slot, slot::offload>)
      same = same && a.recipe.names.*Slot::field == b.recipe.names.*Slot::field;
  });
  return same;
}

/// Returns the row to which the scaling efficiency of `row` is relative. Among all completed rows of `all`
/// with the recipe and shape of `row`, it is the row on the fewest ranks. Returns null if all these rows have
/// the same number of ranks.
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

/// Writes the figures of completed epochs of the measured row `of` to the result row `row`. Times are medians
/// over repeats. Losses come from the first repeat, since all repeats have the same losses.
void add_epochs(Measurements& row, Measured const& of) {
  std::vector<results::EpochLogRow> const& epochs = of.repeats.front().epochs;
  std::vector<double> times;
  std::vector<std::optional<double>> rates, losses, with_padding;
  for (std::size_t at = 0; at < epochs.size(); ++at) {
    std::vector<double> seconds;
    for (Repeat const& repeat : of.repeats)
      if (at < repeat.epochs.size()) seconds.push_back(repeat.epochs[at].seconds);
    times.push_back(cli::median(seconds));
    rates.push_back(static_cast<double>(epochs[at].samples) / times.back());
    losses.push_back(epochs[at].loss);
    with_padding.push_back(epochs[at].loss_with_padding);
  }
  row.epochs = static_cast<std::int64_t>(epochs.size());
  if (epochs.empty()) return;
  row.samples = epochs.front().samples;
  row.avg_epoch_time_s = cli::mean(times);
  row.epoch_times_s.emplace(times.begin(), times.end());
  row.epoch_samples_per_sec = std::move(rates);
  row.first_epoch_loss = losses.front();
  row.final_epoch_loss = losses.back();
  row.epoch_losses = std::move(losses);
  row.epoch_losses_with_padding = std::move(with_padding);
}

/// Writes the use of the row's GPUs in the timed steps to the result row `row`, if every training of the row
/// (`repeats`) was long enough to measure it. `gpus` is the number of GPUs.
void add_gpu_use(Measurements& row, std::vector<Repeat> const& repeats, int gpus) {
  auto const known = [](Repeat const& repeat) { return repeat.gpus.has_value(); };
  if (repeats.empty() || !std::all_of(repeats.begin(), repeats.end(), known)) return;
  auto const mean_of = [&](auto field) -> std::optional<double> {
    double weighted = 0.0, time = 0.0;
    for (Repeat const& repeat : repeats) {
      auto const& value = *repeat.gpus.*field;
      if (!value) return std::nullopt;
      weighted += *value * repeat.timed.total_s;
      time += repeat.timed.total_s;
    }
    return time > 0.0 ? std::optional(weighted / time) : std::nullopt;
  };
  std::vector<double> utilizations;
  for (Repeat const& repeat : repeats)
    if (repeat.gpus->util_pct) utilizations.push_back(*repeat.gpus->util_pct);
  std::optional<double> const power = mean_of(&cli::GpuUse::power_w);
  std::optional<double> peak = 0.0;
  double time = 0.0;
  for (Repeat const& repeat : repeats) {
    auto const& one = repeat.gpus->peak_power_w;
    peak = peak && one ? std::optional(std::max(*peak, *one)) : std::nullopt;
    time += repeat.timed.total_s;
  }
  row.avg_gpu_util_pct = mean_of(&cli::GpuUse::util_pct);
  if (row.avg_gpu_util_pct) row.gpu_busy_s = 0.01 * *row.avg_gpu_util_pct * time * gpus;
  if (row.avg_gpu_util_pct && utilizations.size() > 1) row.std_gpu_util_pct = cli::deviation(utilizations);
  row.avg_power_w = power;
  row.peak_power_w = peak;
  row.energy_j = power ? std::optional(*power * time) : std::nullopt;
  row.temp_start_c = repeats.front().gpus->temp_start_c;
  row.temp_end_c = repeats.back().gpus->temp_end_c;
  row.temp_min_c = repeats.front().gpus->temp_min_c;
  row.temp_max_c = repeats.front().gpus->temp_max_c;
  std::vector<double> each = repeats.front().gpus->peak_power_each_w;
  for (Repeat const& repeat : repeats) {
    cli::GpuUse const& use = *repeat.gpus;
    row.temp_min_c = row.temp_min_c && use.temp_min_c
                         ? std::optional(std::min(*row.temp_min_c, *use.temp_min_c))
                         : std::nullopt;
    row.temp_max_c = row.temp_max_c && use.temp_max_c
                         ? std::optional(std::max(*row.temp_max_c, *use.temp_max_c))
                         : std::nullopt;
    each.resize(std::min(each.size(), use.peak_power_each_w.size()));
    for (std::size_t at = 0; at < each.size(); ++at) each[at] = std::max(each[at], use.peak_power_each_w[at]);
  }
  if (!each.empty()) row.peak_power_each_w.emplace(each.begin(), each.end());
}

/// Writes the used device memory to the result row `row`: the maximum over the trainings of the row
/// (`repeats`), if every training measured it.
void add_device_memory(Measurements& row, std::vector<Repeat> const& repeats) {
  std::optional<std::int64_t> allocated = 0, library = 0;
  for (Repeat const& repeat : repeats) {
    auto const& use = repeat.device_memory;
    allocated = use && allocated ? std::optional(std::max(*allocated, use->allocated)) : std::nullopt;
    library =
        use && use->library && library ? std::optional(std::max(*library, *use->library)) : std::nullopt;
  }
  row.allocated_mb = optional_mb(allocated);
  row.library_mb = optional_mb(library);
}

void add_measurements(Measurements& row, Measured const& of, Settings const& settings) {
  std::vector<double> rates, steps, means, medians;
  double train_s = 0.0, total_s = 0.0, first_s = 0.0, window = 0.0, cpu_s = 0.0, bytes = 0.0;
  std::optional<double> comm = 0.0, exposed = 0.0, waiting = 0.0;
  double const count = static_cast<double>(of.repeats.size());
  std::int64_t arena = 0, resident = -1;
  for (Repeat const& repeat : of.repeats) {
    if (!repeat.timed.seconds.empty()) {
      rates.push_back(repeat.timed.rate());
      means.push_back(cli::mean(repeat.timed.seconds));
      medians.push_back(cli::median(repeat.timed.seconds));
    }
    steps.insert(steps.end(), repeat.timed.seconds.begin(), repeat.timed.seconds.end());
    train_s += repeat.timed.total_s;
    total_s += repeat.total_s;
    first_s += repeat.first_step_s / count;
    window += repeat.window_s;
    cpu_s += repeat.cpu_seconds;
    bytes = std::max(bytes, repeat.comm_bytes);
    comm = plus(comm, repeat.comm_s);
    exposed = plus(exposed, repeat.comm_exposed_s);
    waiting = plus(waiting, repeat.comm_waiting_s);
    arena = std::max(arena, repeat.arena_device);
    resident = std::max(resident, repeat.peak_resident);
  }
  if (!rates.empty()) {
    double const rate = cli::median(rates);
    row.median_tokens_per_sec = rate;
    if (rates.size() > 1) row.std_tokens_per_sec = cli::deviation(rates);
    row.tokens_per_sec_per_rank = rate / of.point.world();
    row.avg_step_time_s = cli::mean(steps);
    row.median_step_time_s = cli::median(medians);
    if (means.size() > 1) row.std_step_time_s = cli::deviation(means);
    row.step_to_step_std_s = step_deviation(of);
    if (auto const spread = spread_of(of)) row.spread_pct = 100.0 * *spread;
    row.unsteady = is_unsteady(of);
    row.samples_per_sec = rate / static_cast<double>(of.point.sequence);
    row.train_time_s = train_s;
    if (window > 0.0) row.cpu_time_s = cpu_s;
    row.avg_cpu_util_pct = window > 0.0 ? std::optional(100.0 * own_load(of)) : std::nullopt;
    if (auto const others = other_load(of)) row.other_cpu_util_pct = 100.0 * *others;
    row.disturbed = other_load(of) ? std::optional(is_disturbed(of)) : std::nullopt;
    row.comm_bytes_per_step = static_cast<std::int64_t>(std::llround(bytes));
    row.comm_time_s = comm ? std::optional(*comm / count) : std::nullopt;
    row.comm_exposed_s = exposed ? std::optional(*exposed / count) : std::nullopt;
    row.comm_waiting_s = waiting ? std::optional(*waiting / count) : std::nullopt;
    add_gpu_use(row, of.repeats, of.point.world());
  }
  row.total_time_s = total_s;
  row.first_step_s = first_s;
  row.peak_gpu_mem_mb = peak_mb_of(of);
  row.arena_mb = cli::mebibytes(arena);
  row.host_mem_mb = host_mb_of(of);
  add_device_memory(row, of.repeats);
  if (Repeat const& one = of.repeats.front(); !one.nvme_engine.empty()) {
    row.nvme_mb = cli::mebibytes(one.peak_nvme);
    row.nvme_read_mb = one.nvme_read / 1048576.0;
    row.nvme_write_mb = one.nvme_written / 1048576.0;
    row.nvme_engine = one.nvme_engine;
    std::vector<double> disk;
    for (Repeat const& repeat : of.repeats)
      if (repeat.nvme_bytes_per_s) disk.push_back(*repeat.nvme_bytes_per_s);
    if (!disk.empty()) row.nvme_gb_per_s = 1e-9 * cli::median(disk);
  }
  row.process_mem_mb = resident > 0 ? std::optional(cli::mebibytes(resident)) : std::nullopt;
  Repeat const& first = of.repeats.front();
  std::vector<std::optional<double>> losses, norms;
  for (auto const& line : first.log) {
    losses.push_back(line.loss);
    norms.push_back(line.grad_norm);
  }
  if (!losses.empty()) {
    row.first_loss = losses.front();
    std::int64_t const hashed = first.hashed_after;  // 0 if the row ended before its weights were hashed
    row.final_loss = hashed > 0 ? losses.at(static_cast<std::size_t>(hashed - 1)) : losses.back();
  }
  row.padding_pct = first.tokens > 0
                        ? std::optional(100.0 * static_cast<double>(first.tokens - first.valid_tokens) /
                                        static_cast<double>(first.tokens))
                        : std::nullopt;
  if (!losses.empty()) row.final_loss_with_padding = first.final_loss_with_padding;
  if (settings.epochs > 0) add_epochs(row, of);
  row.loss_reduction_pct = settings.epochs > 0
                               ? results::percent_less(row.final_epoch_loss, row.first_epoch_loss)
                               : results::percent_less(row.final_loss, row.first_loss);
  row.losses = std::move(losses);
  row.grad_norms = std::move(norms);
  row.steps = static_cast<std::int64_t>(first.log.size());
  row.warmup = first.untimed;
  row.skipped_steps =
      std::count_if(first.log.begin(), first.log.end(), [](auto const& line) { return line.skipped; });
  row.timed_skipped_steps = timed_skips(of);
  if (first.weights_hash.empty()) return;
  row.weights_hash = first.weights_hash;
  row.hashed_steps = first.hashed_after;
}

/// Writes the columns that compare rows to the result row `row` of the completed row `of`. `program` is the
/// measured row that represents the program of this row. The speedup and the saved memory are relative to
/// `base`.
void add_comparison(Measurements& row, Measured const& of, Measured const& program, Measured const& base) {
  double const rate = program.tokens_per_second();
  row.efficiency = results::efficiency_of(rate, rank_memory_mb(of));
  if (base.point.model.name != program.point.model.name) return;
  row.speedup = rate / base.tokens_per_second();
  row.speedup_against = base.point.experiment;
  row.speedup_uncertainty = speedup_uncertainty(program, base);
  row.memory_saved_pct = results::percent_less(rank_memory_mb(of), rank_memory_mb(base));
}

/// Returns the result columns of the measured row `of`, without the columns of `add_comparison`. The scaling
/// efficiency compares `of` with the rows `all`.
Measurements row_of(Measured const& of, std::vector<Measured> const& all, Settings const& settings,
                    DeviceFacts const& device, cli::ProductRate const& measured) {
  Point const& point = of.point;
  Measurements row;
  row.params = of.params;
  if (of.trainable) row.trainable_params = *of.trainable;
  row.repeats = static_cast<std::int64_t>(of.repeats.size());
  row.status.name = of.status;
  row.reason = optional_text(of.reason);
  row.planned_gpu_mem_mb = optional_mb(of.planned_device);
  row.planned_host_mem_mb = optional_mb(of.planned_host);
  if (of.planned_nvme > 0) row.planned_nvme_mb = optional_mb(of.planned_nvme);
  row.device_limit_mb = optional_mb(of.device_limit);
  row.seed = settings.trainer.seed;
  row.samples_are.name = cli::name_of(settings.data.samples_are);
  row.schedule_hash = optional_text(of.schedule_hash);
  if (!of.repeats.empty()) {
    add_measurements(row, of, settings);
    AttentionKind const ran = of.repeats.front().attention;
    if (ran != AttentionKind::automatic) row.attention = name_of(ran);
    auto const& products = of.repeats.back().measured_products;
    row.product_plans = optional_text(cli::product_plans_text(point.recipe.device, products.has_value()));
    row.measured_products = products;
  }
  if (auto const rate = of.predicted.tokens_per_second()) {
    row.predicted_step_time_s = *of.predicted.step_s;
    row.predicted_tokens_per_sec = *rate;
    row.predicted_guessed_pct = 100.0 * of.predicted.guessed;
    if (auto const updates = rate_of_updates(of); of.ok() && updates)
      row.prediction_error_pct = 100.0 * (*rate / *updates - 1.0);
  }
  if (of.program && &all[*of.program] != &of) row.same_program_as = all[*of.program].point.experiment;
  if (of.ok()) {
    double const rate = of.tokens_per_second();
    auto const ceiling = of.trainable && of.trainable != of.params
                             ? std::nullopt
                             : cli::ceiling_of(point.recipe, point.world(), device, measured);
    if (ceiling) {
      row.mfu_pct = 100.0 * rate / of.point.world() * point.model.built.flops_per_token(point.sequence) /
                    ceiling->flops;
      row.mfu_against = ceiling->from;
    }
    if (Measured const* least = scaling_base(of, all, settings))
      row.scaling_efficiency =
          (rate / of.point.world()) / (least->tokens_per_second() / least->point.world());
  }
  return row;
}

}  // namespace

std::vector<TableRows> tables_of(std::vector<Measured> const& measured) {
  std::vector<std::string> kinds;
  std::vector<TableRows> tables;
  for (std::size_t at = 0; at < measured.size(); ++at) {
    Point const& point = measured[at].point;
    std::string const kind = point.model.name + " " + std::string(point.recipe.names.precision);
    auto const place = static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
    if (place == kinds.size()) {
      kinds.push_back(kind);
      tables.emplace_back();
    }
    tables[place].push_back(at);
  }
  if (tables.size() < measured.size()) return tables;
  TableRows all(measured.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return {all};
}

std::vector<results::Candidate> candidates_of(std::vector<Measured> const& measured) {
  std::vector<results::Candidate> candidates;
  for (Measured const& row : measured) {
    results::Candidate& candidate = candidates.emplace_back();
    Point const& point = row.point;
    candidate.name = point.experiment;
    candidate.work = point.model.name + ", " + std::to_string(point.split.ranks) +
                     (point.split.ranks == 1 ? " rank" : " ranks") +
                     (point.mesh.replicas > 1 ? ", mesh " + point.mesh.text(point.split.ranks) : "") +
                     ", global batch " + std::to_string(point.split.global()) + ", sequence " +
                     std::to_string(point.sequence);
    results::describe_recipe(candidate, point.recipe.names);
    candidate.status = row.status;
    candidate.ranked = is_ranked(row);
    candidate.program = row.program;
    if (row.device_limit) candidate.limit_mb = cli::mebibytes(*row.device_limit);
    if (!row.ok()) continue;
    candidate.rate = row.tokens_per_second();
    if (auto const spread = spread_of(row)) candidate.spread = std::max(*spread, row.twins_differ);
    candidate.peak_mb = rank_memory_mb(row);
    Measurements use;
    add_gpu_use(use, row.repeats, point.world());
    candidate.utilization_pct = use.avg_gpu_util_pct;
    candidate.utilization_deviation_pct = use.std_gpu_util_pct;
  }
  return candidates;
}

double peak_mb_of(Measured const& row) {
  std::int64_t peak = 0;
  for (Repeat const& repeat : row.repeats) peak = std::max(peak, repeat.peak_device);
  return cli::mebibytes(peak);
}

Measured const* base_of(TableRows const& table, std::vector<Measured> const& measured) {
  auto const order = [](Measured const& row) {
    RecipeTable const& recipe = row.point.recipe;
    return std::tuple{recipe.names.offload != "none", row.point.world(), recipe.stage != 0};
  };
  Measured const* base = nullptr;
  for (std::size_t const at : table)
    if (measured[at].ok() && (!base || order(measured[at]) < order(*base))) base = &measured[at];
  if (!base || !base->program) return base;
  auto const index = static_cast<std::size_t>(base - measured.data());
  return &measured[results::represented_by(candidates_of(measured), index)];
}

std::optional<double> spread_of(Measured const& row) {
  std::vector<double> rates;
  for (Repeat const& repeat : row.repeats)
    if (!repeat.timed.seconds.empty()) rates.push_back(repeat.timed.rate());
  if (rates.size() > 1) return cli::deviation(rates) / cli::mean(rates);
  if (rates.empty() || row.repeats.front().timed.seconds.size() < 2) return std::nullopt;
  std::vector<double> const& steps = row.repeats.front().timed.seconds;
  return cli::deviation(steps) / cli::mean(steps);
}

std::optional<double> step_deviation(Measured const& row) {
  std::vector<std::vector<double>> steps;
  for (Repeat const& repeat : row.repeats) steps.push_back(repeat.timed.seconds);
  return cli::deviation_within(steps);
}

std::optional<bool> is_unsteady(Measured const& row) {
  auto const spread = spread_of(row), deviation = step_deviation(row);
  if (!spread) return std::nullopt;
  double steps = 0.0, time = 0.0;
  for (Repeat const& repeat : row.repeats) {
    steps += static_cast<double>(repeat.timed.seconds.size());
    time += repeat.timed.total_s;
  }
  return *spread > cli::steady_share || deviation.value_or(0.0) * steps > cli::steady_share * time;
}

std::int64_t timed_skips(Measured const& row) {
  std::int64_t skips = 0;
  for (Repeat const& repeat : row.repeats)
    for (std::size_t step = static_cast<std::size_t>(repeat.untimed); step < repeat.log.size(); ++step)
      skips += repeat.log[step].skipped;
  return skips;
}

bool skips_many_steps(Measured const& row) {
  double steps = 0.0;
  for (Repeat const& repeat : row.repeats) steps += static_cast<double>(repeat.timed.seconds.size());
  return static_cast<double>(timed_skips(row)) > cli::steady_share * steps;
}

std::optional<double> rate_of_updates(Measured const& row) {
  double seconds = 0.0, steps = 0.0, updating_seconds = 0.0, updates = 0.0;
  for (Repeat const& repeat : row.repeats)
    for (std::size_t step = 0; step < repeat.timed.seconds.size(); ++step) {
      double const took = repeat.timed.seconds[step];
      seconds += took;
      ++steps;
      std::size_t const at = static_cast<std::size_t>(repeat.untimed) + step;
      if (at < repeat.log.size() && repeat.log[at].skipped) continue;
      updating_seconds += took;
      ++updates;
    }
  if (updates == steps) return row.tokens_per_second();
  if (updating_seconds <= 0.0) return std::nullopt;
  return row.tokens_per_second() * (seconds / steps) * (updates / updating_seconds);
}

std::optional<double> other_load(Measured const& row) {
  double sum = 0.0;
  for (Repeat const& repeat : row.repeats) {
    if (!repeat.other_load) return std::nullopt;
    sum += *repeat.other_load;
  }
  return row.repeats.empty() ? std::nullopt : std::optional(sum / static_cast<double>(row.repeats.size()));
}

double own_load(Measured const& row) {
  double cpu = 0.0, window = 0.0;
  for (Repeat const& repeat : row.repeats) {
    cpu += repeat.cpu_seconds;
    window += repeat.window_s;
  }
  return window > 0.0 ? cpu / (window * cli::core_count()) : 0.0;
}

bool is_disturbed(Measured const& row) {
  auto const others = other_load(row);
  RecipeTable const& recipe = row.point.recipe;
  bool const by_host = info_of(recipe.device).on_cores || recipe.names.offload != "none";
  return others && by_host && cli::is_disturbed(own_load(row), *others);
}

bool is_ranked(Measured const& row) { return row.ok() && !skips_many_steps(row) && !is_disturbed(row); }

void note_twins(std::vector<Measured>& measured) {
  Measured& last = measured.back();
  auto const is_twin = [&](Measured const& other) {
    Point const &a = last.point, &b = other.point;
    bool same = !last.schedule_hash.empty() && other.schedule_hash == last.schedule_hash &&
                a.model == b.model && a.sequence == b.sequence && a.split.ranks == b.split.ranks &&
                a.split.batch == b.split.batch && a.split.accumulation == b.split.accumulation &&
                other.planned_device == last.planned_device;
    for_each_slot([&]<class Slot>(Slot) {
      if (!std::is_same_v<Slot, slot::sharding>)
        same = same && a.recipe.names.*Slot::field == b.recipe.names.*Slot::field;
    });
    return same;
  };
  std::vector<Measured*> twins;
  for (Measured& other : measured)
    if (&other != &last && is_twin(other)) twins.push_back(&other);
  if (twins.empty()) return;
  std::size_t const first = static_cast<std::size_t>(twins.front() - measured.data());
  twins.push_back(&last);
  double least = 0.0, most = 0.0;
  for (Measured const* twin : twins) {
    if (!twin->ok()) continue;
    double const rate = twin->tokens_per_second();
    least = least > 0.0 ? std::min(least, rate) : rate;
    most = std::max(most, rate);
  }
  for (Measured* twin : twins) {
    twin->program = first;
    twin->twins_differ = least > 0.0 ? most / least - 1.0 : 0.0;
  }
}

std::optional<double> speedup_uncertainty(Measured const& row, Measured const& base) {
  if (&row == &base) return 0.0;
  auto const of_row = spread_of(row), of_base = spread_of(base);
  if (!of_row || !of_base || is_disturbed(row) || is_disturbed(base)) return std::nullopt;
  return results::ratio_uncertainty(row.tokens_per_second() / base.tokens_per_second(),
                                    std::max(*of_row, row.twins_differ),
                                    std::max(*of_base, base.twins_differ));
}

bool is_faster(Measured const& one, Measured const& other) {
  auto const uncertainty = speedup_uncertainty(one, other);
  return uncertainty && one.tokens_per_second() / other.tokens_per_second() - 1.0 > *uncertainty;
}

std::vector<Measurements> measurements(std::vector<Measured> const& measured, Settings const& settings,
                                       DeviceFacts const& device, cli::ProductRate const& rate) {
  std::vector<results::Candidate> const candidates = candidates_of(measured);
  std::vector<std::optional<std::string>> verdicts = results::verdicts(candidates);
  std::vector<Measurements> rows(measured.size());
  for (TableRows const& table : tables_of(measured)) {
    Measured const* const base = base_of(table, measured);
    for (std::size_t const at : table) {
      rows[at] = row_of(measured[at], measured, settings, device, rate);
      rows[at].verdict = std::move(verdicts[at]);
      if (measured[at].ok())
        add_comparison(rows[at], measured[at], measured[results::represented_by(candidates, at)], *base);
    }
  }
  return rows;
}

std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                      std::vector<Measurements> const& rows) {
  std::vector<results::Row> list;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    results::Row& row = list.emplace_back(results::empty_row());
    cli::describe_point(row, measured[at].point);
    results::write(row, rows[at]);
  }
  return list;
}

}  // namespace compare
}  // namespace programs
