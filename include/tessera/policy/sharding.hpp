// SPDX-License-Identifier: Apache-2.0
// Defines the slot `sharding` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: how state is distributed over the data-parallel ranks.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct sharding;
}

/// ZeroStage<N> is ZeRO (Rajbhandari et al., 2020): stage 0 replicates all state (DDP), stage 1 shards the
/// optimizer's state, stage 2 also shards the gradients, and stage 3 also shards the parameters. Each stage
/// needs less memory than the stage before. Stages 0 to 2 transfer the same number of bytes between ranks,
/// stage 3 about 1.5 times as many. With one rank, all stages equal stage 0. Default: ZeroStage<0>.
template <int N>
struct ZeroStage {
  using policy_slot = slot::sharding;
  static constexpr int stage = N;
  static constexpr bool valid = 0 <= N && N <= 3;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: ZeroStage<N> has no such stage. ZeRO has stages 0 to 3: nothing sharded, then the "
        "optimizer, the gradients, the parameters. Write one of these. See docs/policies/sharding.md.");
  };
  static constexpr std::string_view name = N == 0 ? "zs0" : N == 1 ? "zs1" : N == 2 ? "zs2" : "zs3";
  static constexpr void describe(RecipeTable& recipe) {
    auto const from = [](int stage) { return N >= stage ? Sharding::sharded : Sharding::replicated; };
    recipe.stage = N;
    recipe.placement.master.over = recipe.placement.moments.over = from(1);
    recipe.placement.gradients.over = from(2);
    recipe.placement.parameters.over = from(3);
  }
};

/// The classic data-parallel method: rank 0 has the only optimizer. Rank 0 sums the gradients of all ranks,
/// updates the parameters and broadcasts them. The name of this policy in results is "dp". With many ranks it
/// is the slowest policy. It exists for comparison.
struct RootOptimizer {
  using policy_slot = slot::sharding;
  static constexpr std::string_view name = "dp";
  static constexpr void describe(RecipeTable& recipe) {
    recipe.placement.master.over = recipe.placement.moments.over = Sharding::owned;
    recipe.placement.gradients.over = Sharding::owned;
  }
};

template <class P>
concept ShardingPolicy = PolicyOf<P, slot::sharding>;

struct slot::sharding {
  static constexpr std::string_view title = "sharding";
  static constexpr auto field = &SlotNames::sharding;
  using choices = detail::list<RootOptimizer, ZeroStage<0>, ZeroStage<1>, ZeroStage<2>, ZeroStage<3>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "zs0"; }
  /// Returns the name of the policy that `text` means: a stage number ("2") or a common name of the strategy
  /// ("ddp", "zero2"). Returns any other text unchanged.
  static constexpr std::string_view spelled(std::string_view text) {
    if (text == "0" || text == "ddp" || text == "zero0") return "zs0";
    if (text == "1" || text == "zero1") return "zs1";
    if (text == "2" || text == "zero2") return "zs2";
    if (text == "3" || text == "zero3") return "zs3";
    return text;
  }
};

}  // namespace v0
}  // namespace tessera
