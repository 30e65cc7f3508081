// SPDX-License-Identifier: Apache-2.0
// What engines can run of what is legal.
#pragma once

#include <optional>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Why no engine can run a legal recipe, with the way out; nothing when one can.
inline std::optional<std::string> unsupported_reason(RecipeTable const& recipe) {
  DTypes const& types = recipe.types;
  auto const name = [](std::string_view slot, std::string_view value) {
    return std::string(slot) + " " + std::string(value);
  };
  if (!has_addresses(recipe.placement.gradients.tier))
    return name("offload", recipe.names.offload) +
           " keeps the folded gradient on a disk, to which every micro-batch would write it; keep it in host "
           "memory";
  if (recipe.placement.uses(Sharding::partial))
    return name("sharding", recipe.names.sharding) +
           " keeps a state as one summand on each rank, and only a contribution is; keep it replicated, "
           "sharded or owned";
  if (recipe.precision == DType::tf32)
    return name("precision", recipe.names.precision) + " is not part of this build; use fp32 or bf16";
  if (recipe.attention == AttentionKind::cudnn)
    return name("attention", recipe.names.attention) + " is not part of this build; use auto or fused";
  if (recipe.axes.tensor || recipe.axes.pipeline)
    return name("parallel", recipe.names.parallel) + " is not part of this build; use data parallelism only";
  DType const sums = types.activation == DType::f64 ? DType::f64 : DType::f32;
  if (types.parameter != types.activation || types.contribution != types.activation ||
      types.wire != types.contribution || types.accumulator != sums || types.master != sums)
    return name("precision", recipe.names.precision) + " with " + name("reduction", recipe.names.reduction) +
           " gives formats that no engine runs together: " + "activations are " +
           std::string(name_of(types.activation)) + ", parameters " + std::string(name_of(types.parameter)) +
           ", contributions " + std::string(name_of(types.contribution)) + ", the wire " +
           std::string(name_of(types.wire)) + ", sums " + std::string(name_of(types.accumulator)) +
           ", master weights " + std::string(name_of(types.master)) +
           "; the first four must be one format, and the last two " + std::string(name_of(sums));
  return std::nullopt;
}

/// Throws Error(unsupported) with the reason.
inline void check_supported(RecipeTable const& recipe) {
  if (auto const reason = unsupported_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
}

}  // namespace v0
}  // namespace tessera
