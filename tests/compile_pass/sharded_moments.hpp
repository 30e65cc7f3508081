// SPDX-License-Identifier: Apache-2.0
// A policy of a user's own, for the slot sharding: the moments alone are sharded. Each rank updates a part of
// its whole master weights and of its whole parameters, and the others' parts come back to it.
#pragma once

#include "tessera/policy/sharding.hpp"

struct ShardedMoments {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "sharded_moments";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.moments.over = tessera::Sharding::sharded;
  }
};
