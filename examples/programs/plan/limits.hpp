// SPDX-License-Identifier: Apache-2.0
// Defines the memory limits that a training must fit into, for the programs `plan` and `info`. A flag sets a
// limit. Without the flag, the limit is the memory of this machine.
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

/// The values of the limit flags; 0 or empty if a flag was not given.
struct LimitFlags {
  std::int64_t memory = 0, host_memory = 0, nvme_memory = 0;
  std::filesystem::path nvme_path;
  /// The number of hosts. The limits of host memory and of disk space are per host.
  std::int64_t hosts = 1;
  /// The device of another machine and its memory, which is the limit if --memory is not given or is larger;
  /// "" and 0 if the user chose no other machine.
  std::string machine;
  std::int64_t machine_memory = 0;
};

/// Adds --memory, --host-memory, --nvme-memory and --nvme-path to the command line.
void add_limit_flags(cli::CommandLine& line, LimitFlags& flags);

/// The memory limits, which are the same for all rows of the result table. `text` is a sentence for the user
/// with each limit and its source.
struct Limits {
  MemoryLimit bytes;
  std::string text;
};

/// Returns the memory limits of ranks on a device. If a flag was not given, its limit is this machine's
/// memory, or the memory of the machine in `flags`. If --memory is more than the memory of the machine in
/// `flags`, the memory of that machine is the limit. Throws Error(usage) if --memory was not given and there
/// is neither such a machine nor a GPU whose memory could be read.
Limits limits_of(Device device, LimitFlags const& flags);

}  // namespace planning
}  // namespace programs
