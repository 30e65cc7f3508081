// SPDX-License-Identifier: Apache-2.0
// Defines the recipes of this folder's .flags files as types, so that a program can compile a trainer for
// each. CMake writes experiment_flags.hpp (see cmake/TesseraExperiments.cmake). It has a struct for each
// file, with the members `name` and `flags`. Example: experiments::recipes<tessera::Cpu,
// experiments::zero2_two_h100>
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/nvme.hpp>

#include "experiment_flags.hpp"

namespace experiments {

using namespace tessera;

template <class... Trainers>
struct RecipeList {
  /// Calls visit(std::type_identity<Trainer>{}) for each trainer type, in order.
  template <class Visit>
  static void for_each(Visit&& visit) {
    (visit(std::type_identity<Trainers>{}), ...);
  }
};

/// Returns the value of `flag` in the text `flags`; `otherwise` if the text does not contain the flag.
constexpr std::string_view value_of(std::string_view flags, std::string_view flag,
                                    std::string_view otherwise) {
  std::size_t const at = flags.find(flag);
  if (at == flags.npos) return otherwise;
  std::string_view const rest = flags.substr(at + flag.size() + 1);
  return rest.substr(0, rest.find(' '));
}

/// The values of one flag of an experiment, separated by commas. Each value names a choice (a policy) of the
/// slot.
template <class Slot>
struct Values {
  std::string_view text;

  constexpr std::size_t count() const {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  }
  /// Returns the position of the value number `index` in the slot's list of choices. `index` counts from 0.
  constexpr std::size_t choice(std::size_t index) const {
    std::string_view rest = text;
    for (; index > 0; --index) rest = rest.substr(rest.find(',') + 1);
    return choice_of<Slot>(rest.substr(0, rest.find(',')));
  }
};

template <class Experiment>
inline constexpr Values<slot::sharding> shardings_of{
    value_of(Experiment::flags, "--stages", value_of(Experiment::flags, "--strategies", "zs0"))};
template <class Experiment>
inline constexpr Values<slot::precision> precisions_of{value_of(Experiment::flags, "--precisions", "fp32")};
template <class Experiment>
inline constexpr Values<slot::offload> offloads_of{value_of(Experiment::flags, "--offloads", "none")};
template <class Experiment>
inline constexpr Values<slot::recompute> recomputes_of{value_of(Experiment::flags, "--recompute", "none")};

namespace detail {

/// The trainer type of the row number `row` of an experiment. From row to row the sharding changes first,
/// then the offload, and last the precision.
template <class Device, class Experiment, std::size_t row>
struct TrainerOf {
  static constexpr std::size_t shardings = shardings_of<Experiment>.count(),
                               offloads = offloads_of<Experiment>.count();
  static_assert(recomputes_of<Experiment>.count() == 1, "an experiment has one recomputation");
  using type =
      Trainer<Gpt2, On<Device>, choice_t<slot::sharding, shardings_of<Experiment>.choice(row % shardings)>,
              choice_t<slot::precision, precisions_of<Experiment>.choice(row / shardings / offloads)>,
              choice_t<slot::offload, offloads_of<Experiment>.choice(row / shardings % offloads)>,
              choice_t<slot::recompute, recomputes_of<Experiment>.choice(0)>>;
};
template <class Device, class Experiment, std::size_t... rows>
RecipeList<typename TrainerOf<Device, Experiment, rows>::type...> list_of(std::index_sequence<rows...>);

}  // namespace detail

/// The list of trainer types of an experiment on a device, in the order of its rows. Models and shapes are
/// run-time values, so they add no types.
template <class Device, class Experiment>
using recipes = decltype(detail::list_of<Device, Experiment>(
    std::make_index_sequence<shardings_of<Experiment>.count() * precisions_of<Experiment>.count() *
                             offloads_of<Experiment>.count()>()));

/// Calls visit(name, list) for each experiment, for example visit("zero-medium", RecipeList<...>()). The list
/// has the experiment's trainer types on the device.
template <class Device, class Visit>
void for_each_experiment(Visit&& visit) {
  all::for_each([&]<class Experiment>(std::type_identity<Experiment>) {
    visit(Experiment::name, recipes<Device, Experiment>{});
  });
}

}  // namespace experiments
