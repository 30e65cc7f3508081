// SPDX-License-Identifier: Apache-2.0
// Published figures beside ours: what others printed for a model, a recipe and a shape
// (examples/experiments/published.json), for the rows that have the same.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The comparisons whose figures are known.
Names published_names();

/// Gives each row that repeats one of these comparisons the field `published`: the comparison and its
/// machine, the figures as printed, and ours over them where the row was measured.
void add_published(std::vector<results::Row>& rows, Names const& comparisons);

/// A table for each of these comparisons that some row repeats, of what was published, what is here, and
/// their ratio; below it both machines and what is not equal. `machine` is the one here.
std::string published_text(std::vector<results::Row> const& rows, Names const& comparisons,
                           std::string const& machine, Terminal const& terminal);

}  // namespace cli
}  // namespace programs
