// SPDX-License-Identifier: Apache-2.0
// Defines the slot `offload`: which state leaves the device, and for which memory.
#pragma once

#include "tessera/core/place.hpp"
#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct offload;
}

/// Master weights and moments are stored on Place.
template <class Place>
struct Optimizer;
/// Parameters are stored on Place and stream in unit by unit. The accumulator is stored with them, but never
/// on a disk, which every micro-batch would write: then it stays in host memory.
template <class Place>
struct Parameters;
/// Optimizer and parameters together: Offload<Cpu, AllState>.
struct AllState;

template <class... Parts>
struct Offload;

namespace detail {

/// The name of an offload to these tiers; empty if there is none.
constexpr std::string_view offload_name(Tier optimizer, Tier parameters) {
  if (parameters == Tier::device) return info_of(optimizer).optimizer;
  if (parameters == optimizer) return info_of(optimizer).all_state;
  if (optimizer == Tier::host && parameters == Tier::nvme) return "nvme_parameters";
  return optimizer == Tier::nvme && parameters == Tier::host ? "infinity" : "";
}

template <class Place>
inline constexpr Tier offload_tier = Tier::device;
template <class Place>
requires requires { Place::offload_tier; }
inline constexpr Tier offload_tier<Place> = Place::offload_tier;

/// The meaning of Offload's arguments, for valid spellings.
template <class... Parts>
struct offload_parts {
  static constexpr bool valid = false;
  static constexpr Tier optimizer = Tier::device, parameters = Tier::device;
  using canonical = Offload<Parts...>;
};
template <>
struct offload_parts<None> {
  static constexpr bool valid = true;
  static constexpr Tier optimizer = Tier::device, parameters = Tier::device;
  using canonical = Offload<None>;
};
template <class P>
struct offload_parts<Optimizer<P>> {
  static constexpr Tier optimizer = offload_tier<P>, parameters = Tier::device;
  static constexpr bool valid = optimizer != Tier::device;
  using canonical = Offload<Optimizer<P>>;
};
template <class P, class Q>
struct offload_parts<Optimizer<P>, Parameters<Q>> {
  static constexpr Tier optimizer = offload_tier<P>, parameters = offload_tier<Q>;
  static constexpr bool valid =
      optimizer != Tier::device && parameters != Tier::device && !offload_name(optimizer, parameters).empty();
  using canonical = Offload<Optimizer<P>, Parameters<Q>>;
};
template <class P, class Q>
struct offload_parts<Parameters<Q>, Optimizer<P>> : offload_parts<Optimizer<P>, Parameters<Q>> {};
template <class P>
requires requires { P::offload_tier; }
struct offload_parts<P> : offload_parts<Optimizer<P>> {};
template <class P>
struct offload_parts<P, AllState> : offload_parts<Optimizer<P>, Parameters<P>> {};

}  // namespace detail

/// Offload<None>; Offload<Optimizer<P>>; Offload<Optimizer<P>, Parameters<Q>>, with P and Q Cpu or Nvme.
/// Short forms: Offload<P> is Offload<Optimizer<P>>, and Offload<P, AllState> puts both on P. Values never
/// change, only where they are stored; each step pays for the transfers. Under On<Cpu>, Cpu is a separate
/// arena. Default: Offload<None>.
template <class... Parts>
struct Offload {
  using policy_slot = slot::offload;
  using parts = detail::offload_parts<Parts...>;
  using canonical = typename parts::canonical;
  static constexpr bool valid = parts::valid;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Offload<...> does not support these arguments. The optimizer, or the optimizer and the "
        "parameters, move to Cpu or Nvme. Write Offload<Cpu>, Offload<Nvme>, Offload<Cpu, AllState> or "
        "Offload<Optimizer<Nvme>, Parameters<Cpu>>. See docs/policies/offload.md.");
  };
  static constexpr std::string_view name = detail::offload_name(parts::optimizer, parts::parameters);
  static constexpr void describe(RecipeTable& recipe) {
    recipe.placement.master.tier = recipe.placement.moments.tier = parts::optimizer;
    recipe.placement.parameters.tier = parts::parameters;
    recipe.placement.gradients.tier = worked_on(parts::parameters);
  }
};

template <class P>
concept OffloadPolicy = PolicyOf<P, slot::offload>;

struct slot::offload {
  static constexpr std::string_view title = "offload";
  static constexpr auto field = &SlotNames::offload;
  using choices =
      detail::list<Offload<None>, Offload<Optimizer<Cpu>>, Offload<Optimizer<Cpu>, Parameters<Cpu>>,
                   Offload<Optimizer<Nvme>>, Offload<Optimizer<Nvme>, Parameters<Nvme>>,
                   Offload<Optimizer<Nvme>, Parameters<Cpu>>, Offload<Optimizer<Cpu>, Parameters<Nvme>>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "none"; }
  /// Accepts the spelling of DeepSpeed's configurations.
  static constexpr std::string_view spelled(std::string_view text) {
    return text == "cpu" ? "cpu_optimizer" : text;
  }
};

}  // namespace v0
}  // namespace tessera
