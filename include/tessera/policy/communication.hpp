// SPDX-License-Identifier: Apache-2.0
// Defines the slot `communication` and its policies. A slot is one decision about a run, and a policy makes
// it. This slot decides: how ranks exchange buckets, which are groups of tensors sent in one call.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct communication;
}

struct Tuned;

/// Communication<Tuned> puts the gradients of several units of the model (such as transformer blocks) into
/// one bucket. It overlaps the exchange of buckets with the backward pass. The communicator, such as NCCL,
/// chooses the algorithm of each exchange. The bucket size is a run-time value. Default:
/// Communication<Tuned>.
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
