// SPDX-License-Identifier: Apache-2.0
// Reads the state of the GPUs through NVML, the library of NVIDIA's driver. Result files, reports and
// warnings use this state.
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
  std::string reason;  ///< why there is no information; empty if there is information
  std::optional<std::string> driver;
  std::vector<nvml::Facts> facts;
  std::vector<nvml::Sample> samples;
};

GpuState state_of(nvml::Library const& library);

/// Returns the NVML library, which the whole program shares. The first call opens it.
nvml::Library const& gpu_library();

/// Returns the state of the GPUs at the first call. The first call must be before CUDA creates a context. In
/// a container the process cannot recognise its own context, so a context would look like that of another
/// process.
GpuState const& gpus_at_start();

/// Returns the names of throttle reasons. `reasons` is a bit mask of NVML; an unknown bit has the name
/// "other".
Names throttle_names(std::uint64_t reasons);

/// Returns the bits of `reasons` that slow the GPU against the user's wish. Idling and limits that a user
/// requested are removed.
std::uint64_t slowing(std::uint64_t reasons);

/// Returns throttle reasons as text: "sw_power_cap|hw_slowdown"; "none" without reasons.
std::string throttle_text(std::uint64_t reasons);

/// Adds the keys `nvidia_driver`, `gpus` and `gpus_reason` to the environment of a result file. `gpus` is
/// null if NVML reports nothing. `addresses` holds the PCI addresses of CUDA's devices in CUDA's order; it is
/// empty if CUDA was not queried.
void add_gpus(Json& environment, GpuState const& state, std::vector<std::string> const& addresses);

/// Used memory of a GPU, in bytes.
struct DeviceMemoryUse {
  std::int64_t allocated = 0;           ///< allocated by the arenas of trainers
  std::optional<std::int64_t> library;  ///< CUDA's context and modules, cuBLASLt, NCCL, graphs
};

/// Returns the bytes of GPU memory that CUDA and its libraries use. This is the memory used now, minus the
/// memory used at the start, minus `allocated`. It is correct only if the use of other processes did not
/// change. Returns nullopt if a value is unknown or the result is not positive.
std::optional<std::int64_t> library_bytes_of(std::optional<std::int64_t> at_start,
                                             std::optional<std::int64_t> now, std::int64_t allocated);

/// Returns the current memory use of the first devices; each figure is the maximum over these devices.
/// `allocated[i]` is the number of bytes that this process allocated on device i.
DeviceMemoryUse device_memory_use(std::vector<std::int64_t> const& allocated,
                                  std::vector<std::string> const& addresses);

/// Returns the NVML indices of the first `used` CUDA devices; empty if NVML does not know one of them.
std::vector<int> nvml_indices(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Returns one sentence for each reason to doubt measurements on the first `used` CUDA devices. A reason is
/// that another process uses a GPU, or that its clocks are throttled.
Names gpu_warnings(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// If the device is a GPU, prints the sentences of `gpu_warnings` to standard error.
void warn_of_gpus(DeviceFacts const& device, int used);

}  // namespace cli
}  // namespace programs
