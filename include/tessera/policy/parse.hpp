// SPDX-License-Identifier: Apache-2.0
// Converts recipes (sets of policies) to and from text: from the names of policies on a command line to a
// RecipeTable, and from a RecipeTable to one line for logs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/policy/pack.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the names of a slot's choices, in order. A choice is a policy that a command line can name. For
/// slot::recompute, the names are none, gelu, block, every.
template <class Slot>
constexpr auto const& choice_names() {
  return detail::choice_names<typename Slot::choices>;
}

/// Returns the index of the choice that `text` names. `text` is the choice's name or another spelling of the
/// name that the slot accepts. Returns the number of choices if `text` names no choice.
template <class Slot>
constexpr std::size_t choice_of(std::string_view text) {
  if constexpr (requires { Slot::spelled(text); }) text = Slot::spelled(text);
  return detail::choice_index<Slot>(text);
}
/// The policy type at this index of a slot's choices.
template <class Slot, std::size_t index>
using choice_t = typename detail::type_at<index, typename Slot::choices>::type;

namespace detail {

template <class Slot, class... All>
constexpr std::size_t place_among(list<All...>) {
  std::size_t place = 0;
  (void)((std::is_same_v<Slot, All> || (++place, false)) || ...);
  return place;
}
template <class... All>
constexpr std::size_t count_of(list<All...>) {
  return sizeof...(All);
}
template <class Visit, class... All>
constexpr void visit_each(Visit&& visit, list<All...>) {
  (visit(All{}), ...);
}

}  // namespace detail

/// The number of slots. `slot_place` returns the index of one slot in the list `Slots`.
inline constexpr std::size_t slot_count = detail::count_of(Slots{});
template <class Slot>
constexpr std::size_t slot_place() {
  return detail::place_among<Slot>(Slots{});
}

/// Calls visit(slot) once for each slot, in the order of the list `Slots`. The argument is a value of the
/// slot's type. Example: for_each_slot([]<class Slot>(Slot) { use(choice_names<Slot>()); }).
template <class Visit>
constexpr void for_each_slot(Visit&& visit) {
  detail::visit_each(visit, Slots{});
}

/// Returns the Levenshtein distance: the smallest number of single letters to insert, remove or change so
/// that `from` becomes `to`.
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      std::size_t const changed = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
    }
  }
  return row.back();
}

namespace detail {

[[noreturn]] inline void refuse_choice(std::string_view title, std::string_view text,
                                       std::span<std::string_view const> names) {
  std::string_view nearest;
  std::size_t best = text.size() + 64;  // more than the distance from `text` to any name
  std::string all;
  for (std::string_view candidate : names) {
    std::size_t const distance = edit_distance(text, candidate);
    if (distance < best) nearest = candidate;
    best = std::min(best, distance);
    all += sentence({all.empty() ? "" : ", ", candidate});
  }
  throw_error(ErrorKind::usage,
              {title, " '", text, "' is not known, nearest is '", nearest, "': choose one of ", all});
}

/// Returns the index of the choice of Slot that `text` names. Throws Error(usage) if `text` names no choice.
/// The error message has the nearest name and the names of all choices.
template <class Slot>
std::size_t parse_choice(std::string_view text) {
  auto const& names = choice_names<typename Slot::choices>;
  std::size_t const index = choice_of<Slot>(text);
  if (index >= names.size()) refuse_choice(Slot::title, text, names);
  return index;
}

template <class Slot, class... Choices>
void describe_choice(RecipeTable& recipe, std::size_t index, list<Choices...>) {
  std::size_t position = 0;
  ((position++ == index ? (Choices::describe(recipe), recipe.names.*Slot::field = Choices::name, void())
                        : void()),
   ...);
}

/// Sets one slot of a recipe: writes the decision of the choice with the name `name` to the recipe's table.
/// `name` must be the name of a choice of Slot.
template <class Slot>
void describe_known(RecipeTable& recipe, std::string_view name) {
  describe_choice<Slot>(recipe, choice_index<Slot>(name), typename Slot::choices{});
}

}  // namespace detail

/// Returns the table of the recipe whose policies have the names in `text`. An empty name means the slot's
/// default. The table equals the table that a Config of the same policies has at compile time. Does not check
/// the rules between slots (broken_rule, rules.hpp). Throws ErrorKind::usage for an unknown name. The message
/// has the slot, the name, the nearest choice and all choices.
inline RecipeTable parse_recipe(SlotNames const& text) {
  RecipeTable recipe;
  for_each_slot([&]<class Slot>(Slot) {
    std::string_view const given = text.*Slot::field;
    std::size_t const index = detail::parse_choice<Slot>(given.empty() ? Slot::standard(recipe) : given);
    detail::describe_choice<Slot>(recipe, index, typename Slot::choices{});
  });
  return recipe;
}

/// Returns the device with this name. Throws ErrorKind::usage for an unknown name.
inline Device device_named(std::string_view name) { return parse_recipe({.device = name}).device; }

/// Sets one slot of a recipe to the choice that `text` names. Does not change the decisions of the other
/// slots, so a user's own policies in these slots stay valid. parse_recipe could not restore them, because it
/// knows only the names of the choices. Throws Error(usage) for an unknown name.
template <class Slot>
void choose(RecipeTable& recipe, std::string_view text) {
  detail::describe_choice<Slot>(recipe, detail::parse_choice<Slot>(text), typename Slot::choices{});
}

/// Returns the policies of a recipe as one line of text: "device cpu, sharding zs2, precision fp16, loss
/// scale dynamic, ...".
inline std::string to_string(RecipeTable const& recipe) {
  std::string line;
  for_each_slot([&]<class Slot>(Slot) {
    line += sentence({line.empty() ? "" : ", ", Slot::title, " ", recipe.names.*Slot::field});
  });
  return line;
}

}  // namespace v0
}  // namespace tessera
