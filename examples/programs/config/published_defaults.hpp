// SPDX-License-Identifier: Apache-2.0
// Selects the defaults of the programs `compare` and `plan`: Tessera's own defaults, or the defaults of a
// published comparison. There are two published comparisons: one compares ZeRO stages, the other compares
// offloads. Their command lines use other names for some flags than Tessera.
#pragma once

#include <string>

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Adds the flag `--defaults`, which sets `chosen` to own, stage-sweep or offload-sweep. Without this flag, a
/// command line with published flag names gets the published defaults. A command line that has both published
/// names and Tessera's names of these flags is refused.
void add_defaults_flag(CommandLine& line, std::string& chosen);

/// Returns a note that names `--defaults` if `--model` is the only flag on the command line. The published
/// programs have this flag too, so a user may expect their defaults. Returns "" for all other command lines.
std::string defaults_note(CommandLine const& line);

}  // namespace cli
}  // namespace programs
