// SPDX-License-Identifier: Apache-2.0
// Selects the defaults of `compare` and `plan`: their own, or the ones of the published comparisons of stages
// and offloads, whose command lines spell some flags differently.
#pragma once

#include <string>

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Adds `--defaults`. Without it, a line in the published spelling gets the published defaults, and a line in
/// both spellings is refused. Sets `chosen` to own, stage-sweep or offload-sweep.
void add_defaults_flag(CommandLine& line, std::string& chosen);

}  // namespace cli
}  // namespace programs
