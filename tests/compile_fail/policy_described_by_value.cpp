// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a policy's describe takes a copy or a const view of the RecipeTable. The decision that it
// writes to the table would be lost. Write describe(RecipeTable& recipe). See docs/how-to/add-a-policy.md.
#include "support.hpp"

namespace ts = tessera;

struct Away {
  using policy_slot = ts::slot::offload;
  static constexpr std::string_view name = "away";
#if defined(TESSERA_TWIN)
  static constexpr void describe(ts::RecipeTable& recipe) { recipe.placement.moments.tier = ts::Tier::host; }
#else
  static constexpr void describe(ts::RecipeTable recipe) { recipe.placement.moments.tier = ts::Tier::host; }
#endif
};

using Run = ts::Trainer<ts::Gpt2, Away>;

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
