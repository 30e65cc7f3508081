// SPDX-License-Identifier: Apache-2.0
#include "machine/gpus.hpp"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <unistd.h>
#include <utility>

#include "tessera/data/file_bytes.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

/// Returns the CUDA index of a GPU; nullopt if CUDA does not see it. `addresses` are the PCI addresses of
/// CUDA's devices, in CUDA's order.
std::optional<int> cuda_device(nvml::Facts const& gpu, std::vector<std::string> const& addresses) {
  for (std::size_t at = 0; gpu.pci_bus_id && at < addresses.size(); ++at)
    if (nvml::same_address(*gpu.pci_bus_id, addresses[at])) return static_cast<int>(at);
  return std::nullopt;
}

/// Returns the used memory in bytes of the GPU with the NVML index `index`; nullopt if it is unknown.
std::optional<std::int64_t> memory_used(GpuState const& state, int index) {
  for (std::size_t at = 0; at < state.facts.size(); ++at)
    if (state.facts[at].index == index) return state.samples[at].memory_used_bytes;
  return std::nullopt;
}

Json throttle_json(std::optional<std::uint64_t> const& reasons) {
  return reasons ? Json(throttle_names(*reasons)) : Json(nullptr);
}

Json processes_json(std::optional<std::vector<nvml::Process>> const& processes) {
  if (!processes) return nullptr;
  Json all = Json::array();
  for (nvml::Process const& process : *processes)
    if (process.pid != ::getpid())
      all.push_back({{"pid", process.pid}, {"memory_bytes", or_null(process.memory_bytes)}});
  return all;
}

}  // namespace

GpuState state_of(nvml::Library const& library) {
  GpuState state;
  state.reason = library.reason();
  state.driver = library.driver();
  for (int gpu = 0; gpu < library.size(); ++gpu) {
    state.facts.push_back(library.facts(gpu));
    state.samples.push_back(library.sample(gpu));
  }
  return state;
}

nvml::Library const& gpu_library() {
  static nvml::Library const library;
  return library;
}

GpuState const& gpus_at_start() {
  static GpuState const state = state_of(gpu_library());
  return state;
}

Names throttle_names(std::uint64_t reasons) {
  Names names;
  for (auto const& reason : nvml::throttle_reasons) {
    if ((reasons & reason.bit) != 0) names.emplace_back(reason.name);
    reasons &= ~reason.bit;
  }
  if (reasons != 0) names.emplace_back("other");
  return names;
}

std::uint64_t slowing(std::uint64_t reasons) {
  for (auto const& reason : nvml::throttle_reasons)
    if (!reason.slows) reasons &= ~reason.bit;
  return reasons;
}

std::string throttle_text(std::uint64_t reasons) {
  return reasons == 0 ? "none" : joined(throttle_names(reasons), "|");
}

void add_gpus(Json& environment, GpuState const& state, std::vector<std::string> const& addresses) {
  environment["nvidia_driver"] = or_null(state.driver);
  environment["gpus_reason"] = or_null(state.reason);
  environment["gpus"] = nullptr;
  if (!state.reason.empty()) return;
  environment["gpus"] = Json::array();
  for (std::size_t at = 0; at < state.facts.size(); ++at) {
    nvml::Facts const& gpu = state.facts[at];
    nvml::Sample const& now = state.samples[at];
    environment["gpus"].push_back({{"index", gpu.index},
                                   {"cuda_device", or_null(cuda_device(gpu, addresses))},
                                   {"name", or_null(gpu.name)},
                                   {"uuid", or_null(gpu.uuid)},
                                   {"pci_bus_id", or_null(gpu.pci_bus_id)},
                                   {"memory_bytes", or_null(gpu.memory_bytes)},
                                   {"memory_used_bytes", or_null(now.memory_used_bytes)},
                                   {"power_limit_w", or_null(gpu.power_limit_w)},
                                   {"default_power_limit_w", or_null(gpu.default_power_limit_w)},
                                   {"power_w", or_null(now.power_w)},
                                   {"ecc", or_null(gpu.ecc)},
                                   {"mig", or_null(gpu.mig)},
                                   {"persistence", or_null(gpu.persistence)},
                                   {"sm_clock_mhz", or_null(now.sm_clock_mhz)},
                                   {"max_sm_clock_mhz", or_null(gpu.max_sm_clock_mhz)},
                                   {"memory_clock_mhz", or_null(now.memory_clock_mhz)},
                                   {"max_memory_clock_mhz", or_null(gpu.max_memory_clock_mhz)},
                                   {"util_pct", or_null(now.utilization_pct)},
                                   {"temp_c", or_null(now.temperature_c)},
                                   {"throttle_reasons", throttle_json(now.throttle_reasons)},
                                   {"processes", processes_json(gpu.processes)}});
  }
}

std::optional<std::int64_t> library_bytes_of(std::optional<std::int64_t> at_start,
                                             std::optional<std::int64_t> now, std::int64_t allocated) {
  if (!at_start || !now) return std::nullopt;
  std::int64_t const own = *now - *at_start - allocated;
  return own > 0 ? std::optional(own) : std::nullopt;
}

DeviceMemoryUse device_memory_use(std::vector<std::int64_t> const& allocated,
                                  std::vector<std::string> const& addresses) {
  GpuState const& start = gpus_at_start();
  std::vector<int> const gpus = nvml_indices(start, addresses, static_cast<int>(allocated.size()));
  DeviceMemoryUse most;
  bool known = !gpus.empty();
  for (std::size_t rank = 0; rank < allocated.size(); ++rank) {
    most.allocated = std::max(most.allocated, allocated[rank]);
    if (!known) continue;
    auto const library = library_bytes_of(
        memory_used(start, gpus[rank]), gpu_library().sample(gpus[rank]).memory_used_bytes, allocated[rank]);
    known = library.has_value();
    most.library = std::max(most.library, library);
  }
  if (!known) most.library.reset();
  return most;
}

std::vector<int> nvml_indices(GpuState const& state, std::vector<std::string> const& addresses, int used) {
  std::vector<int> found;
  for (int device = 0; device < used; ++device)
    for (nvml::Facts const& gpu : state.facts)
      if (cuda_device(gpu, addresses) == device) found.push_back(gpu.index);
  return found.size() == static_cast<std::size_t>(used) ? found : std::vector<int>();
}

Names gpu_warnings(GpuState const& state, std::vector<std::string> const& addresses, int used) {
  Names warnings;
  for (std::size_t at = 0; at < state.facts.size(); ++at) {
    nvml::Facts const& gpu = state.facts[at];
    std::optional<int> const device = cuda_device(gpu, addresses);
    if (!device || *device >= used) continue;
    std::string const name = "GPU " + std::to_string(*device);
    Names others;
    for (nvml::Process const& process : gpu.processes.value_or(std::vector<nvml::Process>()))
      if (process.pid != ::getpid())
        others.push_back(std::to_string(process.pid) +
                         (process.memory_bytes ? " with " + grouped(*process.memory_bytes >> 20) + " MiB"
                                               : std::string()));
    if (!others.empty())
      warnings.push_back(name + " is in use by " +
                         (others.size() == 1 ? "another process" : "other processes") + " (" +
                         joined(others) + "), which affects the measured times");
    if (std::uint64_t const reasons = slowing(state.samples[at].throttle_reasons.value_or(0)); reasons != 0)
      warnings.push_back(name + " holds its clocks down before the first step (" + throttle_text(reasons) +
                         "); see monitor and nvidia-smi -q -d PERFORMANCE");
  }
  return warnings;
}

void warn_of_gpus(DeviceFacts const& device, int used) {
  if (device.device != Device::cuda) return;
  for (std::string const& warning : gpu_warnings(gpus_at_start(), device.addresses, used))
    std::cerr << "warning: " << files::printable(warning, warning.size()) << std::endl;
}

}  // namespace cli
}  // namespace programs
