// SPDX-License-Identifier: Apache-2.0
// Compares our results with published measurements of other systems that used the same model, recipe and
// shape. The published figures are in examples/experiments/published.json.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns the names of all published comparisons.
Names published_names();

/// Declares the flag --published, which replaces `names` by its names of published comparisons.
void add_published_flag(CommandLine& line, Names& names);

/// Maps the name of a model in our rows to the published name of a model with the same sizes. A model that
/// was read from a folder has the folder's path as its name.
using PublishedModels = std::map<std::string, std::string>;

/// Adds the field `published` to each row that repeats a row of one of the given published comparisons. The
/// field holds the comparison's name and machine, and the published figures. If our row was measured, it also
/// holds our figures and their ratios to the published ones. Otherwise it holds our planned figures.
void add_published(std::vector<results::Row>& rows, Names const& comparisons,
                   PublishedModels const& models = {});

/// Returns sentences about the published comparison `name`: the machine, the source, the assumptions about
/// unpublished settings, and the differences in method. Returns "" if no comparison has this name.
std::string published_about(std::string const& name);

/// Returns the name and unit of the published figure with the key `key` for tables, such as "peak GB" for
/// "peak_gb". Returns `key` if no figure has this key.
std::string published_header(std::string const& key);

/// Returns one table for each given comparison, if our rows repeat at least one of its rows. The table has
/// the published figures, our figures, and their ratios. A row that did not run has its planned figures in
/// brackets. The text below the table names the two machines and the differences in method. `machine` is the
/// name of our machine.
std::string published_text(std::vector<results::Row> const& rows, Names const& comparisons,
                           std::string const& machine, Terminal const& terminal,
                           PublishedModels const& models = {});

}  // namespace cli
}  // namespace programs
