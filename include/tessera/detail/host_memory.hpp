// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace tessera::inline v0 {
namespace detail {

/// The first number of a file such as memory.max, or -1 when there is none ("max", no file).
inline std::int64_t number_in(char const* path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// A line "Name:   123 kB" of /proc/meminfo in bytes, or -1.
inline std::int64_t meminfo(std::string const& name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word)
    if (word == name + ":") {
      std::int64_t kilobytes = 0;
      return file >> kilobytes ? kilobytes * 1024 : -1;
    }
  return -1;
}

/// Bytes that can be allocated without swapping: the kernel's own estimate, within the container's limit
/// where there is one. The largest number when nothing can be read.
inline std::int64_t available_host_memory() {
  std::int64_t available = meminfo("MemAvailable");
  if (available < 0) available = std::numeric_limits<std::int64_t>::max();
  auto const within = [&](char const* limit_file, char const* used_file) {
    std::int64_t const limit = number_in(limit_file), used = number_in(used_file);
    if (limit > 0 && limit < (std::int64_t{1} << 60) && used >= 0 && limit - used < available)
      available = limit > used ? limit - used : 0;
  };
  within("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
  within("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  return available;
}

}  // namespace detail
}  // namespace tessera::inline v0
