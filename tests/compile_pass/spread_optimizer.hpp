// SPDX-License-Identifier: Apache-2.0
// Defines a sharding policy as a user would. A flat group is one buffer with the parameters of one layer. For
// each flat group, one rank (the owner) has the full gradient and the optimizer state. Optimizers that need
// whole matrices require this. The ranks own the flat groups in turn.
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
