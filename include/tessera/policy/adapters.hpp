// SPDX-License-Identifier: Apache-2.0
// Defines the slot `adapters` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: whether to train the model's own weights or small added matrices.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct adapters;
}

/// Adapters<None> trains the model's own weights, without adapters.
template <class What>
struct Adapters {
  using policy_slot = slot::adapters;
  static constexpr bool valid = std::is_same_v<What, None>;
  template <bool Ok>
  struct refusal {
    static_assert(Ok,
                  "tessera: Adapters<What> supports only None. A run trains the model's own weights or "
                  "low-rank adapters. Write Adapters<None> or Lora. See docs/policies/adapters.md.");
  };
  static constexpr std::string_view name = "none";
  static constexpr void describe(RecipeTable& recipe) { recipe.adapters = AdapterKind::none; }
};

/// Lora freezes the model's weights and trains a pair of low-rank matrices for some linear weights.
/// TrainerOptions::lora names these weights and sets the rank and the scale of the matrices. A program that
/// uses Lora must include <tessera/lora.hpp>. Default: Adapters<None>.
struct Lora {
  using policy_slot = slot::adapters;
  static constexpr std::string_view name = "lora";
  static constexpr void describe(RecipeTable& recipe) { recipe.adapters = AdapterKind::lora; }
};

template <class P>
concept AdapterPolicy = PolicyOf<P, slot::adapters>;

struct slot::adapters {
  static constexpr std::string_view title = "adapters";
  static constexpr auto field = &SlotNames::adapters;
  using choices = detail::list<Adapters<None>, Lora>;
  static constexpr std::string_view standard(RecipeTable const&) { return "none"; }
};

}  // namespace v0
}  // namespace tessera
