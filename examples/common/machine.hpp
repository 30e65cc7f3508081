// SPDX-License-Identifier: Apache-2.0
// What a program runs on and was built with, for results and reports, and what it uses of the machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <vector>

// The version alone: all of Eigen would cost a second a source.
#if __has_include(<Eigen/Version>)
#include <Eigen/Version>
#else
#include <Eigen/src/Core/util/Macros.h>
#endif
#include <nlohmann/json.hpp>

#include "tessera/detail/host_memory.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/version.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

using Json = nlohmann::ordered_json;

inline std::string trimmed(std::string_view text) {
  std::size_t const begin = text.find_first_not_of(" \t\r\n\"");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n\"") - begin + 1));
}

/// The value of the first line "key : value" or "key=value" of a file; empty when there is none.
inline std::string value_in(char const* path, std::string_view key, char separator) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::size_t const at = line.find(separator);
    if (at != line.npos && trimmed(std::string_view(line).substr(0, at)) == key)
      return trimmed(std::string_view(line).substr(at + 1));
  }
  return {};
}

/// A text, or null where the machine does not say.
inline Json or_null(std::string const& text) { return text.empty() ? Json(nullptr) : Json(text); }

inline std::string compiler_name() {
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

/// The widest instruction set that the compiler was allowed to use.
inline std::string compiled_for() {
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

inline std::string eigen_version() {
  return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

/// Cores that this process may use.
inline int core_count() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

/// The CPU's flags that matter for speed, as far as it has them.
inline Json cpu_flags() {
  constexpr std::string_view wanted[] = {"sse2",        "sse4_2",      "avx",         "avx2",     "fma",
                                         "f16c",        "avx512f",     "avx512bw",    "avx512vl", "avx512dq",
                                         "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "amx_tile"};
  std::istringstream words(value_in("/proc/cpuinfo", "flags", ':'));
  std::vector<std::string> has;
  for (std::string word; words >> word;) has.push_back(word);
  Json flags = Json::array();
  for (std::string_view const flag : wanted)
    if (std::find(has.begin(), has.end(), flag) != has.end()) flags.push_back(flag);
  return flags;
}

/// The environment of a result file about a device.
inline Json environment(DeviceFacts const& device) {
  Json found = Json::object();
  found["tessera"] = version;
#if defined(TESSERA_GIT_HASH)
  found["git_hash"] = or_null(TESSERA_GIT_HASH);
#else
  found["git_hash"] = nullptr;
#endif
  found["device"] = device.device;
  found["device_models"] = device.models;
  found["compiler"] = compiler_name();
#if defined(TESSERA_COMPILE_FLAGS)
  found["compile_flags"] = or_null(TESSERA_COMPILE_FLAGS);
#else
  found["compile_flags"] = nullptr;
#endif
  found["compiled_for"] = compiled_for();
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
  std::int64_t const memory = v0::detail::meminfo("MemTotal");
  found["memory_bytes"] = memory > 0 ? Json(memory) : Json(nullptr);
  found["memory_available_bytes"] = v0::detail::available_host_memory();
  return found;
}

/// CPU seconds of this process so far, all threads.
inline double cpu_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0.0;
  auto const seconds = [](timeval const& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The most memory that this process has held at once, in bytes; -1 when the system does not say.
inline std::int64_t peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  std::int64_t kilobytes = 0;
  while (file >> word)
    if (word == "VmHWM:") return file >> kilobytes ? kilobytes * 1024 : -1;
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) * 1024 : -1;
}

/// Forgets the peak, where the system lets one, so that the next one belongs to what comes next.
inline void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// 2^20 bytes, the mb of results.
inline double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

}  // namespace cli
}  // namespace v0
}  // namespace tessera
