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

/// Returns the program's only NVML library. Opens it on the first call.
nvml::Library const& gpu_library();

/// Returns the state at the time of the first call. Call it before CUDA creates a context, which in a
/// container looks like one of another process.
GpuState const& gpus_at_start();

/// Returns the names of throttle reasons; "other" for unknown ones.
Names throttle_names(std::uint64_t reasons);

/// Returns the reasons that slow the GPU: all except idling and requested limits.
std::uint64_t slowing(std::uint64_t reasons);

/// Formats throttle reasons: "sw_power_cap|hw_slowdown", "none".
std::string throttle_text(std::uint64_t reasons);

/// Adds `nvidia_driver`, `gpus` (null if NVML reports nothing) and `gpus_reason` to an environment.
/// `addresses` holds CUDA's devices in CUDA's order, as far as CUDA was queried.
void add_gpus(Json& environment, GpuState const& state, std::vector<std::string> const& addresses);

/// Memory of a GPU, in bytes.
struct DeviceMemoryUse {
  std::int64_t allocated = 0;           ///< by arenas
  std::optional<std::int64_t> library;  ///< CUDA's context and modules, cuBLASLt, NCCL, graphs
};

/// Returns the bytes of a GPU that libraries take: used now, minus used at the start, minus `allocated`.
/// Assumes that the memory of other processes did not change. Returns nothing if a value is unknown, or if
/// other processes have freed more since.
std::optional<std::int64_t> library_bytes_of(std::optional<std::int64_t> at_start,
                                             std::optional<std::int64_t> now, std::int64_t allocated);

/// Returns the current use of the first devices, each figure the maximum over devices. `allocated` holds the
/// bytes of each.
DeviceMemoryUse device_memory_use(std::vector<std::int64_t> const& allocated,
                                  std::vector<std::string> const& addresses);

/// Returns the NVML indices of the first `used` CUDA devices; empty if NVML does not know all of them.
std::vector<int> nvml_indices(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Returns a sentence for each problem that makes figures of the first `used` CUDA devices doubtful: other
/// processes and throttled clocks.
Names gpu_warnings(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Prints these warnings to stderr if the device is a GPU.
void warn_of_gpus(DeviceFacts const& device, int used);

}  // namespace cli
}  // namespace programs
