// SPDX-License-Identifier: Apache-2.0
// Defines a sharding policy as a user would: only the moments of the optimizer are sharded. Every rank has
// the full master weights and parameters. Each rank updates the parameters for which it has the moments, and
// receives the other parameters from the other ranks.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedMoments {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_moments";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.moments.over = tessera::Sharding::sharded;
  }
};
