// SPDX-License-Identifier: Apache-2.0
// What `prepare` was asked to do.
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
  bool all_cores = false;  ///< nobody chose the threads
};

void declare(CommandLine& line, PrepareFlags& flags);

/// Throws Error(usage) if --check is given together with an input or a flag that it does not read.
void need_check_alone(CommandLine const& line, PrepareFlags const& flags);

/// The flags, settled and checked.
struct Preparation {
  PrepareFlags flags;
  std::shared_ptr<text::Tokenizer const> tokenizer;
  text::Inputs inputs;
  TokenFormat ids = TokenFormat::u16;
  std::filesystem::path state;  ///< where a run that ended early left its place
  std::string fingerprint;      ///< of everything that decides the tokens
};

/// Throws Error.
Preparation resolve(CommandLine const& line, PrepareFlags flags);

}  // namespace cli
}  // namespace programs
