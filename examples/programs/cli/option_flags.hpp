// SPDX-License-Identifier: Apache-2.0
// Generates the command-line flags of trainer options, and the keys of these options in logs and result
// files. A trainer option is a field of TrainerOptions; option_table lists all trainer options.
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

/// Gives the option `name` other spellings of its flag (`flags`) and another `key` in result files. A program
/// needs this if it uses the usual flag of the option for another purpose.
struct RenamedOption {
  std::string_view name, flags, key;
};
/// The program `compare` uses --warmup-steps for the number of untimed steps. So in `compare` the option for
/// the warm-up of the learning rate has another flag.
inline constexpr RenamedOption warmup_in_compare{"warmup_steps", "--learning-rate-warmup",
                                                 "learning_rate_warmup"};

/// Adds the flags of a group of trainer options to the command line. The flags set the fields of `options`,
/// which must hold the defaults and must outlive `line`. `renamed` gives one option of the group another
/// flag.
void add_option_flags(CommandLine& line, OptionGroup group, TrainerOptions& options,
                      RenamedOption const& renamed = {});

/// Adds the flag of one option, which sets `value`. `name` is the option's name in option_table.
void add_option_flag(CommandLine& line, std::string_view name, OptionValue value);

/// Writes the values of a group of trainer options to `settings`, a JSON object of a log or of a result file.
void add_option_values(Json& settings, OptionGroup group, TrainerOptions const& options,
                       RenamedOption const& renamed = {});

/// Returns the name of an option's value, such as "cosine". The option must have named values (choices).
/// `name` is the option's name in option_table.
std::string option_text(std::string_view name, TrainerOptions const& options);

/// Returns the first spelling of the flag that sets the option in the program `train`.
std::string flag_of(Option const& option);

/// Returns the names of an option's values, such as "cosine". For a bool, the name of true comes first.
/// Returns an empty list if the values have no names.
Names choices_of(Option const& option);

/// Returns the range of legal values of a numeric option.
Range range_of(Option const& option);

}  // namespace cli
}  // namespace programs
