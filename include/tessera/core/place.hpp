// SPDX-License-Identifier: Apache-2.0
// Defines the devices that run work and the memory tiers that hold bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// The devices on which a model computes.
enum class Device : std::uint8_t { cpu, cuda };

/// The properties of a device that other code needs.
struct DeviceInfo {
  std::string_view name;  ///< the name of the device in flags, results and stored files
  bool own_memory;        ///< the device has memory separate from the host's
  /// The maximum number of steps that a training loop enqueues before it reads the report of the oldest one.
  /// 0: a call that enqueues a step returns when the step has finished.
  int max_steps_in_flight;
  bool graphs;        ///< the device can record a step and replay it as one graph
  bool tensor_cores;  ///< the device can multiply in tf32, bf16x6 and bf16x3
  bool on_cores;      ///< ranks share the machine's cores; otherwise each rank has its own device
};
/// The properties of the devices, in the order of the enumerators of Device.
inline constexpr std::array<DeviceInfo, 2> device_table{{
    {.name = "cpu",
     .own_memory = false,
     .max_steps_in_flight = 0,
     .graphs = false,
     .tensor_cores = false,
     .on_cores = true},
    {.name = "cuda",
     .own_memory = true,
     .max_steps_in_flight = 2,
     .graphs = true,
     .tensor_cores = true,
     .on_cores = false},
}};
constexpr DeviceInfo const& info_of(Device device) { return device_table[static_cast<std::size_t>(device)]; }
constexpr std::string_view name_of(Device device) { return info_of(device).name; }

/// The tiers (kinds) of memory. `device` is the memory in which the model computes. `host` is the host memory
/// that the policy Offload adds. It is a separate allocation, also if the device is the CPU. `nvme` is a file
/// on disk, one for each rank. Values move one tier at a time: between device and disk they pass through the
/// host.
enum class Tier : std::uint8_t { device, host, nvme };

/// The properties of a memory tier.
struct TierInfo {
  std::string_view name;  ///< the name of the tier in listings, reports and JSON
  bool has_addresses;     ///< false: code must copy values to another tier before it can address them
  Tier worked_on;         ///< the tier in which code computes with values of this tier
  /// The name of the Offload policy that keeps only the optimizer's state in this tier.
  std::string_view optimizer;
  /// The name of the Offload policy that also keeps the parameters in this tier.
  std::string_view all_state;
};
/// The properties of the tiers, in the order of the enumerators of Tier. Tiers with addresses, except the
/// device, are host memory.
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
/// Whether a tier is host memory separate from the memory of the device.
constexpr bool in_host_memory(Tier tier) { return has_addresses(tier) && tier != Tier::device; }
/// Returns the bytes that reports show for a tier. `bytes_of` returns the bytes of one tier. For `host`, the
/// result is the sum over all tiers in host memory.
template <class BytesOf>
constexpr std::int64_t bytes_on(Tier tier, BytesOf const& bytes_of) {
  std::int64_t sum = 0;
  for (std::size_t at = 0; at < tier_count; ++at)
    if (Tier const other{static_cast<std::uint8_t>(at)};
        other == tier || (tier == Tier::host && in_host_memory(other)))
      sum += bytes_of(other);
  return sum;
}
/// The same for an array with the bytes of each tier.
constexpr std::int64_t bytes_on(Tier tier, std::array<std::int64_t, tier_count> const& bytes) {
  return bytes_on(tier, [&](Tier other) { return bytes[static_cast<std::size_t>(other)]; });
}

/// The places: devices and memory tiers as types, for policies such as On<Cuda> and Offload<Nvme>. A place in
/// On<...> needs the member `device`. A place in Offload<...> needs the member `offload_tier`, the memory
/// tier that keeps the offloaded state.
struct Cpu {
  static constexpr Device device = Device::cpu;
  static constexpr std::string_view name = name_of(device);
  static constexpr Tier offload_tier = Tier::host;
};
struct Cuda {
  static constexpr Device device = Device::cuda;
  static constexpr std::string_view name = name_of(device);
};
struct Nvme {
  static constexpr std::string_view name = "nvme";
  static constexpr Tier offload_tier = Tier::nvme;
};

}  // namespace v0
}  // namespace tessera
