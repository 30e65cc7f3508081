// SPDX-License-Identifier: Apache-2.0
// Defines the slot `offload` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: which state is stored outside the device's memory, and where.
#pragma once

#include "tessera/core/place.hpp"
#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct offload;
}

/// Stores the optimizer's state (master weights and moments) in the memory of Place: Cpu or Nvme.
template <class Place>
struct Optimizer;
/// Stores the parameters in the memory of Place and copies them to the device one unit (such as a transformer
/// block) at a time. Parameters<Cpu> and Parameters<Nvme> also store the accumulated gradients in host
/// memory. Even Parameters<Nvme> does not store these gradients on the disk: every micro-batch writes them,
/// and a disk is too slow.
template <class Place>
struct Parameters;
/// Stores both the optimizer's state and the parameters in one memory: Offload<Cpu, AllState>.
struct AllState;

template <class... Parts>
struct Offload;

namespace detail {

/// Returns the name of the offload policy that keeps the optimizer's state and the parameters in these two
/// memory tiers. Returns an empty text if no policy supports the pair.
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

/// Translates the arguments of Offload to two memory tiers: the tier of the optimizer's state and the tier of
/// the parameters. The primary template is for invalid arguments.
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

/// Write Offload<None>, Offload<Optimizer<P>> or Offload<Optimizer<P>, Parameters<Q>>, with P and Q Cpu or
/// Nvme. Offload<P> means Offload<Optimizer<P>>. Offload<P, AllState> means Offload<Optimizer<P>,
/// Parameters<P>>. Offload changes where values are stored and never the values. It makes each step slower by
/// the transfers. Under On<Cpu>, Offload<Cpu> keeps the state in a separate allocation of host memory.
/// Default: Offload<None>.
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
  /// Returns the name of the policy that `text` means. DeepSpeed's configurations write "cpu" for the policy
  /// "cpu_optimizer". Returns any other text unchanged.
  static constexpr std::string_view spelled(std::string_view text) {
    return text == "cpu" ? "cpu_optimizer" : text;
  }
};

}  // namespace v0
}  // namespace tessera
