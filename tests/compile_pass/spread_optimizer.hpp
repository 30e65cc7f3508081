// SPDX-License-Identifier: Apache-2.0
// A policy of a user's own, for the slot sharding: each flat group has an owner, which alone holds its
// gradient and its optimizer state, whole, as an optimizer of whole matrices wants them. All ranks take
// turns.
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
