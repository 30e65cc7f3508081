// SPDX-License-Identifier: Apache-2.0
// Defines a sharding policy as a user would: each rank accumulates one shard of the gradients. Every rank
// updates all parameters, so the gradients are gathered unit by unit (layer by layer).
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedGradients {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_gradients";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.gradients.over = tessera::Sharding::sharded;
  }
};
