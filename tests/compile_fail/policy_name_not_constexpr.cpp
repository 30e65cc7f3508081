// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a policy lacks a constexpr name or a constexpr describe(RecipeTable&). The name appears in
// results, and describe writes the policy's decision to the table, both at compile time. Add both. See
// docs/how-to/add-a-policy.md.
#include "support.hpp"

namespace ts = tessera;

struct Paced {
  using policy_slot = ts::slot::communication;
#if defined(TESSERA_TWIN)
  static constexpr std::string_view name = "paced";
#else
  static inline std::string_view name = "paced";
#endif
  static constexpr void describe(ts::RecipeTable&) {}
};

using Run = ts::Trainer<ts::Gpt2, Paced>;

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
