// SPDX-License-Identifier: Apache-2.0
// Defines slots and policies. A slot is a question with one answer; a policy is a type that answers one.
//
// A policy has
//   using policy_slot = slot::capture;                     which question it answers
//   static constexpr std::string_view name = "graph";      its spelling in logs, results and on command lines
//   static constexpr void describe(RecipeTable& recipe);   what it decides, written into the table
// and, where some of its template arguments are wrong,
//   static constexpr bool valid = ...;                     whether these are right
//   template <bool Ok> struct refusal { static_assert(Ok, "tessera: what is wrong, why, the way out."); };
// and, where several spellings mean the same,
//   using canonical = ...;                                 the spelling that a Config uses
//
// A slot, defined next to its policies, has
//   title                    its name
//   field                    the member of SlotNames that holds its answer's name
//   choices                  the policies that can be chosen by name
//   standard(above)          the name of its default; `above` holds only the decisions of the slots above it
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The choice "nothing": Offload<None>, Recompute<None>, LossScale<None>.
struct None;

/// A type that names the slot it answers.
template <class P>
concept Policy = requires {
  typename P::policy_slot;
};

/// A policy that answers this slot.
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
