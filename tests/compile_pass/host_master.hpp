// SPDX-License-Identifier: Apache-2.0
// Defines a user's policy for the slot offload: master weights live in host memory and are copied to the
// moments on the device for each update.
#pragma once

#include "tessera/policy/offload.hpp"

struct HostMaster {
  using policy_slot = tessera::slot::offload;
  static constexpr std::string_view name = "host_master";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.placement.master.tier = tessera::Tier::host;
  }
};
