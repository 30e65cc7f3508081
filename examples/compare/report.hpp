// SPDX-License-Identifier: Apache-2.0
// Measured rows as result rows and as a table with a verdict.
#pragma once

#include <string>
#include <vector>

#include "tessera/io/results.hpp"

#include "common/terminal.hpp"
#include "compare/measure.hpp"

namespace tessera::inline v0 {
namespace compare {

/// The rows with what they say of each other: speedup, scaling, same program.
std::vector<results::Row> result_rows(std::vector<Measured> const& measured, Settings const& settings);

/// The table, a group a model, precision and shape; best values marked; then the verdict: are the weights of
/// each precision equal, is every plan its peak, which row is fastest and which needs the least memory.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Row> const& rows,
                       cli::Terminal const& terminal);

}  // namespace compare
}  // namespace tessera::inline v0
