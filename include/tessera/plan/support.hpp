// SPDX-License-Identifier: Apache-2.0
// Checks whether this build can run a recipe (set of policies) that the rules between policies allow.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Returns a message if this build cannot run the recipe: the reason, and what to change. Otherwise returns
/// nullopt.
inline std::optional<std::string> unsupported_reason(RecipeTable const& recipe) {
  DTypes const& types = recipe.types;
  SlotNames const& names = recipe.names;
  if (!has_addresses(recipe.placement.gradients.tier))
    return sentence({"offload ", names.offload,
                     " keeps the accumulated gradient on a disk, so every micro-batch would write to the "
                     "disk; keep it in host memory"});
  if (recipe.placement.uses(Sharding::partial))
    return sentence({"sharding ", names.sharding,
                     " keeps a state partial (one summand on each rank), but only a micro-batch gradient can "
                     "be partial; make it replicated, sharded or owned"});
  if (recipe.attention == AttentionKind::cudnn && !cuda::has_cudnn_attention())
    return sentence({"attention ", names.attention,
                     " is not part of this build; use auto or fused, or build with -DTESSERA_CUDNN=ON"});
  if (recipe.axes.tensor || recipe.axes.pipeline)
    return sentence({"parallel ", names.parallel, " is not part of this build; use data parallelism only"});
  DType const sums = types.activation == DType::f64 ? DType::f64 : DType::f32;
  if (types.parameter != types.activation || types.micro_gradient != types.activation ||
      types.wire != types.micro_gradient || types.accumulator != sums || types.master != sums)
    return sentence({"precision ", names.precision, " with reduction ", names.reduction,
                     " gives a combination of formats that no engine supports: activations are ",
                     name_of(types.activation), ", parameters ", name_of(types.parameter),
                     ", micro-batch gradients ", name_of(types.micro_gradient), ", the wire ",
                     name_of(types.wire), ", sums ", name_of(types.accumulator), ", master weights ",
                     name_of(types.master),
                     "; the first four must be the same format, and the last two must be ", name_of(sums)});
  return std::nullopt;
}

/// A recipe that is legal and that this build can run. The constructor checks both conditions, so functions
/// with a parameter of this type need no further check.
class CheckedRecipe {
 public:
  /// A function that returns the reason if a build cannot run a legal recipe. Otherwise it returns nullopt.
  using Missing = std::optional<std::string>(RecipeTable const&);

  /// Throws Error(config) with the message of the first rule that the recipe breaks. Throws
  /// Error(unsupported) with the result of `missing` if the build cannot run the recipe.
  explicit CheckedRecipe(RecipeTable const& recipe, Missing* missing = &unsupported_reason) : table_(recipe) {
    if (auto const rule = broken_rule(recipe)) throw Error(ErrorKind::config, std::string(*rule));
    if (auto const reason = missing(recipe)) throw Error(ErrorKind::unsupported, *reason);
  }

  RecipeTable const& table() const noexcept { return table_; }
  operator RecipeTable const&() const noexcept { return table_; }

 private:
  RecipeTable table_;
};

}  // namespace v0
}  // namespace tessera
