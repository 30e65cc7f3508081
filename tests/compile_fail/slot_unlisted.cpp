// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a policy is for a slot that is not in the list of slots. Only listed slots are read. Set
// its policy_slot to a listed slot, or add the new slot to policy/list.hpp. See docs/how-to/add-a-policy.md.
#include "support.hpp"

namespace ts = tessera;

struct slot_of_mine;

template <class Slot>
struct Paced {
  using policy_slot = Slot;
  static constexpr std::string_view name = "paced";
  static constexpr void describe(ts::RecipeTable&) {}
};

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, Paced<ts::slot::communication>>;
#else
using Run = ts::Trainer<ts::Gpt2, Paced<slot_of_mine>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
