// SPDX-License-Identifier: Apache-2.0
// Defines a policy as a user would: parameters stay on the device; the optimizer state and the accumulated
// gradients are in host memory. It replaces the built-in policies for offloading. The policy consists of this
// header only.
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
