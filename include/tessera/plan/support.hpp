// SPDX-License-Identifier: Apache-2.0
// What this build can run of what is legal.
#pragma once

#include <optional>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/policy/table.hpp"

namespace tessera::inline v0 {

/// Why this build cannot run a legal recipe, with the way out; nothing when it can.
inline std::optional<std::string> unsupported_reason(RecipeTable const& recipe) {
  if (recipe.device != Cpu::name)
    return "device " + std::string(recipe.device) + " is not part of this build; use On<Cpu>";
  if (recipe.placement.parameters_tier != Tier::device || recipe.placement.optimizer_tier == Tier::nvme)
    return "offload " + std::string(recipe.names.offload) +
           " is not part of this build; use offload none or cpu_optimizer";
  if (recipe.axes.tensor || recipe.axes.pipeline)
    return "parallel " + std::string(recipe.names.parallel) +
           " is not part of this build; use data parallelism only";
  return std::nullopt;
}

/// Throws Error(unsupported) with the reason.
inline void check_supported(RecipeTable const& recipe) {
  if (auto const reason = unsupported_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
}

}  // namespace tessera::inline v0
