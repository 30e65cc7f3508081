// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's driver says of the GPUs, for results, reports and warnings.
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

/// The GPUs at one moment.
struct GpuState {
  std::string reason;  ///< why there is nothing to say; empty otherwise
  std::optional<std::string> driver;
  std::vector<nvml::Facts> facts;
  std::vector<nvml::Sample> samples;
};

GpuState state_of(nvml::Library const& library);

/// NVML for the whole program, opened when first asked for.
nvml::Library const& gpu_library();

/// The state when this was first called. Ask before CUDA takes a context: in a container that is not to be
/// told from the context of another process.
GpuState const& gpus_at_start();

/// The reasons by their names; "other" for those that have none here.
Names throttle_names(std::uint64_t reasons);

/// Those of them that slow: all but what merely says that the GPU is idle, or that it was asked for.
std::uint64_t slowing(std::uint64_t reasons);

/// "sw_power_cap|hw_slowdown", "none".
std::string throttle_text(std::uint64_t reasons);

/// For an environment: `nvidia_driver`, `gpus` (null where NVML says nothing) and `gpus_reason`. `addresses`
/// are those of CUDA's devices in CUDA's order, as far as it was asked.
void add_gpus(Json& environment, GpuState const& state, std::vector<std::string> const& addresses);

/// Memory of a GPU, in bytes.
struct DeviceMemoryUse {
  std::int64_t allocated = 0;           ///< by arenas
  std::optional<std::int64_t> library;  ///< what else this process brought there: CUDA's context and modules,
                                        ///< cuBLASLt's and NCCL's own memory, graphs
};

/// What of a GPU's memory is the libraries': what is used beyond what was used at the start and what is
/// allocated, as if the memory of other processes had stayed the same. Nothing where one of them is not
/// known, or others have given more back since.
std::optional<std::int64_t> library_bytes_of(std::optional<std::int64_t> at_start,
                                             std::optional<std::int64_t> now, std::int64_t allocated);

/// Of the first devices now, each figure the largest of one; `allocated` is known of each.
DeviceMemoryUse device_memory_use(std::vector<std::int64_t> const& allocated,
                                  std::vector<std::string> const& addresses);

/// NVML's numbers of the first `used` CUDA devices; none where not all of them are known to it.
std::vector<int> nvml_indices(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// What makes figures of the first `used` CUDA devices doubtful: other processes there, and clocks held down.
/// A sentence each.
Names gpu_warnings(GpuState const& state, std::vector<std::string> const& addresses, int used);

/// Prints them to stderr, where the device is a GPU.
void warn_of_gpus(DeviceFacts const& device, int used);

}  // namespace cli
}  // namespace programs
