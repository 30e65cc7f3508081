// SPDX-License-Identifier: Apache-2.0
// Reads settings from files: --config (a DeepSpeed configuration), --from (a row of an earlier comparison),
// and --print-config, which shows the origin of each value.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "config/deepspeed.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Settings from files that flags cannot express.
struct ConfigFile {
  bool print = false;              ///< --print-config: show the settings and stop
  bool best = false;               ///< --best
  std::string row;                 ///< --row
  std::vector<std::string> notes;  ///< keys that have no effect here, or another one
  DeepSpeedRun deepspeed;
};

/// Adds --config and --print-config. Flags that files set must be declared too.
void add_config_flags(CommandLine& line, ConfigFile& file);
/// Adds --from, --best and --row.
void add_row_flags(CommandLine& line, ConfigFile& file);
/// Throws if --best or --row is given without --from.
void check_row_flags(CommandLine const& line, ConfigFile const& file);

/// Returns the flags of `train` that repeat a row: the row's own values and the settings of its comparison.
/// `path` is for messages. `name` is an experiment, or empty for the row with the highest rate. Throws
/// Error(config).
std::vector<FileSetting> row_settings(results::Document const& document, std::string const& path,
                                      std::string const& name);

/// A numeric or named setting of a run: its key in results and its flag in `train`.
struct RunKey {
  std::string key, flag;
};
std::vector<RunKey> const& run_keys();

/// Prints the settings of files that work differently here. `differences` are the ones that depend on the
/// model.
void print_notes(std::ostream& out, ConfigFile const& file, Names const& differences);

}  // namespace cli
}  // namespace programs
