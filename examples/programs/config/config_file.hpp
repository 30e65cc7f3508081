// SPDX-License-Identifier: Apache-2.0
// Settings from a file: --config (a DeepSpeed configuration), --from (a row of an earlier comparison), and
// --print-config, which shows where each value came from.
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

/// What files said that flags cannot say.
struct ConfigFile {
  bool print = false;              ///< --print-config: show the settings and stop
  bool best = false;               ///< --best
  std::string row;                 ///< --row
  std::vector<std::string> notes;  ///< keys without effect here, or with another one
  DeepSpeedRun deepspeed;
};

/// --config and --print-config. The flags that files set must be declared too.
void add_config_flags(CommandLine& line, ConfigFile& file);
/// --from, --best and --row.
void add_row_flags(CommandLine& line, ConfigFile& file);
/// Throws if --best or --row is given without --from.
void check_row_flags(CommandLine const& line, ConfigFile const& file);

/// The flags of `train` that repeat a row: what the row says, and what its comparison was made with. `path`
/// is for messages; `name` an experiment, or empty for the row with the highest rate. Throws Error(config).
std::vector<FileSetting> row_settings(results::Document const& document, std::string const& path,
                                      std::string const& name);

/// Settings of a run that are numbers or names, by their key in results and their flag in `train`.
struct RunKey {
  std::string key, flag;
};
std::vector<RunKey> const& run_keys();

/// Prints what files said that is otherwise here than there; `differences` are those that the model makes.
void print_notes(std::ostream& out, ConfigFile const& file, Names const& differences);

}  // namespace cli
}  // namespace programs
