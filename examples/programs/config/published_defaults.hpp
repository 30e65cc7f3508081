// SPDX-License-Identifier: Apache-2.0
// Selects the defaults of `compare` and `plan`. They are Tessera's own, or those of one of two published
// comparisons, of ZeRO stages and of offloads. The published command lines use other names for some flags.
#pragma once

#include <string>

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Adds the flag `--defaults`, which sets `chosen` to own, stage-sweep or offload-sweep. Without this flag, a
/// command line with published flag names gets the published defaults. A command line with names of both
/// kinds is refused.
void add_defaults_flag(CommandLine& line, std::string& chosen);

}  // namespace cli
}  // namespace programs
