// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <sys/utsname.h>
#include <vector>

// Only Eigen's version header is included. All of Eigen would lengthen each compilation by a second.
#if __has_include(<Eigen/Version>)
#include <Eigen/Version>
#else
#include <Eigen/src/Core/util/Macros.h>
#endif

#include "tessera/backend/cpu/tile_grant.hpp"
#include "tessera/config.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/detail/host_memory.hpp"
#include "tessera/version.hpp"

#include "machine/build_facts.hpp"
#include "machine/gpus.hpp"

namespace programs {
using namespace tessera;
namespace cli {

std::string value_in(char const* path, std::string_view key, char separator) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::size_t const at = line.find(separator);
    if (at != line.npos && trimmed(std::string_view(line).substr(0, at)) == key)
      return trimmed(std::string_view(line).substr(at + 1));
  }
  return {};
}

std::string compiler_name() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

std::string compiled_for() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__AVX__)
  return "avx";
#elif defined(__SSE2__)
  return "sse2";
#else
  return "generic";
#endif
}

std::string bf16_products() {
  if (cpu::tiles_granted()) return "amx_bf16";
#if defined(TESSERA_AVX512_BF16)
  return "avx512_bf16";
#else
  return "fp32";
#endif
}

std::string eigen_version() {
  return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

Json cpu_flags() {
  constexpr std::string_view cpu_features[] = {
      "sse2",     "sse4_2",   "avx",         "avx2",        "fma",         "f16c",     "avx512f", "avx512bw",
      "avx512vl", "avx512dq", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "amx_tile"};
  std::istringstream words(value_in("/proc/cpuinfo", "flags", ':'));
  std::vector<std::string> has;
  for (std::string word; words >> word;) has.push_back(word);
  Json flags = Json::array();
  for (std::string_view const flag : cpu_features)
    if (std::find(has.begin(), has.end(), flag) != has.end()) flags.push_back(flag);
  return flags;
}

Json environment(DeviceFacts const& device) {
  Json found = Json::object();
  found["tessera"] = version;
  found["git_hash"] = or_null(git_hash);
  found["device"] = name_of(device.device);
  found["device_models"] = device.models;
  found["compiler"] = compiler_name();
  found["compile_flags"] = or_null(compile_flags);
  found["compiled_for"] = compiled_for();
  found["cpu_bf16_products"] = bf16_products();
#if defined(NDEBUG)
  found["assertions"] = false;
#else
  found["assertions"] = true;
#endif
  found["libraries"] = {{"eigen", eigen_version()},
                        {"nlohmann_json", std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + "." +
                                              std::to_string(NLOHMANN_JSON_VERSION_MINOR) + "." +
                                              std::to_string(NLOHMANN_JSON_VERSION_PATCH)},
                        {"cuda", or_null(device.runtime)},
                        {"cuda_driver", or_null(device.driver)},
                        {"cublas", or_null(device.products)},
                        {"nccl", or_null(device.transport)},
                        {"cudnn", nullptr}};
  utsname names{};
  bool const named = ::uname(&names) == 0;
  found["os"] = or_null(value_in("/etc/os-release", "PRETTY_NAME", '='));
  found["kernel"] = named ? Json(std::string(names.sysname) + " " + names.release) : Json(nullptr);
  found["architecture"] = named ? Json(names.machine) : Json(nullptr);
  found["host"] = named ? Json(names.nodename) : Json(nullptr);
  found["cpu"] = or_null(value_in("/proc/cpuinfo", "model name", ':'));
  found["cpu_flags"] = cpu_flags();
  found["cores"] = core_count();
  std::int64_t const memory = host_memory::meminfo("MemTotal");
  found["memory_bytes"] = memory > 0 ? Json(memory) : Json(nullptr);
  found["memory_available_bytes"] = host_memory::available_host_memory();
  add_gpus(
      found,
      device.device == Device::cuda ? gpus_at_start() : GpuState{"not asked, the device is cpu", {}, {}, {}},
      device.addresses);
  return found;
}

std::optional<double> busy_core_seconds() {
  // A line of /proc/stat, see proc_stat(5): "cpu0 user nice system idle iowait irq softirq steal ...", in
  // clock ticks.
  affinity::Cores const mine = affinity::allowed_cores();
  std::ifstream file("/proc/stat");
  double ticks = 0.0;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    int core = -1;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft_irq = 0, steal = 0;
    if (std::sscanf(line.c_str(), "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &core, &user, &nice, &system,
                    &idle, &waiting, &irq, &soft_irq, &steal) != 9 ||
        !std::binary_search(mine.begin(), mine.end(), core))
      continue;
    ticks += user + nice + system + irq + soft_irq + steal;
    found = true;
  }
  return found ? std::optional(ticks / static_cast<double>(::sysconf(_SC_CLK_TCK))) : std::nullopt;
}

std::optional<double> process_seconds() {
  // Reads field 22 of /proc/self/stat, see proc_pid_stat(5): the start time in clock ticks since boot. Field
  // 2 is a file name in parentheses that can contain spaces, so the fields are counted from the last ')'.
  std::ifstream file("/proc/self/stat");
  std::string line, field;
  timespec now{};
  std::getline(file, line, '\0');
  std::size_t const name_end = line.rfind(')');
  if (name_end == line.npos || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  for (int index = 3; index < 22; ++index) fields >> field;
  double ticks = 0.0;
  if (!(fields >> ticks)) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::int64_t peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  std::int64_t kilobytes = 0;
  while (file >> word)
    if (word == "VmHWM:") return file >> kilobytes ? kilobytes * 1024 : -1;
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) * 1024 : -1;
}

}  // namespace cli
}  // namespace programs
