// SPDX-License-Identifier: Apache-2.0
// Defines a user's policy for the slot sharding that shards only the moments. Each rank updates one part of
// its full master weights and parameters, and receives the other parts from the other ranks.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedMoments {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_moments";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.moments.over = tessera::Sharding::sharded;
  }
};
