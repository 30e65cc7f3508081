// SPDX-License-Identifier: Apache-2.0
// Defines the placement of each kind of state (such as gradients) while a step runs, and its buffer. The
// placement between steps is in RecipeTable.
#pragma once

#include <string_view>

#include "tessera/config.hpp"
#include "tessera/core/place.hpp"
#include "tessera/plan/moves.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The location of one kind of state at one time of a step: its distribution over ranks and memory tier
/// (`placement`), its number format (`type`) and its buffer (`kind` and `copy`).
struct StepRow {
  BufferKind kind{};
  Placement placement{};
  DType type = DType::f32;
  Copy copy{};

  constexpr bool same_buffer(StepRow const& other) const { return kind == other.kind && copy == other.copy; }

  friend constexpr bool operator==(StepRow const&, StepRow const&) = default;
};

/// One row for each kind of state, in the order in which a step uses them. Two rows with equal `kind` and
/// `copy` describe the same buffer (StepRow::same_buffer).
struct StepTable {
  StepRow weights{};           ///< the weights between steps
  StepRow gathered_weights{};  ///< full weights on the device, as units read them
  StepRow micro_gradient{};    ///< the gradient of one micro-batch, as units write it on each rank
  StepRow sum{};               ///< the sum of the gradients of the micro-batches so far
  StepRow gradient{};          ///< the complete gradient of the step
  StepRow master{};            ///< the weights that the optimizer updates, between steps
  StepRow moments{};           ///< optimizer states, between steps; each state has its own format
  StepRow working_gradient{};  ///< the gradient as the optimizer reads it
  StepRow working_master{};    ///< master weights while the optimizer updates them
  StepRow working_moments{};   ///< optimizer states while the optimizer updates them
  StepRow updated_weights{};   ///< the weights as the optimizer writes them, in their own format
  /// True: gradients are accumulated in a separate buffer. False: the micro-batch gradient is the step's
  /// gradient.
  bool accumulates = false;
  /// True: the last accumulate completes the gradient on the host, so it also computes the norm.
  bool norm_in_sum = false;

  /// Returns whether the optimizer updates the weights themselves, because there are no separate master
  /// weights.
  constexpr bool weights_are_master() const { return master.kind == weights.kind; }
  /// Returns whether the optimizer reads and writes state directly in the buffers that keep the state between
  /// steps, and also writes the updated weights to the memory tier that keeps the weights.
  constexpr bool updates_in_place() const {
    return working_gradient.same_buffer(gradient) && working_master.same_buffer(master) &&
           working_moments.same_buffer(moments) && updated_weights.placement.tier == weights.placement.tier;
  }
  /// Returns whether the optimizer runs on the host instead of the device.
  constexpr bool optimizer_off_device() const { return working_master.placement.tier != Tier::device; }
};

/// Calls `f(name, row)` for each row.
template <class F>
constexpr void visit_rows(StepTable const& table, F&& f) {
  f("weights", table.weights);
  f("gathered weights", table.gathered_weights);
  f("micro-batch gradient", table.micro_gradient);
  f("sum of gradients", table.sum);
  f("gradient", table.gradient);
  f("master weights", table.master);
  f("moments", table.moments);
  f("gradient in the update", table.working_gradient);
  f("master weights in the update", table.working_master);
  f("moments in the update", table.working_moments);
  f("updated weights", table.updated_weights);
}

/// Returns the step table of a recipe for `world` ranks and `accumulation` micro-batches. `recipe.placement`
/// must already be adapted to `world` ranks (at_world).
constexpr StepTable step_table(RecipeTable const& recipe, int world, int accumulation) {
  using Kind = BufferKind;
  PlacementTable const& rest = recipe.placement;
  DTypes const& types = recipe.types;
  Placement const full{};
  StepTable table;
  table.weights = {Kind::weights, rest.parameters, types.parameter};
  table.gathered_weights = {Kind::weights, full, types.parameter,
                            rest.parameters == full ? Copy{} : Copy{Verb::gather, 0}};
  Sharding const made = world > 1 ? Sharding::partial : Sharding::replicated;
  table.micro_gradient = {Kind::micro_gradient, {made, Tier::device}, types.micro_gradient};

  bool const mixed = types.micro_gradient != types.accumulator;
  bool const accumulates_separately =
      recipe.reduction == ReductionKind::ordered || rest.gradients.over == Sharding::owned;
  table.accumulates = accumulation > 1 || rest.gradients.over == Sharding::sharded ||
                      rest.gradients.tier != Tier::device || (mixed && world > 1 && accumulates_separately);
  Kind const kind = table.accumulates ? Kind::gradient : Kind::micro_gradient;
  DType const type = table.accumulates ? types.accumulator : types.micro_gradient;
  // If the gradient is replicated and sums may have any order, each rank sums the gradients of its own
  // micro-batches. The ranks reduce these sums after the last micro-batch. If sums must have a fixed order,
  // the ranks reduce the gradients to shards in each micro-batch.
  Placement sum = rest.gradients;
  if (sum.over == Sharding::replicated && world > 1)
    sum.over = recipe.reduction == ReductionKind::ordered ? Sharding::sharded : Sharding::partial;
  table.sum = {kind, sum, type};
  // If the recipe's gradient is replicated but each rank updates only its part, each rank gets only the
  // reduced gradient of its part.
  bool const part = rest.gradients.over == Sharding::replicated && rest.moments.over != Sharding::replicated;
  table.gradient = {kind, {part ? Sharding::sharded : rest.gradients.over, rest.gradients.tier}, type};
  table.norm_in_sum = rest.gradients.tier != Tier::device && sum.over != Sharding::partial;

  bool const separate = has_separate_master(recipe);
  table.master = separate ? StepRow{Kind::master, rest.master, types.master} : table.weights;
  table.moments = {Kind::moment, rest.moments, types.master};
  // An update runs in the memory of the moments, or on the host if they are on a disk.
  Placement const working{rest.moments.over, worked_on(rest.moments.tier)};
  auto const moved = [&](StepRow const& row) constexpr {
    bool const in_place = row.placement.tier == working.tier && holds(row.placement.over, working.over);
    return StepRow{row.kind, working, row.type, in_place ? row.copy : Copy{Verb::fetch, 0}};
  };
  table.working_gradient = moved(table.gradient);
  table.working_master = moved(table.master);
  table.working_moments = moved(table.moments);
  bool const in_place = working.tier == rest.parameters.tier && holds(rest.parameters.over, working.over);
  table.updated_weights = !separate  ? table.working_master
                          : in_place ? StepRow{Kind::weights, working, types.parameter}
                          : types.parameter != types.master
                              ? StepRow{Kind::weights, working, types.parameter, {Verb::update, 0}}
                              : table.working_master;
  return table;
}

}  // namespace v0
}  // namespace tessera
