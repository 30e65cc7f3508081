// SPDX-License-Identifier: Apache-2.0
// Describes the machine and the build for result files. Also reads CPU times and memory use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tessera/detail/affinity.hpp"
#include "tessera/train/any_trainer.hpp"

namespace programs {
using namespace tessera;
namespace cli {

using Json = nlohmann::ordered_json;

inline std::string trimmed(std::string_view text) {
  std::size_t const begin = text.find_first_not_of(" \t\r\n\"");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n\"") - begin + 1));
}

/// Returns the value of the first line "key : value" or "key=value" in a file; "" if there is none.
std::string value_in(char const* path, std::string_view key, char separator);

/// Returns the text as JSON; null if it is empty.
inline Json or_null(std::string const& text) { return text.empty() ? Json(nullptr) : Json(text); }
/// Returns the value as JSON; null if there is none.
template <class Value>
Json or_null(std::optional<Value> const& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string compiler_name();
/// Returns the widest instruction set that the compiler was allowed to use.
std::string compiled_for();
/// Returns how the CPU multiplies bfloat16: with the instructions "amx_bf16" or "avx512_bf16", or as "fp32"
/// after a conversion.
std::string bf16_products();
std::string eigen_version();

/// Returns the number of cores that this process may use.
inline int core_count() { return affinity::core_count(); }

/// Returns the instruction-set extensions of the CPU that affect speed, such as avx512f.
Json cpu_flags();

/// Returns the object `environment` of a result file, which describes the machine, the build and the device.
Json environment(DeviceFacts const& device);

/// Returns the CPU time in `usage` in seconds, user and system time together.
inline double cpu_seconds(rusage const& usage) {
  auto const seconds = [](timeval const& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
/// Returns the CPU time in seconds that all threads of this process have used so far.
inline double cpu_seconds() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? cpu_seconds(usage) : 0.0;
}

/// Returns the busy time in seconds since boot, summed over the cores that this process may use; nullopt if
/// the system does not report it. The resolution is 10 ms per core.
std::optional<double> busy_core_seconds();

/// Returns the seconds since the kernel started this process, with a resolution of 10 ms; nullopt if the
/// system does not report it.
std::optional<double> process_seconds();

/// Returns the peak resident memory of this process in bytes; -1 if the system does not report it.
std::int64_t peak_resident_bytes();

/// Resets the peak resident memory of this process to its current value. Does nothing if the system does not
/// allow it.
inline void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// Converts bytes to units of 2^20 bytes, which result files call MB.
inline double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

}  // namespace cli
}  // namespace programs
