// SPDX-License-Identifier: Apache-2.0
// Whose defaults stand where a line of compare or plan says nothing: their own, or those of the published
// comparisons of stages and offloads, whose command lines spell some flags otherwise.
#pragma once

#include <string>

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// `--defaults`. Without it a line in the published spelling has the published defaults, and one in both
/// spellings is refused. `chosen` becomes own, stage-sweep or offload-sweep.
void add_defaults_flag(CommandLine& line, std::string& chosen);

}  // namespace cli
}  // namespace programs
