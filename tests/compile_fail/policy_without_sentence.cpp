// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a policy is not valid and does not say why. The reason belongs in its refusal<bool>. Add
// one with a sentence. See docs/how-to/add-a-policy.md.
#include "support.hpp"

namespace ts = tessera;

template <int Milliseconds>
struct Paced {
  using policy_slot = ts::slot::communication;
  static constexpr bool valid = Milliseconds > 0;
  static constexpr std::string_view name = "paced";
  static constexpr void describe(ts::RecipeTable&) {}
};

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, Paced<10>>;
#else
using Run = ts::Trainer<ts::Gpt2, Paced<0>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
