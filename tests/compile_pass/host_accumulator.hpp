// SPDX-License-Identifier: Apache-2.0
// A policy of a user's own, for the slot offload: parameters stay on the device, optimizer and accumulator
// live in host memory. This header is all there is to it.
#pragma once

#include "tessera/policy/offload.hpp"

struct HostAccumulator {
  using policy_slot = tessera::slot::offload;
  static constexpr std::string_view name = "host_accumulator";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.master.tier = recipe.placement.moments.tier = tessera::Tier::host;
    recipe.placement.gradients.tier = tessera::Tier::host;
  }
};
