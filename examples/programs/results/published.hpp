// SPDX-License-Identifier: Apache-2.0
// Compares results with published measurements of other systems for the same model, recipe and shape. The
// published figures are in examples/experiments/published.json.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns the names of the published comparisons.
Names published_names();

/// Adds the field `published` to each row that repeats a row of one of these comparisons. The field holds the
/// comparison's name and machine, the published figures, and the ratios of our figures to them if the row was
/// measured.
void add_published(std::vector<results::Row>& rows, Names const& comparisons);

/// Returns a table for each of these comparisons that some row repeats: published figures, our figures, and
/// their ratio. Below are both machines and the differences in method. `machine` is the local one.
std::string published_text(std::vector<results::Row> const& rows, Names const& comparisons,
                           std::string const& machine, Terminal const& terminal);

}  // namespace cli
}  // namespace programs
