// SPDX-License-Identifier: Apache-2.0
// Formats the settings of a comparison: as a box for the terminal, and for the environment of its results.
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

/// Formats the settings as a box for the terminal. `data` is the training data; for text, its bytes.
std::string box_text(cli::CommandLine const& line, Settings const& settings, std::vector<Point> const& points,
                     TokenSource const& data, cli::Terminal const& terminal);
cli::Json settings_json(Settings const& settings, TokenSource const& data);

}  // namespace compare
}  // namespace programs
