// SPDX-License-Identifier: Apache-2.0
// Where bytes live and where work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {

struct Cpu {
  static constexpr std::string_view name = "cpu";
  /// The steps that a training loop enqueues before it reads the oldest report; 0: a step ends when its call
  /// returns.
  static constexpr int max_steps_in_flight = 0;
};
struct Cuda {
  static constexpr std::string_view name = "cuda";
  static constexpr int max_steps_in_flight = 2;
};
struct Nvme {
  static constexpr std::string_view name = "nvme";
};

/// The places as data, for tables. `device` is where the model computes; `host` is the other arena in host
/// memory that `Offload` uses, also when the device is itself the CPU; `nvme` is a file. Values travel from a
/// tier to the next, so between device and disk they pass the host.
enum class Tier : std::uint8_t { device, host, nvme };
inline constexpr std::size_t tier_count = 3;

constexpr std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::nvme:
      return "nvme";
  }
  return "?";
}

/// Whether bytes of a tier have addresses; others are read and written from a tier that has.
constexpr bool has_addresses(Tier tier) { return tier != Tier::nvme; }
/// Where work is done on what lies in a tier.
constexpr Tier worked_on(Tier tier) { return tier == Tier::nvme ? Tier::host : tier; }

}  // namespace v0
}  // namespace tessera
