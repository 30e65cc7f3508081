// SPDX-License-Identifier: Apache-2.0
// Defines an offload policy as a user would. The master weights are in host memory and are copied to the
// device for each update. The moments stay on the device. A recipe (combination of policies) can contain this
// policy instead of one of the library's offload policies.
#pragma once

#include "tessera/policy/offload.hpp"

struct HostMaster {
  using policy_slot = tessera::slot::offload;
  static constexpr std::string_view name = "host_master";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.master.tier = tessera::Tier::host;
  }
};
