// SPDX-License-Identifier: Apache-2.0
// Defines a user's policy for the slot sharding: each flat group has one owner, which holds the group's full
// gradient and optimizer state. Optimizers of whole matrices need this. Ownership rotates over all ranks.
#pragma once

#include "tessera/policy/sharding.hpp"

struct SpreadOptimizer {
  using policy_slot = tessera::slot::sharding;
  static constexpr std::string_view name = "spread_optimizer";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    tessera::PlacementTable& rows = recipe.placement;
    rows.gradients.over = rows.master.over = rows.moments.over = tessera::Sharding::owned;
    rows.owners = 0;
  }
};
