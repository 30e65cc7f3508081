// SPDX-License-Identifier: Apache-2.0
// Defines slots and policies. A slot is one decision about a run, such as the precision. A policy is a type
// that makes this decision, such as Precision<half>.
//
// A policy has
//   using policy_slot = slot::capture;                     the decision that it makes
//   static constexpr std::string_view name = "graph";      its spelling in logs, results and on command lines
//   static constexpr void describe(RecipeTable& recipe);   writes its decision into the table
// If some template arguments are invalid, it also has
//   static constexpr bool valid = ...;                     whether the arguments are valid
//   template <bool Ok> struct refusal { static_assert(Ok, "tessera: what is wrong, why, the way out."); };
// If several spellings mean the same, it also has
//   using canonical = ...;                                 the spelling that a Config uses
//
// A slot, defined next to its policies, has
//   title                    its name
//   field                    the member of SlotNames that holds the name of the chosen policy
//   choices                  the policies that can be chosen by name
//   standard(above)          the name of its default policy; `above` has the decisions of earlier slots
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The choice "nothing": Offload<None>, Recompute<None>, LossScale<None>.
struct None;

/// Whether the type P is a policy: it has the member type policy_slot.
template <class P>
concept Policy = requires {
  typename P::policy_slot;
};

/// Whether the type P is a policy for the slot Slot.
template <class P, class Slot>
concept PolicyOf = Policy<P> && std::same_as<typename P::policy_slot, Slot>;

namespace detail {

template <class...>
struct list {};

template <class T, class... Ts>
inline constexpr bool one_of = (std::is_same_v<T, Ts> || ...);

template <class...>
inline constexpr bool never = false;

}  // namespace detail

}  // namespace v0
}  // namespace tessera
