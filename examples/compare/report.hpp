// SPDX-License-Identifier: Apache-2.0
// Measured rows as result rows, as a table with a verdict, and as files.
#pragma once

#include <string>
#include <vector>

#include "tessera/io/results.hpp"
#include "tessera/train/any_trainer.hpp"

#include "common/terminal.hpp"
#include "compare/measure.hpp"

namespace tessera::inline v0 {
namespace compare {

/// The rows with what they say of each other: speedup, scaling, same program. `device` is what they ran on.
std::vector<results::Row> result_rows(std::vector<Measured> const& measured, Settings const& settings,
                                      DeviceFacts const& device);
inline std::vector<results::Row> result_rows(std::vector<Measured> const& measured,
                                             Settings const& settings) {
  return result_rows(measured, settings, device_facts(settings.matrix.device));
}

/// The table, a group a model, precision and shape; best values marked; then the verdict: are the weights of
/// each precision equal, is every plan its peak, which row is fastest and which needs the least memory.
std::string table_text(std::vector<Measured> const& measured, std::vector<results::Row> const& rows,
                       cli::Terminal const& terminal);

/// Refuses, before anything is trained, every output that could not be written. Throws Error(failed or usage)
/// that names the path.
void check_outputs(Settings const& settings, std::vector<Point> const& points);

/// Writes all files that were asked for and returns a line for each. "-" is stdout.
std::vector<std::string> write_outputs(Settings const& settings, results::Document const& document,
                                       std::vector<Measured> const& measured);

}  // namespace compare
}  // namespace tessera::inline v0
