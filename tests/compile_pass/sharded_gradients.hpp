// SPDX-License-Identifier: Apache-2.0
// Defines a user's policy for the slot sharding: each rank sums one shard of the gradients. Every rank
// updates all parameters, so gradients are gathered unit by unit.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedGradients {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_gradients";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.gradients.over = tessera::Sharding::sharded;
  }
};
