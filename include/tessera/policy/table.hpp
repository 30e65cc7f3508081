// SPDX-License-Identifier: Apache-2.0
// A recipe as data: what every slot decided, in one small table that is passed by value. Who plans a step and
// who reports it read this table and never ask for a policy's type; who carries it out reads entries.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/place.hpp"

namespace tessera {
inline namespace v0 {

/// How values lie over the ranks: whole on each, a shard on each, each flat group whole on the one rank that
/// owns it, or as one summand on each. Only a micro-batch gradient is partial; no state is kept so.
enum class Sharding : std::uint8_t { replicated, sharded, owned, partial };
enum class LossScaleKind : std::uint8_t { none, fixed, dynamic };
/// What the backward pass computes again instead of keeping it.
enum class RecomputeKind : std::uint8_t { none, gelu, block, every };
enum class ReductionKind : std::uint8_t { fast, ordered };
enum class CommunicationKind : std::uint8_t { tuned };
enum class CaptureKind : std::uint8_t { eager, graph };
enum class AttentionKind : std::uint8_t { automatic, reference, fused, cudnn };
/// What is trained beside a model's weights, instead of them.
enum class AdapterKind : std::uint8_t { none, lora };

constexpr std::string_view name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::replicated:
      return "replicated";
    case Sharding::sharded:
      return "sharded";
    case Sharding::owned:
      return "owned";
    case Sharding::partial:
      return "partial";
  }
  return "?";
}

constexpr std::string_view name_of(LossScaleKind kind) {
  switch (kind) {
    case LossScaleKind::none:
      return "none";
    case LossScaleKind::fixed:
      return "static";
    case LossScaleKind::dynamic:
      return "dynamic";
  }
  return "?";
}

constexpr std::string_view name_of(RecomputeKind kind) {
  switch (kind) {
    case RecomputeKind::none:
      return "none";
    case RecomputeKind::gelu:
      return "gelu";
    case RecomputeKind::block:
      return "block";
    case RecomputeKind::every:
      return "every";
  }
  return "?";
}

constexpr std::string_view name_of(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::fast:
      return "fast";
    case ReductionKind::ordered:
      return "ordered";
  }
  return "?";
}

constexpr std::string_view name_of(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::tuned:
      return "tuned";
  }
  return "?";
}

constexpr std::string_view name_of(CaptureKind kind) {
  switch (kind) {
    case CaptureKind::eager:
      return "eager";
    case CaptureKind::graph:
      return "graph";
  }
  return "?";
}

constexpr std::string_view name_of(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::automatic:
      return "auto";
    case AttentionKind::reference:
      return "reference";
    case AttentionKind::fused:
      return "fused";
    case AttentionKind::cudnn:
      return "cudnn";
  }
  return "?";
}

/// Whether this attention gives the same bits for the same inputs on every run. `automatic` picks a
/// deterministic one whenever the recipe is ordered; cuDNN's plans are its own choice and its backward may
/// sum atomically.
constexpr bool is_deterministic(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::automatic:
    case AttentionKind::reference:
    case AttentionKind::fused:
      return true;
    case AttentionKind::cudnn:
      break;
  }
  return false;
}

/// The six formats of a recipe. `micro_gradient` is a unit's finished gradient, `wire` what travels between
/// ranks. tf32, bf16x6 and bf16x3 are ways to multiply fp32 values, so they never appear here.
struct DTypes {
  DType parameter = DType::f32;
  DType activation = DType::f32;
  DType micro_gradient = DType::f32;
  DType wire = DType::f32;
  DType accumulator = DType::f32;
  DType master = DType::f32;

  friend constexpr bool operator==(DTypes const&, DTypes const&) = default;
};

/// How one state lies: over the ranks, and in which kind of memory.
struct Placement {
  Sharding over = Sharding::replicated;
  Tier tier = Tier::device;

  friend constexpr bool operator==(Placement const&, Placement const&) = default;
};

/// A row for each state. `gradients` are the accumulated ones of a step, `moments` the optimizer's; an update
/// runs where the moments lie. The defaults are stage 0 without offload. Which data moves where in a step
/// follows from these rows (plan/moves.hpp), so any table trains.
struct PlacementTable {
  Placement parameters{}, gradients{}, master{}, moments{};
  /// How many ranks own flat groups, 0: all. They take turns, group by group; one owner is rank 0.
  int owners = 1;

  friend constexpr bool operator==(PlacementTable const&, PlacementTable const&) = default;

  /// Whether any state is kept so.
  constexpr bool uses(Sharding over) const {
    return parameters.over == over || gradients.over == over || master.over == over || moments.over == over;
  }
  constexpr bool uses(Tier tier) const {
    return parameters.tier == tier || gradients.tier == tier || master.tier == tier || moments.tier == tier;
  }
};

/// The placement that a world of this size really has, with state in so many shards (0: one a rank): one
/// rank shards nothing, so every stage equals stage 0, and one shard is the whole.
constexpr PlacementTable at_world(PlacementTable placement, int world, int shards = 0) {
  placement.owners = placement.owners < 1 || placement.owners > world ? world : placement.owners;
  for (Placement* row : {&placement.parameters, &placement.gradients, &placement.master, &placement.moments})
    if (world == 1 || (shards == 1 && row->over == Sharding::sharded)) row->over = Sharding::replicated;
  return placement;
}

/// Whether any state lies in a file.
constexpr bool uses_files(PlacementTable const& placement) { return placement.uses(Tier::nvme); }

/// The axes of the mesh that a recipe names; their sizes are values. The data axis is always there.
struct Axes {
  bool tensor = false;
  bool pipeline = false;

  friend constexpr bool operator==(Axes const&, Axes const&) = default;
};

/// The answer of each slot by name, as logs, results, checkpoints and command lines spell it.
struct SlotNames {
  std::string_view device{};
  std::string_view sharding{};
  std::string_view precision{};
  std::string_view loss_scale{};
  std::string_view offload{};
  std::string_view recompute{};
  std::string_view reduction{};
  std::string_view communication{};
  std::string_view capture{};
  std::string_view attention{};
  std::string_view parallel{};
  std::string_view adapters{};

  friend constexpr bool operator==(SlotNames const&, SlotNames const&) = default;
};

/// Everything that a recipe decides. Trivially copyable; all text is static.
struct RecipeTable {
  Device device = Device::cpu;
  int stage = -1;                ///< the ZeRO stage; -1: none, rows have the name of the sharding
  DType precision = DType::f32;  ///< how products are computed; the only field where tf32 and pieces appear
  DTypes types{};
  PlacementTable placement{};
  LossScaleKind loss_scale = LossScaleKind::none;
  RecomputeKind recompute = RecomputeKind::none;
  ReductionKind reduction = ReductionKind::fast;
  CommunicationKind communication = CommunicationKind::tuned;
  CaptureKind capture = CaptureKind::eager;
  AttentionKind attention = AttentionKind::automatic;
  Axes axes{};
  AdapterKind adapters = AdapterKind::none;
  SlotNames names{};

  friend constexpr bool operator==(RecipeTable const&, RecipeTable const&) = default;
};

static_assert(std::is_trivially_copyable_v<RecipeTable>);

/// Whether the optimizer keeps master weights apart from the parameters: in another format or another place,
/// or where a rank has more of them than of the parameters.
constexpr bool has_separate_master(RecipeTable const& recipe) {
  Placement const &master = recipe.placement.master, &parameters = recipe.placement.parameters;
  return recipe.types.master != recipe.types.parameter || master.tier != parameters.tier ||
         (master.over != parameters.over && parameters.over != Sharding::replicated);
}

namespace detail {

/// The recipe table after applying these policies in order. The policies are valid and in slot order.
template <class... Policies>
constexpr RecipeTable describe_all() {
  RecipeTable recipe;
  ((Policies::describe(recipe), recipe.names.*Policies::policy_slot::field = Policies::name), ...);
  return recipe;
}

}  // namespace detail

/// A resolved recipe: one policy for every slot, in the order of the list of slots, defaults spelled out. Two
/// sets of policies that mean the same are the same Config. Made by `Resolved` only.
template <class... Policies>
struct Config {};

/// The table of a Config.
template <class Recipe>
inline constexpr RecipeTable recipe_table{};
template <class... Policies>
inline constexpr RecipeTable recipe_table<Config<Policies...>> = detail::describe_all<Policies...>();

}  // namespace v0
}  // namespace tessera
