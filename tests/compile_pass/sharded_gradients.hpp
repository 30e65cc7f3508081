// SPDX-License-Identifier: Apache-2.0
// A policy of a user's own, for the slot sharding: gradients are summed a shard each, and every rank updates
// everything, for which they are gathered unit by unit.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedGradients {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_gradients";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.gradients.over = tessera::Sharding::sharded;
  }
};
