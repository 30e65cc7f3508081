// SPDX-License-Identifier: Apache-2.0
// Defines the flags of `prepare` and resolves them to settings.
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
  bool all_cores = false;  ///< the number of threads was not given
};

void declare(CommandLine& line, PrepareFlags& flags);

/// Throws Error(usage) if --check is given together with a path or flag that it does not use.
void need_check_alone(CommandLine const& line, PrepareFlags const& flags);

/// The settings of a run, after the flags were checked and missing values were derived.
struct Preparation {
  PrepareFlags flags;
  std::shared_ptr<text::Tokenizer const> tokenizer;
  text::Inputs inputs;
  TokenFormat ids = TokenFormat::u16;
  std::filesystem::path state;  ///< path for the position of a run that ended early
  std::string fingerprint;      ///< of everything that determines the tokens
};

/// Checks the flags and derives the settings. Throws Error.
Preparation resolve(CommandLine const& line, PrepareFlags flags);

}  // namespace cli
}  // namespace programs
