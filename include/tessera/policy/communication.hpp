// SPDX-License-Identifier: Apache-2.0
// Defines the slot `communication`: how buckets are exchanged between ranks, whatever they contain.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct communication;
}

struct Tuned;

/// Communication<Tuned> groups units into buckets, overlaps their exchange with the backward pass and leaves
/// the algorithm to the communicator. The bucket size is a run-time value. Default: Communication<Tuned>.
template <class How>
struct Communication {
  using policy_slot = slot::communication;
  static constexpr bool valid = detail::one_of<How, Tuned>;
  template <bool Ok>
  struct refusal {
    static_assert(Ok,
                  "tessera: Communication<How> does not support this mode. The communicator chooses how "
                  "buckets are sent. "
                  "Write Communication<Tuned>, or a policy of your own for this slot. See "
                  "docs/policies/communication.md.");
  };
  static constexpr CommunicationKind kind = CommunicationKind::tuned;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.communication = kind; }
};

template <class P>
concept CommunicationPolicy = PolicyOf<P, slot::communication>;

struct slot::communication {
  static constexpr std::string_view title = "communication";
  static constexpr auto field = &SlotNames::communication;
  using choices = detail::list<Communication<Tuned>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "tuned"; }
};

}  // namespace v0
}  // namespace tessera
