// SPDX-License-Identifier: Apache-2.0
// Provides the flags, result keys and settings of a trainer's options, based on option_table.
#pragma once

#include <string>
#include <string_view>

#include "tessera/train/option_table.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"
#include "config/config_json.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Another name for an option in a program: its flags and its key in results.
struct RenamedOption {
  std::string_view name, flags, key;
};
/// In `compare`, --warmup-steps sets the number of untimed steps.
inline constexpr RenamedOption warmup_in_compare{"warmup_steps", "--learning-rate-warmup",
                                                 "learning_rate_warmup"};

/// Adds the flags of a group of options. They set `options`, which must outlive the line and holds the
/// defaults.
void add_option_flags(CommandLine& line, OptionGroup group, TrainerOptions& options,
                      RenamedOption const& renamed = {});

/// Adds the flag of one option for a value that is kept elsewhere. `name` is the option's name in
/// option_table.
void add_option_flag(CommandLine& line, std::string_view name, OptionValue value);

/// Adds the values of a group of options to the settings of a log or of results.
void add_option_values(Json& settings, OptionGroup group, TrainerOptions const& options,
                       RenamedOption const& renamed = {});

/// Returns the name of the value of an option with choices, such as "cosine". `name` is the option's name in
/// option_table.
std::string option_text(std::string_view name, TrainerOptions const& options);

/// Returns the first flag of an option in `train`.
std::string flag_of(Option const& option);

/// Returns the names of an option's values; for a bool, the name of true first. Empty if the option has no
/// such names.
Names choices_of(Option const& option);

/// Returns the range of legal values of a numeric option.
Range range_of(Option const& option);

}  // namespace cli
}  // namespace programs
