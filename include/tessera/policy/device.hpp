// SPDX-License-Identifier: Apache-2.0
// Defines the slot `device` and its policies. A slot is one decision about a run, and a policy makes it. This
// slot decides: where the model computes.
#pragma once

#include "tessera/core/place.hpp"
#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct device;
}

/// On<Cpu> computes on the CPU, with threads and Eigen. On<Cuda> gives each rank one CUDA device. Default:
/// On<Cpu>, even if the machine has a GPU. So a trainer type always has the same device, on every machine.
template <class Place>
struct On {
  using policy_slot = slot::device;
  using place = Place;
  static constexpr bool valid = detail::one_of<Place, Cpu, Cuda>;
  template <bool Ok>
  struct refusal {
    static_assert(Ok,
                  "tessera: On<Place> does not support this type. A model computes on the CPU or on one CUDA "
                  "device per "
                  "rank. Write On<Cpu> or On<Cuda>. See docs/policies/device.md.");
  };
  static constexpr Device device = std::is_same_v<Place, Cuda> ? Device::cuda : Device::cpu;
  static constexpr std::string_view name = name_of(device);
  static constexpr void describe(RecipeTable& recipe) { recipe.device = device; }
};

template <class P>
concept DevicePolicy = PolicyOf<P, slot::device>;

struct slot::device {
  static constexpr std::string_view title = "device";
  static constexpr auto field = &SlotNames::device;
  using choices = detail::list<On<Cpu>, On<Cuda>>;
  static constexpr std::string_view standard(RecipeTable const&) { return Cpu::name; }
};

}  // namespace v0
}  // namespace tessera
