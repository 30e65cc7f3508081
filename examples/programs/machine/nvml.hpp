// SPDX-License-Identifier: Apache-2.0
// Provides NVML, the library of NVIDIA's driver that reads power, clocks and temperatures. This file declares
// the functions of NVML itself and loads the library at run time, so neither the build nor the machine needs
// CUDA or a GPU. A value is absent, never 0, if the GPU, the driver or a permission does not provide it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"

namespace programs {
using namespace tessera;
namespace nvml {

/// A process with a context on a GPU. `pid` is the driver's process id, which differs from the process id
/// inside a container.
struct Process {
  std::int64_t pid = 0;
  std::optional<std::int64_t> memory_bytes;
};

/// The properties of a GPU, its settings and its processes.
struct Facts {
  int index = 0;  ///< NVML's index, in the order of PCI addresses; CUDA_VISIBLE_DEVICES does not change it
  std::optional<std::string> name, uuid, pci_bus_id;
  std::optional<std::int64_t> memory_bytes;
  std::optional<double> power_limit_w, default_power_limit_w;
  std::optional<std::int64_t> max_sm_clock_mhz, max_memory_clock_mhz;
  std::optional<bool> ecc, mig, persistence;
  std::optional<std::vector<Process>> processes;
};

/// The activity of a GPU at one moment.
struct Sample {
  /// share of busy time over the driver's last period, which is 1/6 s to 1 s
  std::optional<std::int64_t> utilization_pct;
  std::optional<std::int64_t> memory_utilization_pct;  ///< share of time in which memory was read or written
  std::optional<std::int64_t> memory_used_bytes, temperature_c, sm_clock_mhz, memory_clock_mhz;
  /// like power.draw of nvidia-smi: since Ampere it is mostly a mean over a second
  std::optional<double> power_w;
  std::optional<double> power_instant_w, power_average_w;
  std::optional<double> energy_j;  ///< since the driver was loaded
  std::optional<std::uint64_t> throttle_reasons;
};

/// A reason for throttled clocks, as a bit of Sample::throttle_reasons. `slows` says whether the reason slows
/// the GPU against the user's wish. `slows` is false for idling and for limits that a user requested.
struct ThrottleReason {
  std::uint64_t bit;
  std::string_view name;
  bool slows;
};
inline constexpr ThrottleReason throttle_reasons[] = {
    {0x1, "gpu_idle", false},
    {0x2, "applications_clocks_setting", false},
    {0x4, "sw_power_cap", true},
    {0x8, "hw_slowdown", true},
    {0x10, "sync_boost", false},
    {0x20, "sw_thermal_slowdown", true},
    {0x40, "hw_thermal_slowdown", true},
    {0x80, "hw_power_brake_slowdown", true},
    {0x100, "display_clock_setting", false},
    {0x200, "board_limit", true},
    {0x400, "reliability", true},
};

/// Returns whether two PCI addresses "domain:bus:device.function" name the same GPU. The function compares
/// numbers instead of texts, because CUDA writes the domain with four digits and NVML with eight.
inline bool same_address(std::string const& one, std::string const& other) {
  unsigned a[3] = {}, b[3] = {};
  auto const read = [](std::string const& text, unsigned(&parts)[3]) {
    return std::sscanf(text.c_str(), "%x:%x:%x", &parts[0], &parts[1], &parts[2]) == 3;
  };
  return read(one, a) && read(other, b) && a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

namespace detail {

inline constexpr int success = 0, insufficient_size = 7;
inline constexpr unsigned temperature_gpu = 0, clock_sm = 1, clock_memory = 2;
inline constexpr unsigned field_power_average = 185, field_power_instant = 186;
inline constexpr unsigned long long not_available = ~0ull;

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
union Value {
  double real;
  unsigned whole;
  unsigned long long wide;
  long long wide_signed;
  int whole_signed;
  unsigned short small;
};
struct FieldValue {
  unsigned field, scope;  // in queries of power, scope 0 is the whole GPU
  long long timestamp, latency;
  int type, status;
  Value value;
};
static_assert(sizeof(PciInfo) == 68 && sizeof(ProcessInfo) == 24 && sizeof(FieldValue) == 40 &&
              sizeof(Memory) == 24);

/// The functions of NVML that this file uses; null if the library lacks one. Structures are passed as void*,
/// so that a library that replaces NVML in tests needs none of the types in this file.
struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  char const* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  int (*name)(void*, char*, unsigned) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*pci_info)(void*, void*) = nullptr;
  int (*memory_info)(void*, void*) = nullptr;
  int (*utilization)(void*, void*) = nullptr;
  int (*power_usage)(void*, unsigned*) = nullptr;
  int (*enforced_limit)(void*, unsigned*) = nullptr;
  int (*default_limit)(void*, unsigned*) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;
  int (*temperature)(void*, unsigned, unsigned*) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*max_clock)(void*, unsigned, unsigned*) = nullptr;
  int (*throttle)(void*, unsigned long long*) = nullptr;
  int (*ecc)(void*, unsigned*, unsigned*) = nullptr;
  int (*mig)(void*, unsigned*, unsigned*) = nullptr;
  int (*persistence)(void*, unsigned*) = nullptr;
  int (*processes)(void*, unsigned*, void*) = nullptr;
  int (*fields)(void*, int, void*) = nullptr;
};

}  // namespace detail

/// The NVML library, open while the object exists. The library creates no CUDA context and does not block
/// other users of the GPUs.
class Library {
 public:
  /// Opens the driver's library. If the environment variable TESSERA_NVML is set, opens the file that it
  /// names.
  Library() : Library(chosen()) {}
  explicit Library(std::string const& file) { open(file); }
  Library(Library const&) = delete;
  Library& operator=(Library const&) = delete;
  ~Library() {
    if (reason_.empty() && call_.shutdown != nullptr) call_.shutdown();
  }

  explicit operator bool() const { return reason_.empty(); }
  /// Returns why NVML is not available; empty if it is.
  std::string const& reason() const { return reason_; }
  /// Returns the number of GPUs.
  int size() const { return static_cast<int>(devices_.size()); }
  /// Returns the driver version, such as "580.65.06".
  std::optional<std::string> driver() const {
    char text[96] = "";
    if (!*this || call_.driver_version == nullptr ||
        call_.driver_version(text, sizeof text - 1) != detail::success)
      return std::nullopt;
    return text;
  }

  Facts facts(int index) const {
    void* const device = devices_.at(static_cast<std::size_t>(index));
    Facts found;
    found.index = index;
    found.name = text(call_.name, device);
    found.uuid = text(call_.uuid, device);
    if (auto const pci = read<detail::PciInfo>(call_.pci_info, device))
      found.pci_bus_id = std::string(pci->bus_id, ::strnlen(pci->bus_id, sizeof pci->bus_id));
    if (auto const memory = read<detail::Memory>(call_.memory_info, device))
      found.memory_bytes = static_cast<std::int64_t>(memory->total);
    found.power_limit_w = thousandths(read<unsigned>(call_.enforced_limit, device));
    found.default_power_limit_w = thousandths(read<unsigned>(call_.default_limit, device));
    found.max_sm_clock_mhz = read<unsigned>(call_.max_clock, device, detail::clock_sm);
    found.max_memory_clock_mhz = read<unsigned>(call_.max_clock, device, detail::clock_memory);
    found.ecc = current(call_.ecc, device);
    found.mig = current(call_.mig, device);
    if (auto const mode = read<unsigned>(call_.persistence, device)) found.persistence = *mode != 0;
    found.processes = processes(device);
    return found;
  }

  Sample sample(int index) const {
    void* const device = devices_.at(static_cast<std::size_t>(index));
    Sample now;
    if (auto const used = read<detail::Utilization>(call_.utilization, device)) {
      now.utilization_pct = used->gpu;
      now.memory_utilization_pct = used->memory;
    }
    if (auto const memory = read<detail::Memory>(call_.memory_info, device))
      now.memory_used_bytes = static_cast<std::int64_t>(memory->used);
    now.temperature_c = read<unsigned>(call_.temperature, device, detail::temperature_gpu);
    now.sm_clock_mhz = read<unsigned>(call_.clock, device, detail::clock_sm);
    now.memory_clock_mhz = read<unsigned>(call_.clock, device, detail::clock_memory);
    now.power_w = thousandths(read<unsigned>(call_.power_usage, device));
    if (call_.fields != nullptr && device != nullptr) {
      detail::FieldValue power[2] = {};
      power[0].field = detail::field_power_instant;
      power[1].field = detail::field_power_average;
      power[0].status = power[1].status = -1;  // counts as failed until the library sets it
      if (call_.fields(device, 2, power) == detail::success) {
        now.power_instant_w = watts(power[0]);
        now.power_average_w = watts(power[1]);
      }
    }
    now.energy_j = thousandths(read<unsigned long long>(call_.energy, device));
    now.throttle_reasons = read<unsigned long long>(call_.throttle, device);
    return now;
  }

 private:
  static std::string chosen() {
    char const* const file = std::getenv("TESSERA_NVML");
    return file == nullptr || *file == '\0' ? "libnvidia-ml.so.1" : file;
  }

  void open(std::string const& file) {
    // never closed, because unloading is possibly unsafe
    void* const handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      char const* const error_text = ::dlerror();
      reason_ = "cannot load NVML, the library of NVIDIA's driver: " +
                (error_text ? std::string(error_text) : file);
      return;
    }
    auto const load = [&]<class Function>(Function*& function, std::initializer_list<char const*> names) {
      for (char const* name : names)
        if (function == nullptr) function = reinterpret_cast<Function*>(::dlsym(handle, name));
    };
    // A suffix such as _v2 is the version of the function's arguments. Functions without a suffix can exist
    // too, with older arguments.
    load(call_.init, {"nvmlInit_v2"});
    load(call_.shutdown, {"nvmlShutdown"});
    load(call_.error_string, {"nvmlErrorString"});
    load(call_.driver_version, {"nvmlSystemGetDriverVersion"});
    load(call_.count, {"nvmlDeviceGetCount_v2"});
    load(call_.handle, {"nvmlDeviceGetHandleByIndex_v2"});
    load(call_.name, {"nvmlDeviceGetName"});
    load(call_.uuid, {"nvmlDeviceGetUUID"});
    load(call_.pci_info, {"nvmlDeviceGetPciInfo_v3"});
    load(call_.memory_info, {"nvmlDeviceGetMemoryInfo"});
    load(call_.utilization, {"nvmlDeviceGetUtilizationRates"});
    load(call_.power_usage, {"nvmlDeviceGetPowerUsage"});
    load(call_.enforced_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
    load(call_.default_limit, {"nvmlDeviceGetPowerManagementDefaultLimit"});
    load(call_.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
    load(call_.temperature, {"nvmlDeviceGetTemperature"});
    load(call_.clock, {"nvmlDeviceGetClockInfo"});
    load(call_.max_clock, {"nvmlDeviceGetMaxClockInfo"});
    load(call_.throttle,
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    load(call_.ecc, {"nvmlDeviceGetEccMode"});
    load(call_.mig, {"nvmlDeviceGetMigMode"});
    load(call_.persistence, {"nvmlDeviceGetPersistenceMode"});
    load(call_.processes,
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    load(call_.fields, {"nvmlDeviceGetFieldValues"});
    if (call_.init == nullptr || call_.count == nullptr || call_.handle == nullptr) {
      reason_ = file + " lacks functions of NVML; it is not NVML, or it is from a very old driver";
      return;
    }
    if (int const status = call_.init(); status != detail::success) {
      reason_ = failure_text("nvmlInit_v2", status);
      return;
    }
    unsigned count = 0;
    if (int const status = call_.count(&count); status != detail::success) {
      reason_ = failure_text("nvmlDeviceGetCount_v2", status);
      if (call_.shutdown != nullptr) call_.shutdown();
      return;
    }
    for (unsigned index = 0; index < count; ++index) {
      void* device = nullptr;  // stays null for a lost or inaccessible GPU, which keeps its index
      if (call_.handle(index, &device) != detail::success) device = nullptr;
      devices_.push_back(device);
    }
  }

  std::string failure_text(std::string const& function, int status) const {
    char const* const text = call_.error_string == nullptr ? nullptr : call_.error_string(status);
    return "NVML's " + function + " returns " + std::to_string(status) +
           (text ? std::string(", ") + text : "");
  }

  /// Calls an NVML function and returns the value that the function writes to its last argument; nullopt if
  /// the call fails.
  template <class Result, class Function, class... Between>
  static std::optional<Result> read(Function* function, void* device, Between... between) {
    Result result{};
    if (function == nullptr || device == nullptr || function(device, between..., &result) != detail::success)
      return std::nullopt;
    return result;
  }
  static std::optional<std::string> text(int (*function)(void*, char*, unsigned), void* device) {
    char found[96] = "";
    if (function == nullptr || device == nullptr ||
        function(device, found, sizeof found - 1) != detail::success)
      return std::nullopt;
    return found;
  }
  /// Returns whether a mode such as ECC is on now. NVML also reports whether the mode will be on after the
  /// next restart; this function ignores this value.
  static std::optional<bool> current(int (*function)(void*, unsigned*, unsigned*), void* device) {
    unsigned now = 0, later = 0;
    if (function == nullptr || device == nullptr || function(device, &now, &later) != detail::success)
      return std::nullopt;
    return now != 0;
  }
  /// Returns a thousandth of the number: milliwatts become watts, millijoules become joules.
  template <class Number>
  static std::optional<double> thousandths(std::optional<Number> const& number) {
    return number ? std::optional(1e-3 * static_cast<double>(*number)) : std::nullopt;
  }
  static std::optional<double> watts(detail::FieldValue const& field) {
    if (field.status != detail::success) return std::nullopt;
    switch (field.type) {
      case 0:
        return 1e-3 * field.value.real;
      case 1:
        return 1e-3 * field.value.whole;
      case 2:
      case 3:
        return 1e-3 * static_cast<double>(field.value.wide);
      default:
        return std::nullopt;
    }
  }

  std::optional<std::vector<Process>> processes(void* device) const {
    if (call_.processes == nullptr || device == nullptr) return std::nullopt;
    std::vector<detail::ProcessInfo> all(16);
    for (int attempt = 0; attempt < 4; ++attempt) {  // the number of processes may grow between two calls
      auto count = static_cast<unsigned>(all.size());
      int const status = call_.processes(device, &count, all.data());
      if (status == detail::insufficient_size) {
        all.resize(std::size_t{count} * 2 + 16);
        continue;
      }
      if (status != detail::success) return std::nullopt;
      std::vector<Process> found;
      for (std::size_t i = 0; i < count && i < all.size(); ++i)
        found.push_back({all[i].pid, all[i].memory == detail::not_available
                                         ? std::nullopt
                                         : std::optional(static_cast<std::int64_t>(all[i].memory))});
      return found;
    }
    return std::nullopt;
  }

  detail::Functions call_;
  std::string reason_;
  std::vector<void*> devices_;
};

}  // namespace nvml
}  // namespace programs
