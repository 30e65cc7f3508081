// SPDX-License-Identifier: Apache-2.0
// Reads the flags that take settings from a file: --config (a DeepSpeed configuration) and --from (a row of
// an earlier comparison). --print-config shows where each setting comes from.
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

/// The values of --print-config, --best and --row, and the contents of a DeepSpeed configuration that flags
/// cannot express.
struct ConfigFile {
  bool print = false;              ///< --print-config: show the settings and stop
  bool best = false;               ///< --best
  std::string row;                 ///< --row
  std::vector<std::string> notes;  ///< keys whose effect differs from DeepSpeed's
  DeepSpeedRun deepspeed;
};

/// Adds --config and --print-config to the command line. A file can set only flags that the program declares.
void add_config_flags(CommandLine& line, ConfigFile& file);
/// Adds --from, --best and --row to the command line.
void add_row_flags(CommandLine& line, ConfigFile& file);
/// Throws if --best or --row is given without --from.
void check_row_flags(CommandLine const& line, ConfigFile const& file);

/// Returns the flags of `train` that repeat one row of a comparison: the row's own settings and those of the
/// whole comparison. `name` selects the row by its experiment name; if it is empty, the row with the most
/// tokens per second is repeated. `path` is for messages. Throws Error(config).
std::vector<FileSetting> row_settings(results::Document const& document, std::string const& path,
                                      std::string const& name);

/// A setting of a run: its key in result files and its flag in `train`.
struct RunKey {
  std::string key, flag;
};
std::vector<RunKey> const& run_keys();

/// Prints which settings of a DeepSpeed configuration have another effect here than in DeepSpeed.
/// `differences` are the lines that depend on the model.
void print_notes(std::ostream& out, ConfigFile const& file, Names const& differences);

}  // namespace cli
}  // namespace programs
