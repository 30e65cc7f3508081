// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace tessera::inline v0 {
namespace detail {

/// The first number of a file such as memory.max, or -1 when there is none ("max", no file).
inline std::int64_t number_in(std::string const& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// The number after a word of a file such as memory.stat, or -1 when there is none.
inline std::int64_t number_after(std::string const& path, std::string const& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word)
    if (word == name) {
      std::int64_t value = 0;
      return file >> value ? value : -1;
    }
  return -1;
}

/// A line "Name:   123 kB" of /proc/meminfo in bytes, or -1.
inline std::int64_t meminfo(std::string const& name) {
  std::int64_t const kilobytes = number_after("/proc/meminfo", name + ":");
  return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/// Bytes that can be allocated without swapping: the kernel's own estimate, within the container's limit
/// where there is one. What files left in the container's page cache unused does not count as taken. The
/// largest number when nothing can be read. `cgroups`: where the container's files lie.
inline std::int64_t available_host_memory(std::string const& cgroups = "/sys/fs/cgroup") {
  std::int64_t available = meminfo("MemAvailable");
  if (available < 0) available = std::numeric_limits<std::int64_t>::max();
  auto const within = [&](std::string const& folder, char const* limit_file, char const* used_file,
                          char const* cached) {
    std::int64_t const limit = number_in(folder + limit_file), taken = number_in(folder + used_file);
    std::int64_t const cache = std::max<std::int64_t>(number_after(folder + "/memory.stat", cached), 0);
    std::int64_t const used = std::max<std::int64_t>(taken - cache, 0);
    if (limit > 0 && limit < (std::int64_t{1} << 60) && taken >= 0 && limit - used < available)
      available = limit > used ? limit - used : 0;
  };
  within(cgroups, "/memory.max", "/memory.current", "inactive_file");
  within(cgroups + "/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  return available;
}

}  // namespace detail
}  // namespace tessera::inline v0
