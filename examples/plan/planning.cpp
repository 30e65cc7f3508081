// SPDX-License-Identifier: Apache-2.0
// Plans, searches and picks.
#include "plan/planning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <tuple>
#include <utility>

#include "tessera/plan/listing.hpp"
#include "tessera/train/any_trainer.hpp"

#include "common/run_flags.hpp"
#include "common/terminal.hpp"

namespace tessera {
inline namespace v0 {
namespace planning {

namespace {

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// What a recipe costs beside memory, in the order in which one gives it up.
auto cost(Planned const& row) {
  RecipeTable const& recipe = row.point.recipe;
  int const stage = recipe.stage < 0 ? 4 : recipe.stage;  // dp: the root updates alone, the slowest
  return std::tuple{recipe.names.offload != "none", static_cast<int>(recipe.recompute), stage};
}

/// Bytes of a rank that are short: its device's, and on the CPU those of the host, which are the same memory.
std::int64_t taken(Planned const& row) {
  bool const shared = row.point.recipe.device == Cpu::name;
  return row.on(Tier::device) + (shared ? row.on(Tier::host) : 0);
}

/// How much of what is preferred a row has; 0 where that is not known.
double worth(Planned const& row, Preference preferred) {
  double const bytes = std::max(1.0, static_cast<double>(taken(row)));
  double const rate = row.predicted.tokens_per_second().value_or(0.0);
  switch (preferred) {
    case Preference::speed:
      return rate;
    case Preference::memory:
      return 1.0 / bytes;
    case Preference::efficiency:
      return rate / bytes;
    case Preference::simple:
      return 1.0;
  }
  return 0.0;
}

/// "zs2_... (12,345 tok/s predicted, 17.2 MiB a rank)".
std::string figures_text(Planned const& row) {
  auto const rate = row.predicted.tokens_per_second();
  return row.point.experiment + " (" +
         (rate ? cli::grouped(std::llround(*rate)) + " tok/s predicted, " : std::string()) +
         bytes_text(taken(row)) + " a rank)";
}

/// The longest sequence of a command line.
constexpr std::int64_t most_sequence = 1 << 20;

StepPlan plan_of(Point const& point, TrainerOptions const& options) {
  StepShape const shape = step_shape(point.recipe, cli::options_of(point, options), 0, point.world());
  UnitLister const units = cli::trained_units(point.model.built.units(), point.recipe, options);
  return make_plan(units({shape.batch, shape.sequence}), point.recipe, shape);
}

void add_plan(Planned& row, Point const& point, TrainerOptions const& options, MemoryLimit const& limit,
              double search_time) {
  row.params = row.trainable = point.model.parameters;
  UnitLister units;
  if (point.model.built) {
    units = cli::trained_units(point.model.built.units(), point.recipe, options);
    row.params = parameter_count(units({1, 1}));
    row.trainable = trainable_count(units({1, 1}));
  }
  if (point.refusal) {
    row.status = "refused";
    row.reason = *point.refusal;
    return;
  }
  StepPlan const plan = plan_of(point, options);
  StepShape const& shape = plan.shape;
  row.memory = memory_report(plan);
  row.schedule_hash = hexadecimal(hash_of(plan.train.schedule));
  row.footprint = footprint(units, point.recipe, shape, &plan);
  row.status = row.footprint.within(limit) ? "fits" : "oom";
  if (!row.fits()) {
    Footprint const& all = row.footprint;
    char const* const ranks = shape.world == 1 ? "one rank plans " : "all ranks plan ";
    auto const over = [&](char const* who, std::int64_t bytes, char const* where, std::int64_t most) {
      row.reason = who + bytes_text(bytes) + where + ", the limit is " + bytes_text(most);
    };
    if (all.device > limit.device)
      over("a rank plans ", all.device, " on its device", limit.device);
    else if (all.host > limit.host)
      over(ranks, all.host, " of host memory", limit.host);
    else
      over(ranks, all.nvme, " on NVMe", limit.nvme);
  }
  if (search_time == 0.0) return;
  auto const fits_with = [&](UnitLister const& list, StepShape const& other) {
    try {
      return footprint(list, point.recipe, other).within(limit);
    } catch (Error const&) {  // beyond what can be planned
      return false;
    }
  };
  auto const fits = [&](StepShape const& other) { return fits_with(units, other); };
  // The model that a run of this sequence gets: positions that nobody gave follow it.
  auto const fits_as_run = [&](StepShape const& other) {
    if (point.own_positions) return fits(other);
    cli::ModelChoice model = point.model;
    model.sizes.positions = 0;
    return fits_with(
        cli::trained_units(cli::with_sizes(model, other.sequence, 0).built.units(), point.recipe, options),
        other);
  };
  row.largest_batch = largest_batch(shape, row.fits(), Deadline(search_time), fits);
  std::int64_t const positions = point.own_positions ? point.model.sizes.positions : most_sequence;
  row.longest_sequence = longest_sequence(shape, row.fits(), positions, Deadline(search_time), fits_as_run);
}

}  // namespace

Planned plan_point(Point const& point, TrainerOptions const& options, MemoryLimit const& limit,
                   double search_time) {
  Planned row;
  row.point = point;
  try {
    add_plan(row, point, options, limit, search_time);
  } catch (std::exception const& error) {
    row.status = "failed";
    row.reason = error.what();
  }
  return row;
}

std::string schedule_text(Point const& point, TrainerOptions const& options) {
  StepPlan const plan = plan_of(point, options);
  return listing(plan, plan.train);
}

std::string family(Point const& point) {
  SlotNames const& names = point.recipe.names;
  return point.model.name + "/" + std::string(names.precision) + "/" + std::string(names.adapters) + "/" +
         std::to_string(point.split.ranks) + "/" + std::to_string(point.split.batch) + "/" +
         std::to_string(point.split.accumulation) + "/" + std::to_string(point.sequence) + "/" +
         point.mesh.text(point.split.ranks);
}

Planned const* pick(std::vector<Planned> const& rows, std::string const& of, Preference preferred) {
  std::vector<Planned const*> fitting;
  double most = 0.0;
  for (Planned const& row : rows)
    if (row.fits() && family(row.point) == of) {
      fitting.push_back(&row);
      most = std::max(most, worth(row, preferred));
    }
  Planned const* best = nullptr;
  for (Planned const* row : fitting) {
    double const its = worth(*row, preferred);
    // Bytes are exact, predicted times are not.
    double const least = preferred == Preference::memory ? most : 0.99 * most;
    auto const simpler = [&](Planned const& one, Planned const& other) {
      std::int64_t const a = one.footprint.total, b = other.footprint.total;
      if (preferred == Preference::memory && a != b) return a < b;
      return cost(one) < cost(other);
    };
    if (its > 0.0 && its >= least && (!best || simpler(*row, *best))) best = row;
  }
  return best;
}

std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred) {
  if (preferred == Preference::simple) return {};
  std::string const of = family(picked.point);
  std::string out;
  auto const pattern = [&](std::string const& rule, auto const& follows) {
    Planned const* named = nullptr;
    for (Planned const& row : rows)
      if (row.fits() && family(row.point) == of && follows(row, named)) named = &row;
    if (named == &picked)
      out += "  follows the pattern '" + rule + "'\n";
    else if (named)
      out += "  against the pattern '" + rule + "', which is " + figures_text(*named) + "\n";
  };
  if (preferred == Preference::speed)
    pattern("speed is critical: the lowest stage that fits", [](Planned const& row, Planned const* before) {
      return row.point.recipe.stage >= 0 && (!before || cost(row) < cost(*before));
    });
  else if (preferred == Preference::memory)
    pattern("memory is critical: ZeRO-3 with offload", [&](Planned const& row, Planned const* before) {
      return row.point.recipe.stage == 3 && row.point.recipe.names.offload != "none" &&
             (!before || taken(row) < taken(*before) || &row == &picked);
    });
  if (Planned const* fastest = pick(rows, of, Preference::speed);
      fastest && fastest != &picked && picked.predicted.step_s) {
    double const lost = 1.0 - *picked.predicted.tokens_per_second() / *fastest->predicted.tokens_per_second();
    if (lost >= 0.01)
      out +=
          "  gives up " + cli::fixed(100.0 * lost, 0) + "% of the speed of " + figures_text(*fastest) + "\n";
  }
  if (Planned const* least = pick(rows, of, Preference::memory); least && least != &picked)
    if (std::int64_t const more = taken(picked) - taken(*least); more > 0)
      out += "  takes " + bytes_text(more) + " a rank more than " + figures_text(*least) + "\n";
  if (picked.on(Tier::host) > 0 && picked.point.recipe.device != Cpu::name)
    out += "  takes " + bytes_text(picked.on(Tier::host)) + " of host memory a rank\n";
  return out;
}

}  // namespace planning
}  // namespace v0
}  // namespace tessera
