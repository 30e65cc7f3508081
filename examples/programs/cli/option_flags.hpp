// SPDX-License-Identifier: Apache-2.0
// Generates flags, result keys and logged settings for the fields of TrainerOptions from option_table.
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

/// Gives an option another flag and another key in results, for programs that use its usual flag for
/// something else.
struct RenamedOption {
  std::string_view name, flags, key;
};
/// `compare` uses --warmup-steps for the number of untimed steps, so the warm-up of the learning rate has
/// another flag.
inline constexpr RenamedOption warmup_in_compare{"warmup_steps", "--learning-rate-warmup",
                                                 "learning_rate_warmup"};

/// Adds the flags of a group of options to the command line. They set `options`, which holds the defaults and
/// must outlive `line`.
void add_option_flags(CommandLine& line, OptionGroup group, TrainerOptions& options,
                      RenamedOption const& renamed = {});

/// Adds the flag of one option, which sets `value`. `name` is the option's name in option_table.
void add_option_flag(CommandLine& line, std::string_view name, OptionValue value);

/// Adds the values of a group of options to the settings of a log or of results.
void add_option_values(Json& settings, OptionGroup group, TrainerOptions const& options,
                       RenamedOption const& renamed = {});

/// Returns the name of the value of an option with choices, such as "cosine". `name` is the option's name in
/// option_table.
std::string option_text(std::string_view name, TrainerOptions const& options);

/// Returns the first flag of an option in `train`.
std::string flag_of(Option const& option);

/// Returns the names of an option's values, such as "cosine". For a bool, the name of true comes first.
/// Returns an empty list if the values have no names.
Names choices_of(Option const& option);

/// Returns the range of legal values of a numeric option.
Range range_of(Option const& option);

}  // namespace cli
}  // namespace programs
