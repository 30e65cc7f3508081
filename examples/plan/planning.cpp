// SPDX-License-Identifier: Apache-2.0
// Plans, searches and picks.
#include "plan/planning.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include "tessera/train/any_trainer.hpp"

namespace tessera::inline v0 {
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

}  // namespace

Planned plan_point(Point const& point, TrainerOptions const& options, Limit const& limit, bool search) {
  Planned row;
  row.point = point;
  row.params = point.model.parameters;
  if (point.model.in_build) row.params = parameter_count(gpt2_units(point.model.options)({1, 1}));
  if (point.refusal) {
    row.status = "refused";
    row.reason = *point.refusal;
    return row;
  }
  UnitLister const units = gpt2_units(point.model.options);
  StepShape const shape = step_shape(point.recipe, cli::options_of(point, options), 0, point.world());
  StepPlan const plan = make_plan(units({shape.batch, shape.sequence}), point.recipe, shape);
  row.memory = memory_report(plan);
  row.schedule_hash = hexadecimal(hash_of(plan.train.schedule));
  row.all_ranks = footprint(units, point.recipe, shape, &plan).total;
  // A rank's device has memory of its own or shares the host's with what is offloaded.
  auto const of_rank = [&](StepPlan const& one) {
    return shape.own_memory ? one.arena_bytes[static_cast<std::size_t>(Tier::device)] : rank_bytes(one);
  };
  std::int64_t const wanted = limit.per_rank ? of_rank(plan) : row.all_ranks;
  row.status = wanted <= limit.bytes ? "fits" : "oom";
  if (!row.fits()) {
    row.reason = (limit.per_rank     ? "a rank plans "
                  : shape.world == 1 ? "one rank plans "
                                     : "all ranks plan ") +
                 bytes_text(wanted) + ", the limit is " + bytes_text(limit.bytes);
  }
  if (!search) return row;
  auto const fits = [&](StepShape const& other) {
    return limit.bytes >=
           (limit.per_rank
                ? of_rank(make_plan(units({other.batch, other.sequence}), point.recipe, other, false))
                : footprint(units, point.recipe, other).total);
  };
  constexpr double seconds = 0.5;
  row.largest_batch = largest_batch(shape, row.fits(), Deadline(seconds), fits);
  row.longest_sequence =
      longest_sequence(shape, row.fits(), point.model.options.positions, Deadline(seconds), fits);
  return row;
}

std::string family(Point const& point) {
  SlotNames const& names = point.recipe.names;
  return point.model.name + "/" + std::string(names.precision) + "/" + std::to_string(point.split.ranks) +
         "/" + std::to_string(point.split.batch) + "/" + std::to_string(point.split.accumulation) + "/" +
         std::to_string(point.sequence);
}

Planned const* pick(std::vector<Planned> const& rows, std::string const& of) {
  Planned const* best = nullptr;
  for (Planned const& row : rows)
    if (row.fits() && family(row.point) == of && (!best || cost(row) < cost(*best))) best = &row;
  return best;
}

}  // namespace planning
}  // namespace tessera::inline v0
