// SPDX-License-Identifier: Apache-2.0
// Where bytes live and where work runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// The devices on which a model computes.
enum class Device : std::uint8_t { cpu, cuda };

/// The facts about a device that decide what code does on it.
struct DeviceTraits {
  std::string_view name;  ///< in flags, results and stored files
  bool own_memory;        ///< its memory is not the host's
  /// The steps that a training loop enqueues before it reads the oldest report. 0: the work of a call has
  /// ended when it returns.
  int max_steps_in_flight;
  bool graphs;        ///< it records a step and repeats it as one graph
  bool tensor_cores;  ///< it multiplies in tf32 and in pieces of bf16
  bool on_cores;      ///< ranks share the machine's cores; elsewhere each rank has a device of its own
};
/// The devices in the order of their enumerators.
inline constexpr std::array<DeviceTraits, 2> device_table{{
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
constexpr DeviceTraits const& traits_of(Device device) {
  return device_table[static_cast<std::size_t>(device)];
}
constexpr std::string_view name_of(Device device) { return traits_of(device).name; }

struct Cpu {
  static constexpr Device device = Device::cpu;
  static constexpr std::string_view name = name_of(device);
};
struct Cuda {
  static constexpr Device device = Device::cuda;
  static constexpr std::string_view name = name_of(device);
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
