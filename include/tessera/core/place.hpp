// SPDX-License-Identifier: Apache-2.0
// Where bytes live and where work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// The places as data, for tables. `device` is where the model computes; `host` is the other arena in host
/// memory that `Offload` uses, also when the device is itself the CPU; `nvme` is a file. Values travel from a
/// tier to the next, so between device and disk they pass the host.
enum class Tier : std::uint8_t { device, host, nvme };

/// One tier.
struct TierInfo {
  std::string_view name;       ///< in listings, reports and JSON
  bool has_addresses;          ///< its bytes have addresses; others are copied to a tier that has
  Tier worked_on;              ///< where work is done on its values
  std::string_view optimizer;  ///< the name of the offload that keeps the optimizer's state there
  std::string_view all_state;  ///< the name of the offload that keeps parameters there too
};
/// The tiers, one row each, in the order of Tier. All but the device that have addresses are host memory.
inline constexpr TierInfo tier_table[] = {
    {"device", true, Tier::device, "none", ""},
    {"host", true, Tier::host, "cpu_optimizer", "cpu_full"},
    {"nvme", false, Tier::host, "nvme_optimizer", "nvme"},
};
inline constexpr std::size_t tier_count = std::size(tier_table);

constexpr TierInfo const& info_of(Tier tier) { return tier_table[static_cast<std::size_t>(tier)]; }
constexpr std::string_view name_of(Tier tier) { return info_of(tier).name; }
constexpr bool has_addresses(Tier tier) { return info_of(tier).has_addresses; }
constexpr Tier worked_on(Tier tier) { return info_of(tier).worked_on; }
/// Whether a tier is host memory apart from the device.
constexpr bool in_host_memory(Tier tier) { return has_addresses(tier) && tier != Tier::device; }

/// A place of Offload says as `offload_tier` where it keeps state.
struct Cpu {
  static constexpr std::string_view name = "cpu";
  static constexpr Tier offload_tier = Tier::host;
};
struct Cuda {
  static constexpr std::string_view name = "cuda";
};
struct Nvme {
  static constexpr std::string_view name = "nvme";
  static constexpr Tier offload_tier = Tier::nvme;
};

}  // namespace v0
}  // namespace tessera
