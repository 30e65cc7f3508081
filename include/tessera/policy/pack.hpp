// SPDX-License-Identifier: Apache-2.0
// Converts a list of policies in any order to one type, Config. An invalid list becomes the type
// Refused<Mistake>, without a compiler error in this file. The compiler reports the mistake once, when it
// instantiates a trainer: the trainer's base class `rules` (rules.hpp) instantiates Mistake.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "tessera/policy/list.hpp"

namespace tessera {
inline namespace v0 {

/// The result of Resolved for an invalid list of policies. Mistake is the class with the error message. Code
/// that reads the recipe of Refused gets the default recipe, so that the compiler reports no further errors.
template <class Mistake>
struct Refused {
  using config = Refused;
};

namespace detail {

// One class for each mistake that a user can make. If the compiler instantiates the class, its static_assert
// fails and prints the error message.

template <class Offender>
struct not_a_policy {
  static_assert(
      never<Offender>,
      "tessera: an argument of Trainer is not a policy. After the model, every argument fills one slot. "
      "Pass policies such as ZeroStage<2> or Precision<half>, and numbers to the constructor. See "
      "docs/policies/README.md.");
};
template <class Offender>
struct unknown_slot {
  static_assert(
      never<Offender>,
      "tessera: a policy is for a slot that is not in the list of slots. Only listed slots are read. Set its "
      "policy_slot to a listed slot, or add the new slot to policy/list.hpp. See "
      "docs/how-to/add-a-policy.md.");
};
template <class Offender>
struct incomplete_policy {
  static_assert(
      never<Offender>,
      "tessera: a policy lacks a constexpr name or a constexpr describe(RecipeTable&). The name appears in "
      "results, and describe writes the policy's decision to the table, both at compile time. Add both. See "
      "docs/how-to/add-a-policy.md.");
};
template <class Offender>
struct forgetful_policy {
  static_assert(never<Offender>,
                "tessera: a policy's describe takes a copy or a const view of the RecipeTable. The decision "
                "that it writes to the table would be lost. Write describe(RecipeTable& recipe). See "
                "docs/how-to/add-a-policy.md.");
};
template <class Offender>
struct invalid_policy {
  static_assert(never<Offender>,
                "tessera: a policy is not valid and does not say why. The reason belongs in its "
                "refusal<bool>. Add one "
                "with a sentence. See docs/how-to/add-a-policy.md.");
};
template <class First, class Second>
struct slot_given_twice {
  static_assert(
      never<First, Second>,
      "tessera: two policies answer the same slot. A recipe has one answer for each slot. Keep one of them. "
      "See docs/policies/README.md.");
};

template <class Slot, class Slots>
inline constexpr bool is_listed = false;
template <class Slot, class... Slots>
inline constexpr bool is_listed<Slot, list<Slots...>> = one_of<Slot, Slots...>;
template <class P>
concept DeclaresValid = requires {
  P::valid;
};
template <class P>
concept Valid = !DeclaresValid<P> || P::valid;
template <class P>
constexpr bool described_by() {
  RecipeTable recipe;
  P::describe(recipe);
  return true;
}
template <class P>
concept Complete = requires(RecipeTable& recipe) {
  std::string_view(P::name);
  P::describe(recipe);
}
&&requires {  // name and describe must be constant expressions
  typename std::bool_constant<std::string_view(P::name).size() != 0>;
  typename std::bool_constant<described_by<P>()>;
};
template <class P>
concept Forgetful = requires {
  P::describe(RecipeTable{});
}
&&!requires {  // describe(auto&&) accepts a temporary, but also a reference: no decision is lost
  static_cast<void (*)(RecipeTable&)>(&P::describe);
};
template <class P>
concept Listed = is_listed<typename P::policy_slot, Slots>;

template <class P>
concept Unlisted = !Listed<P>;
template <class P>
concept Invalid = Listed<P> && !Valid<P>;
template <class P>
concept Explained = Invalid<P> && requires {
  typename P::template refusal<false>;
};
template <class P>
concept Lossy = Listed<P> && Valid<P> && Forgetful<P>;

/// The type that replaces all equivalent spellings of a policy, such as Offload<Optimizer<Cpu>> for
/// Offload<Cpu>. It is P::canonical, or P without const and volatile.
template <class P>
struct canonical {
  using type = std::remove_cv_t<P>;
};
template <class P>
concept HasCanonical = requires {
  typename P::canonical;
};
template <HasCanonical P>
struct canonical<P> {
  using type = typename P::canonical;
};

template <std::size_t I, class List>
struct type_at;
template <class First, class... Rest>
struct type_at<0, list<First, Rest...>> {
  using type = First;
};
template <std::size_t I, class First, class... Rest>
struct type_at<I, list<First, Rest...>> : type_at<I - 1, list<Rest...>> {};

template <class Choices>
inline constexpr std::array<std::string_view, 0> choice_names{};
template <class... Choices>
inline constexpr std::array<std::string_view, sizeof...(Choices)> choice_names<list<Choices...>>{
    Choices::name...};

/// Returns the index of a slot's choice by its name, or the number of choices if no choice has the name
/// `name`. A choice is a policy that a command line can name. `Slot` is the slot.
template <class Slot>
constexpr std::size_t choice_index(std::string_view name) {
  auto const& names = choice_names<typename Slot::choices>;
  std::size_t index = 0;
  while (index < names.size() && names[index] != name) ++index;
  return index;
}

/// The default policy of Slot. `Above` are the policies of the slots before Slot in the list of slots.
template <class Slot, class... Above>
using standard_t = typename type_at<choice_index<Slot>(Slot::standard(describe_all<Above...>())),
                                    typename Slot::choices>::type;

/// `type` is the canonical form of the policy for Slot in the pack Ps. If the pack has no policy for Slot,
/// `type` is Default.
template <class Slot, class Default, class... Ps>
struct pick {
  using type = Default;
};
template <class Slot, class Default, class P, class... Ps>
struct pick<Slot, Default, P, Ps...> : pick<Slot, Default, Ps...> {};
template <class Slot, class Default, PolicyOf<Slot> P, class... Ps>
struct pick<Slot, Default, P, Ps...> : canonical<P> {};

/// `config` is a Config of one policy for each slot. The list Filled has the policies of the first slots. The
/// list Open has the remaining slots. Each slot of Open gets its policy in the pack Ps, or the slot's default
/// if the pack has none. The pack must have no mistake.
template <class Filled, class Open, class... Ps>
struct fill;
template <class... Filled, class... Ps>
struct fill<list<Filled...>, list<>, Ps...> {
  using config = Config<Filled...>;
};
template <class... Filled, class Slot, class... Open, class... Ps>
struct fill<list<Filled...>, list<Slot, Open...>, Ps...>
    : fill<list<Filled..., typename pick<Slot, standard_t<Slot, Filled...>, Ps...>::type>, list<Open...>,
           Ps...> {};

/// A valid policy: it has a listed slot, valid arguments, a name, and a `describe` that changes the table.
template <class P>
concept Acceptable = Policy<P> && Listed<P> && Valid<P> && Complete<P> && !Forgetful<P>;
/// An acceptable policy for a slot that one of the policies Seen already fills.
template <class P, class... Seen>
concept Repeating = Acceptable<P> && one_of<typename P::policy_slot, typename Seen::policy_slot...>;

/// Is Refused<Mistake> for a policy P that is not acceptable. The class Mistake has the error message for
/// this fault. fault_of names Mistake but does not instantiate it, so the compiler prints no error yet.
template <class P>
struct fault_of : Refused<incomplete_policy<P>> {};
template <Unlisted P>
struct fault_of<P> : Refused<unknown_slot<P>> {};
template <Invalid P>
struct fault_of<P> : Refused<invalid_policy<P>> {};
template <Lossy P>
struct fault_of<P> : Refused<forgetful_policy<P>> {};
template <Explained P>
struct fault_of<P> : Refused<typename P::template refusal<false>> {};

/// Checks the policies of a pack Ps from left to right. Seen has the policies that are already checked.
/// `config` is Refused for the first mistake, or the Config of a valid pack.
template <class Seen, class... Ps>
struct walk;
template <class... Seen>
struct walk<list<Seen...>> : fill<list<>, Slots, Seen...> {};
template <class... Seen, class P, class... Ps>
struct walk<list<Seen...>, P, Ps...> : Refused<not_a_policy<P>> {};
template <class... Seen, Policy P, class... Ps>
struct walk<list<Seen...>, P, Ps...> : fault_of<P> {};
template <class... Seen, Acceptable P, class... Ps>
struct walk<list<Seen...>, P, Ps...> : walk<list<Seen..., P>, Ps...> {};
template <class... Seen, Repeating<Seen...> P, class... Ps>
struct walk<list<Seen...>, P, Ps...>
    : Refused<slot_given_twice<typename pick<typename P::policy_slot, void, Seen...>::type, P>> {};

template <class Recipe>
struct effective {
  using type = Recipe;
};
template <class Mistake>
struct effective<Refused<Mistake>> : effective<typename walk<list<>>::config> {};

template <class Slot, class Recipe>
struct policy_of;
template <class Slot, class... Ps>
struct policy_of<Slot, Config<Ps...>> : pick<Slot, void, Ps...> {};

}  // namespace detail

/// `Resolved<Ps...>::config` is the Config of the policies Ps. The Config is the same for every order of the
/// policies. It is also the same if the list leaves out a default policy. For an invalid list, `config` is
/// Refused<Mistake>. Resolved itself causes no compiler error.
template <class... Ps>
struct Resolved : detail::walk<detail::list<>, Ps...> {};

/// `ResolvedFor<Fault, Ps...>::config` is the Config of a trainer whose model is possibly invalid. Fault is
/// the class with the model's error message, or void for a valid model. For a valid model, `config` equals
/// Resolved<Ps...>::config. For an invalid model, `config` is Refused<Fault>, even if the policies also have
/// a mistake.
template <class Fault, class... Ps>
struct ResolvedFor : Refused<Fault> {};
template <class... Ps>
struct ResolvedFor<void, Ps...> : Resolved<Ps...> {};

/// The recipe of a trainer without policies.
using DefaultConfig = Resolved<>::config;

/// Recipe itself if it is a Config, or the default Config if it is Refused<Mistake>.
template <class Recipe>
using effective_t = typename detail::effective<Recipe>::type;

/// The policy that a recipe has for Slot. Only the code that implements a slot uses this.
template <class Recipe, class Slot>
using policy_t = typename detail::policy_of<Slot, effective_t<Recipe>>::type;

/// The place where a recipe computes: Cpu or Cuda.
template <class Recipe>
using device_t = typename policy_t<Recipe, slot::device>::place;

/// The argument of a recipe's policy Precision, such as float or half.
template <class Recipe>
using precision_t = typename policy_t<Recipe, slot::precision>::type;

template <class Mistake>
inline constexpr RecipeTable recipe_table<Refused<Mistake>> = recipe_table<DefaultConfig>;

}  // namespace v0
}  // namespace tessera
