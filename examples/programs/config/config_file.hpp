// SPDX-License-Identifier: Apache-2.0
// Reads flags of a program from a file. The file is a DeepSpeed configuration (flag --config), or the result
// file of an earlier `compare`, of which one row (one training configuration) is repeated (flag --from).
// --print-config prints each setting and its source.
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

/// A row of a result file that the program `train` repeats.
struct RepeatedRow {
  std::string path;          ///< the result file
  results::Row row;          ///< the row
  results::Row environment;  ///< the machine on which the row was measured
};

/// The values of the flags --print-config, --best and --row, and the parts of a DeepSpeed configuration that
/// no flag can express.
struct ConfigFile {
  bool print = false;  ///< --print-config: show the settings and stop
  bool best = false;   ///< --best: repeat the fastest row
  std::string row;     ///< --row: the name of the row to repeat
  /// keys that have another effect than in DeepSpeed, each with an explanation
  std::vector<std::string> notes;
  DeepSpeedRun deepspeed;
  std::optional<RepeatedRow> repeated;  ///< the row that --from, --best and --row select
};

/// Adds --config and --print-config to the command line. The configuration sets only flags that the program
/// has.
void add_config_flags(CommandLine& line, ConfigFile& file);
/// Adds --from, --best and --row to the command line.
void add_row_flags(CommandLine& line, ConfigFile& file);
/// Throws if --best or --row is given without --from.
void check_row_flags(CommandLine const& line, ConfigFile const& file);

/// Returns the text of a field of a row; "" if the row has no such field, or if it is not a text.
std::string row_text(results::Row const& row, char const* field);

/// Returns a row of the result file `document`. `name` is the experiment name of the row; if it is empty,
/// returns the row with the most tokens per second. `path` is the file's path for messages. Throws
/// Error(config) if the file has no such row.
results::Row const& chosen_row(results::Document const& document, std::string const& path,
                               std::string const& name);

/// Returns the flags with which the program `train` repeats the row `row` of the result file `document`. The
/// flags give the settings of the row and the settings that all rows of the comparison share. `path` is the
/// file's path for messages.
std::vector<FileSetting> row_settings(results::Document const& document, std::string const& path,
                                      results::Row const& row);

/// A setting that all rows of a comparison share: its key in result files, and the flag of the program
/// `train` that sets it. run_keys returns all such settings.
struct RunKey {
  std::string key, flag;
};
std::vector<RunKey> const& run_keys();

/// Prints a note for each setting of a DeepSpeed configuration that has another effect here than in
/// DeepSpeed. `differences` are the notes that depend on the model (deepspeed_differences).
void print_notes(std::ostream& out, ConfigFile const& file, Names const& differences);

}  // namespace cli
}  // namespace programs
