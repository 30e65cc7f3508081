// SPDX-License-Identifier: Apache-2.0
// Defines RecipeTable: the decisions of all policies of a run as one small struct of plain data. The code
// that plans or reports a training step reads this table and never uses a policy's type.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/place.hpp"

namespace tessera {
inline namespace v0 {

/// The distribution of values over ranks. replicated: each rank has all values. sharded: each rank has a
/// part. owned: each group of parameters is whole on one rank. partial: each rank has one summand of the
/// values. Only a micro-batch gradient is partial; stored state never is.
enum class Sharding : std::uint8_t { replicated, sharded, owned, partial };
enum class LossScaleKind : std::uint8_t { none, fixed, dynamic };
/// The activations that the backward pass recomputes. All other activations are kept in memory.
enum class RecomputeKind : std::uint8_t { none, gelu, block, every };
enum class ReductionKind : std::uint8_t { fast, ordered };
enum class CommunicationKind : std::uint8_t { tuned };
enum class CaptureKind : std::uint8_t { eager, graph };
enum class AttentionKind : std::uint8_t { automatic, reference, fused, cudnn };
/// The adapters that are trained instead of a model's weights; `none`: the weights themselves are trained.
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

/// Returns whether this attention gives the same bits for the same inputs on every run. `automatic` chooses a
/// deterministic kernel under Reduction<Ordered>. cuDNN chooses its own kernels, and its backward pass may
/// add with atomic operations.
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

/// The number formats in which a recipe stores and sends values. `micro_gradient` is the format of one
/// micro-batch's gradient, `wire` the format of transfers between ranks, and `accumulator` the format of
/// sums. No member is tf32, bf16x6 or bf16x3, because these are methods to multiply fp32 values.
struct DTypes {
  DType parameter = DType::f32;
  DType activation = DType::f32;
  DType micro_gradient = DType::f32;
  DType wire = DType::f32;
  DType accumulator = DType::f32;
  DType master = DType::f32;

  friend constexpr bool operator==(DTypes const&, DTypes const&) = default;
};

/// The placement of one kind of state, such as the parameters: its distribution over the ranks, and its
/// memory.
struct Placement {
  Sharding over = Sharding::replicated;
  Tier tier = Tier::device;

  friend constexpr bool operator==(Placement const&, Placement const&) = default;
};

/// The placement of each kind of state. `gradients` are the accumulated gradients of a step, `master` the
/// weights that the optimizer updates, and `moments` the optimizer's running means. The optimizer updates
/// values in the memory that stores the moments, or in host memory if the moments are on a disk. The defaults
/// are ZeRO stage 0 without offload. The planner derives the transfers of a step from this table
/// (plan/moves.hpp).
struct PlacementTable {
  Placement parameters{}, gradients{}, master{}, moments{};
  /// The number of ranks that own groups of parameters under Sharding::owned; 0: all ranks. The owners are
  /// ranks 0 to owners - 1. They get the groups in turn: group g belongs to rank g modulo owners.
  int owners = 1;

  friend constexpr bool operator==(PlacementTable const&, PlacementTable const&) = default;

  /// Whether any state has this distribution.
  constexpr bool uses(Sharding over) const {
    return parameters.over == over || gradients.over == over || master.over == over || moments.over == over;
  }
  constexpr bool uses(Tier tier) const {
    return parameters.tier == tier || gradients.tier == tier || master.tier == tier || moments.tier == tier;
  }
};

/// Returns the placement table, adapted to a run with `world` ranks and `shards` shards of sharded state (0:
/// one per rank). With one rank, all state is replicated, as in ZeRO stage 0. With one shard, state that
/// would be sharded is replicated.
constexpr PlacementTable at_world(PlacementTable placement, int world, int shards = 0) {
  placement.owners = placement.owners < 1 || placement.owners > world ? world : placement.owners;
  for (Placement* row : {&placement.parameters, &placement.gradients, &placement.master, &placement.moments})
    if (world == 1 || (shards == 1 && row->over == Sharding::sharded)) row->over = Sharding::replicated;
  return placement;
}

/// Whether any state is stored in a file.
constexpr bool uses_files(PlacementTable const& placement) { return placement.uses(Tier::nvme); }

/// The kinds of parallelism that a recipe uses in addition to data parallelism. The number of ranks of each
/// kind is a run-time value.
struct Axes {
  bool tensor = false;
  bool pipeline = false;

  friend constexpr bool operator==(Axes const&, Axes const&) = default;
};

/// The name of the chosen policy for each slot, as in logs, results, checkpoints and command lines.
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

/// All decisions of a recipe. Trivially copyable: the names are views of string literals.
struct RecipeTable {
  Device device = Device::cpu;
  int stage = -1;                ///< the ZeRO stage; -1: the sharding policy is not ZeRO
  DType precision = DType::f32;  ///< the method of matrix products; can be tf32, bf16x6 or bf16x3
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

/// Returns whether the master weights, which the optimizer updates, have buffers separate from the buffers of
/// the parameters. True if master weights and parameters differ in format or memory tier. Also true if their
/// distributions over ranks differ and the parameters are not replicated.
constexpr bool has_separate_master(RecipeTable const& recipe) {
  Placement const &master = recipe.placement.master, &parameters = recipe.placement.parameters;
  return recipe.types.master != recipe.types.parameter || master.tier != parameters.tier ||
         (master.over != parameters.over && parameters.over != Sharding::replicated);
}

namespace detail {

/// Returns the recipe table that results if these policies are applied in order. The policies must be valid
/// and in slot order.
template <class... Policies>
constexpr RecipeTable describe_all() {
  RecipeTable recipe;
  ((Policies::describe(recipe), recipe.names.*Policies::policy_slot::field = Policies::name), ...);
  return recipe;
}

}  // namespace detail

/// A complete recipe as a type: one policy for every slot, in the order of the slots, including defaults. Two
/// lists of policies with the same meaning give the same Config. Use `Resolved` (pack.hpp) to get the Config
/// of a list of policies.
template <class... Policies>
struct Config {};

/// The decisions of a Config as plain data.
template <class Recipe>
inline constexpr RecipeTable recipe_table{};
template <class... Policies>
inline constexpr RecipeTable recipe_table<Config<Policies...>> = detail::describe_all<Policies...>();

}  // namespace v0
}  // namespace tessera
