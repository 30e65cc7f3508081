// SPDX-License-Identifier: Apache-2.0
// Defines an offload policy as a user would: the parameters stay on the device, and the optimizer state and
// the accumulated gradients are in host memory. A recipe has this policy instead of one of the built-in
// offload policies. The policy consists of this header only.
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
