// SPDX-License-Identifier: Apache-2.0
// Lists the choices of each slot on a device, and whether this build can run them. A slot is one decision of
// a recipe, such as the precision. A choice is one possible value of a slot, such as bf16.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/policy/table.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace info {

/// One choice of a slot. `reason` says why it is unavailable; nullopt if it is available.
struct Choice {
  std::string name;
  std::optional<std::string> reason;
};
struct Slot {
  std::string title;
  std::vector<Choice> choices;
};

/// A function that returns why this build cannot run a valid recipe; nullopt if it can. Programs pass the
/// function unavailable_reason here.
using Availability = std::function<std::optional<std::string>(RecipeTable const&)>;

/// Returns every choice of the slot S; an unavailable choice has a reason. Tries each choice in the default
/// recipe, in fp16, and with the reference attention. The choice is available if one of these recipes can
/// run.
template <class S>
Slot slot_report(std::string_view device, Availability const& unavailable) {
  Slot report{std::string(S::title), {}};
  for (std::string_view const name : choice_names<S>()) {
    std::optional<std::string> reason;
    for (auto const& [precision, attention] :
         {std::pair<std::string_view, std::string_view>{"", ""}, {"fp16", ""}, {"", "reference"}}) {
      SlotNames names;
      names.device = device;
      names.precision = precision;
      names.attention = attention;
      names.*S::field = name;
      RecipeTable const recipe = parse_recipe(names);
      auto const rule = broken_rule(recipe);
      auto const now = rule ? std::optional(cli::in_flags(std::string(*rule))) : unavailable(recipe);
      if (!reason || !now) reason = now;
      if (!now) break;
    }
    report.choices.push_back({std::string(name), reason});
  }
  return report;
}

inline std::vector<Slot> slots(std::string_view device, Availability const& unavailable) {
  std::vector<Slot> all;
  for_each_slot([&]<class S>(S) { all.push_back(slot_report<S>(device, unavailable)); });
  return all;
}

}  // namespace info
}  // namespace programs
