// SPDX-License-Identifier: Apache-2.0
// Defines the flags of the program `prepare`, which converts text to token files, and derives the settings of
// a run from the flags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/token_file.hpp"

#include "cli/command_line.hpp"
#include "text/input.hpp"
#include "text/tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace cli {

struct PrepareFlags {
  std::vector<std::string> inputs;
  std::string tokenizer, end_of_text, field = "text", format = "auto", ids = "auto";
  std::filesystem::path output, validation_output, check;
  std::int64_t data_bytes = 0, save_every = 10;
  double validation_share = 0.0;
  int threads = 0;
  bool resume = false, quiet = false;
  bool all_cores = false;  ///< whether --threads was not given, so that all cores are used
};

void declare(CommandLine& line, PrepareFlags& flags);

/// Throws Error(usage) if --check is given together with a path or a flag that --check does not use.
void need_check_alone(CommandLine const& line, PrepareFlags const& flags);

/// The settings of a run. All flags are checked, and missing values are derived.
struct Preparation {
  PrepareFlags flags;
  std::shared_ptr<text::Tokenizer const> tokenizer;
  text::Inputs inputs;
  TokenFormat ids = TokenFormat::u16;
  std::filesystem::path state;  ///< path of the state file, from which a later run can resume
  std::string fingerprint;      ///< hash of all inputs and settings that determine the tokens
};

/// Checks the flags and returns the settings of the run. Throws Error if a flag or an input is not valid.
Preparation resolve(CommandLine const& line, PrepareFlags flags);

}  // namespace cli
}  // namespace programs
