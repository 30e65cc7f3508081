// SPDX-License-Identifier: Apache-2.0
// What a program runs on and was built with, for results and reports, and what it uses of the machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

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

/// The value of the first line "key : value" or "key=value" of a file; empty when there is none.
std::string value_in(char const* path, std::string_view key, char separator);

/// A text, or null where the machine does not say.
inline Json or_null(std::string const& text) { return text.empty() ? Json(nullptr) : Json(text); }
/// A value, or null.
template <class Value>
Json or_null(std::optional<Value> const& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string compiler_name();
/// The widest instruction set that the compiler was allowed to use.
std::string compiled_for();
/// What multiplies bfloat16 on the CPU: "amx_bf16" or "avx512_bf16", those instructions, or "fp32", after
/// conversion.
std::string bf16_products();
std::string eigen_version();

/// Cores that this process may use.
inline int core_count() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

/// The CPU's flags that matter for speed, as far as it has them.
Json cpu_flags();

/// The environment of a result file about a device.
Json environment(DeviceFacts const& device);

/// CPU seconds of what was used.
inline double cpu_seconds(rusage const& usage) {
  auto const seconds = [](timeval const& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
/// Of this process so far, all threads.
inline double cpu_seconds() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? cpu_seconds(usage) : 0.0;
}

/// Returns the seconds for which the cores available to this process have been busy since boot, with a
/// resolution of 10 ms per core. Returns nothing if the system does not report it.
std::optional<double> busy_core_seconds();

/// Seconds since the kernel started this process, to its 10 ms; nothing where the system does not say.
std::optional<double> process_seconds();

/// The most memory that this process has held at once, in bytes; -1 when the system does not say.
std::int64_t peak_resident_bytes();

/// Forgets the peak, where the system lets one, so that the next one belongs to what comes next.
inline void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// 2^20 bytes, the mb of results.
inline double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

}  // namespace cli
}  // namespace programs
