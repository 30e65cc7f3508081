// SPDX-License-Identifier: Apache-2.0
// Defines an offload policy as a user would, in this header only. The parameters stay on the device. The
// optimizer state and the accumulated gradients are in host memory. A recipe (combination of policies) can
// contain this policy instead of one of the library's offload policies.
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
