// SPDX-License-Identifier: Apache-2.0
// Defines the memory limits of plans: their flags, this machine's memory as the default, and a sentence that
// states the limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/plan/report.hpp"

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// The flags as given; 0 or empty if not given.
struct LimitFlags {
  std::int64_t memory = 0, host_memory = 0, nvme_memory = 0;
  std::filesystem::path nvme_path;
};

/// Adds --memory, --host-memory, --nvme-memory and --nvme-path.
void add_limit_flags(cli::CommandLine& line, LimitFlags& flags);

/// The limits for all rows, and a sentence that states what was assumed.
struct Limits {
  MemoryLimit bytes;
  std::string text;
};

/// Returns the limits of ranks on a device. Throws Error(usage) if there is no GPU to query and --memory is
/// not given.
Limits limits_of(Device device, LimitFlags const& flags);

}  // namespace planning
}  // namespace programs
