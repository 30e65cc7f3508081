// SPDX-License-Identifier: Apache-2.0
// Compares results with published figures for the same model, recipe and shape
// (examples/experiments/published.json).
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The names of the known comparisons.
Names published_names();

/// Adds the field `published` to each row that repeats one of these comparisons. It holds the comparison and
/// its machine, the printed figures, and the ratio of ours to them if the row was measured.
void add_published(std::vector<results::Row>& rows, Names const& comparisons);

/// Returns a table for each of these comparisons that some row repeats: published figures, figures here, and
/// their ratio. Both machines and the differences follow. `machine` is the local one.
std::string published_text(std::vector<results::Row> const& rows, Names const& comparisons,
                           std::string const& machine, Terminal const& terminal);

}  // namespace cli
}  // namespace programs
