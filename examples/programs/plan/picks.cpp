// SPDX-License-Identifier: Apache-2.0
#include "plan/picks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"

#include "cli/values.hpp"
#include "plan/train_command.hpp"
#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

/// Returns flags that a user may try if a row does not fit at any batch and sequence; "" if there are none.
std::string untried_text(Planned const& row, MemoryLimit const& limit) {
  Point const& point = row.point;
  cli::Names remedies;
  // Recomputation does not change the bytes on NVMe. More ranks do not help against a full disk, since all
  // ranks share one disk.
  bool const disk = row.footprint.nvme > limit.nvme;
  bool shards_less = !disk;
  PlacementTable const& state = point.recipe.placement;
  for (Placement const& place : {state.parameters, state.master, state.moments})
    shards_less |= place.tier == Tier::nvme && place.over == Sharding::replicated;
  if (!disk && point.recipe.recompute != RecomputeKind::block) remedies.push_back("--recompute block");
  bool const more_ranks =
      !disk && row.footprint.host <= limit.host && point.world() < 64;  // more ranks need more host memory
  if (point.recipe.stage < 3 && point.world() > 1 && shards_less)
    remedies.push_back("--stages 3");
  else if (more_ranks)
    remedies.push_back(point.recipe.stage < 3 ? "more --ranks with --stages 3" : "more --ranks");
  if (disk) remedies.push_back("--offloads that keep less on NVMe");
  return remedies.empty() ? "" : "; try " + cli::joined(remedies, " or ");
}

/// Returns a new plan of `row` with the recipe and the batch of `change`; nullopt if it is refused or
/// does not fit.
template <class Change>
std::optional<Planned> fitting(Planned const& row, MemoryLimit const& limit, Settings const& settings,
                               Change const& change) {
  Point point = row.point;
  SlotNames names = point.recipe.names;
  change(names, point.split);
  point.recipe = parse_recipe(names);
  if (broken_rule(point.recipe) || unsupported_reason(point.recipe)) return std::nullopt;
  Planned other = plan_point(point, settings.trainer, limit);
  if (!other.fits()) return std::nullopt;
  if (settings.times)
    other.predicted =
        cli::predict(point, settings.trainer, *settings.times, static_cast<int>(settings.hosts));
  return other;
}

/// Returns a new plan of `row` without offload and with the least recomputation with which it fits; nullopt
/// if more recomputation than that of `row` does not help.
std::optional<Planned> least_recompute(Planned const& row, MemoryLimit const& limit,
                                       Settings const& settings) {
  for (RecomputeKind const kind : {RecomputeKind::gelu, RecomputeKind::block}) {
    if (kind <= row.point.recipe.recompute) continue;
    if (auto found = fitting(row, limit, settings, [&](SlotNames& names, cli::BatchRelation&) {
          names.offload = "none";
          names.recompute = name_of(kind);
        }))
      return found;
  }
  return std::nullopt;
}

/// Returns lines with flags with which the training of the recommended row `picked` fits without offload:
/// recomputation, or a smaller batch with more accumulation and the same global batch. Returns "" if the row
/// has no offload, if a row of its family fits without offload, or if neither helps.
std::string without_offload_text(std::vector<Planned> const& rows, Planned const& picked,
                                 MemoryLimit const& limit, Settings const& settings) {
  if (picked.point.recipe.names.offload == "none") return {};
  std::string const of = family(picked.point);
  std::vector<Planned const*> by_stage;  // one row for each sharding, the simplest first
  for (Planned const& row : rows) {
    RecipeTable const& recipe = row.point.recipe;
    if (family(row.point) != of || !row.is_planned()) continue;
    if (row.fits() && recipe.names.offload == "none") return {};
    if (recipe.recompute == picked.point.recipe.recompute &&
        recipe.names.offload == picked.point.recipe.names.offload)
      by_stage.push_back(&row);
  }
  std::stable_sort(by_stage.begin(), by_stage.end(), [](Planned const* one, Planned const* other) {
    return simplicity(*one) < simplicity(*other);
  });
  if (picked.point.world() == 1) by_stage.resize(1);  // all stages run the same program
  std::string ways;
  auto const add = [&](char const* what, Planned const& found, std::string const& flags) {
    bool const several = found.point.world() > 1;
    ways += "  " + std::string(what) + " fits without offload: " +
            (several ? "--stages " + std::string(found.point.recipe.names.sharding) + " " : "") + flags +
            against_text(found, picked) + "\n";
  };
  for (Planned const* row : by_stage)
    if (auto const found = least_recompute(*row, limit, settings)) {
      add("recomputation", *found, "--recompute " + std::string(found->point.recipe.names.recompute));
      break;
    }
  // A larger batch comes first, because it is faster. With the same batch, the lowest stage comes first.
  auto const add_smaller_batch = [&] {
    cli::BatchRelation const now = picked.point.split;
    for (std::int64_t parts = 2; parts <= now.batch && now.accumulation * parts <= max_accumulation; ++parts)
      for (Planned const* row : by_stage) {
        if (now.batch % parts != 0) continue;
        auto const found = fitting(*row, limit, settings, [&](SlotNames& names, cli::BatchRelation& split) {
          names.offload = "none";
          split.batch = now.batch / parts;
          split.accumulation = now.accumulation * parts;
        });
        if (!found) continue;
        return add("a smaller batch", *found,
                   "--batch " + std::to_string(now.batch / parts) + " --accumulation " +
                       std::to_string(now.accumulation * parts));
      }
  };
  add_smaller_batch();
  return ways;
}

/// Returns a line with the predicted duration of an epoch and of --epochs; "" if the settings have neither
/// samples nor epochs. As in `train`, each epoch begins with a new step.
std::string epochs_text(Planned const& row, Settings const& settings) {
  if (row.epoch_samples == 0)
    return settings.epochs > 0 ? "  for the time of an epoch, give --data, or --samples, the number of "
                                 "samples of an epoch\n"
                               : "";
  std::int64_t const epochs = std::max<std::int64_t>(1, settings.epochs);
  std::int64_t const steps = cli::steps_of_epoch(row.epoch_samples, row.point.split.global());
  auto const length = [&](std::int64_t count) {
    return cli::grouped(count) + (count == 1 ? " step" : " steps") +
           (row.predicted.step_s
                ? ", " + cli::duration_text(static_cast<double>(count) * *row.predicted.step_s) + " " +
                      predicted_text(row.predicted)
                : "");
  };
  std::string out = "  an epoch of " + cli::grouped(row.epoch_samples) + " samples: " + length(steps);
  if (epochs > 1) out += "; " + cli::grouped(epochs) + " epochs: " + length(epochs * steps);
  if (!row.predicted.step_s)
    out += settings.times ? "; their time is not known: " + row.predicted.reason
                          : "; give --machine FILE or NAME for their time";
  return out + "\n";
}

/// The largest batch that `plan` proposes, divided by the batch of the pick. A step with many more samples
/// trains differently, so its rate alone is no reason for it.
constexpr std::int64_t max_batch_growth = 64;

/// Returns a rate in comparison with the rate of the pick: "34% more than the pick", or "2.3 times the rate
/// of the pick".
std::string more_text(double ratio) {
  if (ratio < 2.0) return cli::fixed(100.0 * (ratio - 1.0), 0) + "% more than the pick";
  return cli::fixed(ratio, ratio < 9.95 ? 1 : 0) + " times the rate of the pick";
}

/// Returns a line about the batch with the highest predicted rate; "" without predictions, without a search
/// for the largest batch, and with --global-batch, which the batch would change. Predicts the recommended row
/// `picked` with the batches 1, 2, 4, ... and the largest one that fits `limit`. Tries no batch above
/// `max_batch_growth` times the batch of the pick, and none with which a step has more samples than an epoch.
std::string best_batch_text(Planned const& picked, MemoryLimit const& limit, Settings const& settings) {
  std::int64_t const largest = picked.largest_batch.value;
  auto const now = picked.predicted.tokens_per_second();
  if (!now || largest < 1 || settings.no_search || settings.matrix.global_batch) return {};
  auto const with_batch = [&](std::int64_t batch) {
    return fitting(picked, limit, settings,
                   [&](SlotNames&, cli::BatchRelation& split) { split.batch = batch; });
  };
  cli::BatchRelation const& split = picked.point.split;
  std::int64_t most = std::min(largest, max_batch_growth * split.batch);
  if (picked.epoch_samples > 0)
    most = std::min(most, std::max<std::int64_t>(1, picked.epoch_samples * split.batch / split.global()));
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = 1; batch <= most && batch < largest; batch *= 2) batches.push_back(batch);
  if (most == largest) batches.push_back(largest);
  double rate = 0.0;
  std::int64_t best = 0;
  cli::Names tried;
  for (std::int64_t const batch : batches) {
    auto const found = with_batch(batch);
    auto const its = found ? found->predicted.tokens_per_second() : std::nullopt;
    if (!its) continue;
    tried.push_back(std::to_string(batch));
    if (*its > rate) {
      rate = *its;
      best = batch;
    }
  }
  if (best == 0) return {};
  std::string const among = " of the batches " + cli::joined(tried);
  if (*now >= (1.0 - equal_share) * rate)
    return "  none" + among + " is predicted to be faster by more than " +
           cli::fixed(100.0 * equal_share, 0) + "%\n";
  return "  --batch " + std::to_string(best) + " is predicted to be the fastest" + among + ": " +
         cli::grouped(std::llround(rate)) + " tok/s, " + more_text(rate / *now) + "\n";
}

/// Returns a line with the fastest one of the recommended rows `picks`, which differ in their batches; "" if
/// fewer than two of them have a prediction.
std::string over_batches_text(std::vector<Planned const*> const& picks) {
  Planned const* best = nullptr;
  cli::Names batches, equal;
  for (Planned const* row : picks) {
    if (!row->predicted.tokens_per_second()) continue;
    batches.push_back(std::to_string(row->point.split.batch));
    if (!best || *row->predicted.tokens_per_second() > *best->predicted.tokens_per_second()) best = row;
  }
  if (batches.size() < 2) return {};
  double const rate = *best->predicted.tokens_per_second();
  for (Planned const* row : picks)
    if (auto const its = row->predicted.tokens_per_second();
        its && row != best && *its >= (1.0 - equal_share) * rate)
      equal.push_back(std::to_string(row->point.split.batch));
  return "fastest of the batches " + cli::joined(batches) + " for " + best->point.model.name + ", " +
         std::string(best->point.recipe.names.precision) + ", sequence " +
         std::to_string(best->point.sequence) + ": --batch " + std::to_string(best->point.split.batch) +
         " with " + best->point.experiment + best->unnamed() + ", " + cli::grouped(std::llround(rate)) +
         " tok/s " + predicted_text(best->predicted) +
         (equal.empty()
              ? ""
              : "; equal within " + cli::fixed(100.0 * equal_share, 0) + "%: --batch " + cli::joined(equal)) +
         "\n";
}

/// Returns the family of a row without its batch.
std::string family_of_batches(Point point) {
  point.split.batch = 0;
  return family(point);
}

}  // namespace

std::string picks_text(std::vector<Planned> const& rows, MemoryLimit const& limit, Settings const& settings,
                       Preference preferred) {
  std::string out;
  cli::Names seen;
  std::map<std::string, std::vector<Planned const*>> by_batch;  // the picks that differ in their batches only
  for (Planned const& row : rows) {
    std::string const name = family(row.point);
    if (!row.is_planned() || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    std::int64_t const accumulation = row.point.split.accumulation;
    std::string const label = row.point.model.name + ", " + std::string(row.point.recipe.names.precision) +
                              ", " + std::to_string(row.point.split.ranks) +
                              (row.point.split.ranks == 1 ? " rank" : " ranks") + ", sequence " +
                              std::to_string(row.point.sequence) + ", at --batch " +
                              std::to_string(row.point.split.batch) +
                              (accumulation > 1 ? " --accumulation " + std::to_string(accumulation) : "");
    std::string const batches = family_of_batches(row.point);
    bool const one_batch = std::all_of(rows.begin(), rows.end(), [&](Planned const& other) {
      return other.point.split.batch == row.point.split.batch || family_of_batches(other.point) != batches;
    });
    if (Planned const* best = pick_by_what_is_known(rows, name, preferred)) {
      out += "pick for " + label + ": " + picked_text(*best) + "\n" + advice_text(rows, *best, preferred) +
             without_offload_text(rows, *best, limit, settings) +
             (one_batch ? best_batch_text(*best, limit, settings) : "") + epochs_text(*best, settings) +
             "  " + (settings.hosts > 1 ? "on each host" : "to train it") + ": " +
             train_command(*best, settings) + "\n" +
             (settings.hosts > 1
                  ? "  or once for all hosts, under SLURM: " + slurm_command(*best, settings) + "\n"
                  : "") +
             placeholders_text(settings);
      by_batch[batches].push_back(best);
      continue;
    }
    auto const excess = [&](Planned const& other) {  // how many bytes the row needs beyond the limits
      return std::max<std::int64_t>(0, other.footprint.device - limit.device) +
             std::max<std::int64_t>(0, other.footprint.host - limit.host) +
             std::max<std::int64_t>(0, other.footprint.nvme - limit.nvme);
    };
    Planned const* nearest = nullptr;
    for (Planned const& other : rows)
      if (other.status == "oom" && family(other.point) == name && other.same_program_as.empty() &&
          (!nearest || excess(other) < excess(*nearest)))
        nearest = &other;
    out += "nothing fits " + label + ": the row that exceeds a limit least is " + nearest->point.experiment +
           nearest->unnamed() + ", " + nearest->reason;
    Largest const &batch = nearest->largest_batch, &sequence = nearest->longest_sequence;
    out += batch.value > 0 ? "; largest batch that fits it: " + batch.text() : "";
    out += sequence.value > 0 ? "; longest sequence: " + sequence.text() : "";
    bool const offloads = nearest->point.recipe.names.offload != "none";
    if (auto const found = offloads ? std::nullopt : least_recompute(*nearest, limit, settings)) {
      auto const rate = found->predicted.tokens_per_second();
      out += "; it fits with --recompute " + std::string(found->point.recipe.names.recompute) +
             (rate ? ", " + cli::grouped(std::llround(*rate)) + " tok/s " + predicted_text(found->predicted)
                   : "");
    } else if (batch.value + sequence.value == 0) {
      out += untried_text(*nearest, limit);
    }
    out += "\n";
  }
  for (auto const& [of, picks] : by_batch) out += over_batches_text(picks);
  return out;
}

}  // namespace planning
}  // namespace programs
