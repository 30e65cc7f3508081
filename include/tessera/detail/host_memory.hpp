// SPDX-License-Identifier: Apache-2.0
// Reports how much memory and disk space this process can still use.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace host_memory {

/// Returns the first number in the file `path`, such as memory.max. If `name` is not empty, returns the first
/// number after the word `name` instead, as for memory.stat. Returns -1 if there is no number (the file
/// contains "max", or does not exist).
inline std::int64_t number_in(std::string const& path, std::string_view name = {}) {
  struct Open {
    std::FILE* file;
    ~Open() {
      if (file) std::fclose(file);
    }
  } const open{std::fopen(path.c_str(), "re")};
  if (!open.file) return -1;
  char word[128] = "";
  while (name != word)
    if (std::fscanf(open.file, "%127s", word) != 1) return -1;
  std::int64_t value = -1;
  return std::fscanf(open.file, "%" SCNd64, &value) == 1 ? value : -1;
}

/// Returns the value of the line `name` of /proc/meminfo, in bytes, or -1 if there is no such line. A line is
/// "Name: 123 kB".
inline std::int64_t meminfo(std::string const& name) {
  std::int64_t const kilobytes = number_in("/proc/meminfo", name + ":");
  return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/// Returns the number of bytes that this process can allocate without swapping. This number is the kernel's
/// estimate, or the unused part of the container's memory limit if that is smaller. Inactive page cache of
/// the container does not count as used. Returns the largest std::int64_t if the system reports neither
/// number. `cgroups` is the folder of the control group (cgroup) files.
inline std::int64_t available_host_memory(std::string const& cgroups = "/sys/fs/cgroup") {
  std::int64_t available = meminfo("MemAvailable");
  if (available < 0) available = std::numeric_limits<std::int64_t>::max();
  auto const within = [&](std::string const& folder, char const* limit_file, char const* used_file,
                          char const* cached) {
    std::int64_t const limit = number_in(folder + limit_file), charged = number_in(folder + used_file);
    std::int64_t const cache = std::max<std::int64_t>(number_in(folder + "/memory.stat", cached), 0);
    std::int64_t const used = std::max<std::int64_t>(charged - cache, 0);
    if (limit > 0 && limit < (std::int64_t{1} << 60) && charged >= 0 && limit - used < available)
      available = limit > used ? limit - used : 0;
  };
  within(cgroups, "/memory.max", "/memory.current", "inactive_file");
  within(cgroups + "/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  return available;
}

/// Returns the number of bytes of disk space that new files of this process can use in `folder`, or -1 if the
/// system does not report it.
inline std::int64_t free_bytes(std::string const& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return -1;
  auto const blocks = ::geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
  return static_cast<std::int64_t>(blocks) * static_cast<std::int64_t>(disk.f_frsize);
}

}  // namespace host_memory
namespace detail {
using namespace host_memory;
}  // namespace detail
}  // namespace v0
}  // namespace tessera
