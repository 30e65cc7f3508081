// SPDX-License-Identifier: Apache-2.0
// Defines a sharding policy as a user would: each rank accumulates one shard of the gradients. Every rank
// updates all parameters, so the full gradients are gathered from all ranks, one unit (layer) at a time.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedGradients {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_gradients";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.gradients.over = tessera::Sharding::sharded;
  }
};
