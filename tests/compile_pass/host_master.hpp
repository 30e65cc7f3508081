// SPDX-License-Identifier: Apache-2.0
// Defines a policy as a user would: master weights are in host memory and are copied to the device for each
// update. The moments stay on the device. It replaces the built-in policies for offloading.
#pragma once

#include "tessera/policy/offload.hpp"

struct HostMaster {
  using policy_slot = tessera::slot::offload;
  static constexpr std::string_view name = "host_master";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.master.tier = tessera::Tier::host;
  }
};
