// SPDX-License-Identifier: Apache-2.0
// Formats the settings of a comparison: as a box for the terminal, and as JSON for the result files.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokens.hpp"

#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "compare/settings.hpp"
#include "machine/machine.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// Returns the settings as a box of text for the terminal. `data` is the training data.
std::string box_text(cli::CommandLine const& line, Settings const& settings, std::vector<Point> const& points,
                     TokenSource const& data, cli::Terminal const& terminal);
cli::Json settings_json(Settings const& settings, TokenSource const& data);

}  // namespace compare
}  // namespace programs
