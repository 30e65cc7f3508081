// SPDX-License-Identifier: Apache-2.0
// Selects the default values of `compare` and `plan`: Tessera's own, or those of two published comparisons of
// ZeRO stages and of offloads. The command lines of these comparisons use other names for some flags.
#pragma once

#include <string>

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Adds the flag `--defaults`. Without it, a command line that uses the published flag names gets the
/// published defaults. Throws if a line mixes both sets of names. Sets `chosen` to own, stage-sweep or
/// offload-sweep.
void add_defaults_flag(CommandLine& line, std::string& chosen);

}  // namespace cli
}  // namespace programs
