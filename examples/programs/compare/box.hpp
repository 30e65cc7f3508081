// SPDX-License-Identifier: Apache-2.0
// Formats the settings of the program `compare` in two forms: as a text in a frame (a "box"), which the
// program prints before it trains, and as JSON for the result files.
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

/// Returns the box: one line for each setting, with its name, its value and the source of the value (a flag,
/// a file or a default). `line` is the parsed command line. `points` are the rows to train; a row is one
/// model and recipe with one batch, sequence and number of ranks. `data` is the training data.
std::string box_text(cli::CommandLine const& line, Settings const& settings, std::vector<Point> const& points,
                     TokenSource const& data, cli::Terminal const& terminal);
/// Returns the JSON object `settings` of a result file: the settings that all rows of the comparison share.
cli::Json settings_json(Settings const& settings, TokenSource const& data);

}  // namespace compare
}  // namespace programs
