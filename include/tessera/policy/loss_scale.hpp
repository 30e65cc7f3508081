// SPDX-License-Identifier: Apache-2.0
// Defines the slot `loss scale` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: the factor that keeps small gradients in the range of fp16 (half).
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct loss_scale;
}

struct Dynamic;
struct Static;

/// LossScale<Dynamic> doubles the scale after a number of steps with finite gradients. If a gradient
/// overflows, Dynamic halves the scale and skips the update. <Static> never changes the scale. <None> does
/// not scale. The scale is a power of two, so a multiplication by the scale is exact as long as the result is
/// in the range of the format. Default: Dynamic for Precision<half>, None for all other formats.
template <class How>
struct LossScale {
  using policy_slot = slot::loss_scale;
  static constexpr bool valid = detail::one_of<How, Dynamic, Static, None>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: LossScale<How> does not support this mode. A loss scale adapts, is fixed, or is absent. "
        "Write LossScale<Dynamic>, <Static> or <None>. See docs/policies/loss-scale.md.");
  };
  static constexpr LossScaleKind kind = std::is_same_v<How, Dynamic>  ? LossScaleKind::dynamic
                                        : std::is_same_v<How, Static> ? LossScaleKind::fixed
                                                                      : LossScaleKind::none;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.loss_scale = kind; }
};

template <class P>
concept LossScalePolicy = PolicyOf<P, slot::loss_scale>;

struct slot::loss_scale {
  static constexpr std::string_view title = "loss scale";
  static constexpr auto field = &SlotNames::loss_scale;
  using choices = detail::list<LossScale<None>, LossScale<Static>, LossScale<Dynamic>>;
  static constexpr std::string_view standard(RecipeTable const& above) {
    return above.precision == DType::f16 ? "dynamic" : "none";
  }
};

}  // namespace v0
}  // namespace tessera
