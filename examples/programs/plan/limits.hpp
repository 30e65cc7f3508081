// SPDX-License-Identifier: Apache-2.0
// What plans must fit into: its flags, what this machine has where they say nothing, and the sentence that
// says which.
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

/// As given; 0 and empty: not.
struct LimitFlags {
  std::int64_t memory = 0, host_memory = 0, nvme_memory = 0;
  std::filesystem::path nvme_path;
};

/// --memory, --host-memory, --nvme-memory and --nvme-path.
void add_limit_flags(cli::CommandLine& line, LimitFlags& flags);

/// What the rows must fit into, and the sentence that says what was assumed.
struct Limits {
  MemoryLimit bytes;
  std::string text;
};

/// The limits of ranks on a device. Throws Error(usage) where there is no GPU to ask and --memory is not
/// given.
Limits limits_of(Device device, LimitFlags const& flags);

}  // namespace planning
}  // namespace programs
