// SPDX-License-Identifier: Apache-2.0
// Reads the state of the GPUs from NVIDIA's driver for results, reports and warnings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/values.hpp"
#include "machine/machine.hpp"
#include "machine/nvml.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The state of the GPUs at one moment.
struct GpuState {
  std::string reason;  ///< why there is no information; empty otherwise
  std::optional<std::string> driver;
  std::vector<nvml::Facts> facts;
  std::vector<nvml::Sample> samples;
};

GpuState state_of(nvml::Library const& library);

/// Returns the one NVML library that the program shares. Opens it on the first call.
nvml::Library const& gpu_library();

/// Returns the state of the GPUs, read at the first call. Make the first call before CUDA creates a context:
/// in a container, this process's own context looks like that of another process.
GpuState const& gpus_at_start();

/// Returns the names of throttle reasons; "other" for unknown ones.
Names throttle_names(std::uint64_t reasons);

/// Removes idling and limits that a user requested from `reasons`. Returns the rest, which slow the GPU.
std::uint64_t slowing(std::uint64_t reasons);

/// Formats throttle reasons: "sw_power_cap|hw_slowdown", "none".
std::string throttle_text(std::uint64_t reasons);

/// Adds `nvidia_driver`, `gpus` (null if NVML reports nothing) and `gpus_reason` to an environment.
/// `addresses` holds the PCI addresses of CUDA's devices in CUDA's order; empty if CUDA was not queried.
void add_gpus(Json& environment, GpuState const& state, std::vector<std::string> const& addresses);

/// Memory of a GPU, in bytes.
struct DeviceMemoryUse {
  std::int64_t allocated = 0;           ///< by arenas
  std::optional<std::int64_t> library;  ///< CUDA's context and modules, cuBLASLt, NCCL, graphs
};

/// Returns the bytes of GPU memory that CUDA and its libraries use: used now, minus used at the start, minus
/// `allocated`. Assumes that the use of other processes did not change. Returns nullopt if a value is unknown
/// or the result is not positive.
std::optional<std::int64_t> library_bytes_of(std::optional<std::int64_t> at_start,
                                             std::optional<std::int64_t> now, std::int64_t allocated);

/// Returns the current memory use of the first devices. Each figure is the maximum over devices. `allocated`
/// holds the bytes that this process allocated on each device.
DeviceMemoryUse device_memory_use(std::vector<std::int64_t> const& allocated,
                                  std::vector<std::string> const& addresses);

/// Returns the NVML indices of the first `used` CUDA devices; empty if NVML does not know all of them.
std::vector<int> nvml_indices(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Returns one sentence for each reason to doubt measurements on the first `used` CUDA devices: other
/// processes use a GPU, or its clocks are throttled.
Names gpu_warnings(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Prints the sentences of `gpu_warnings` to stderr if the device is a GPU.
void warn_of_gpus(DeviceFacts const& device, int used);

}  // namespace cli
}  // namespace programs
