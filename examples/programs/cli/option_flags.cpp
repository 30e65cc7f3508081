// SPDX-License-Identifier: Apache-2.0
// Adds a command-line flag for each field of TrainerOptions, and writes the values of the fields to logs. The
// form of the flag and of the logged value depends on the type of the field.
#include "cli/option_flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "tessera/train/option_table.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"
#include "config/config_json.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

using Type = OptionValue::Type;

std::string choice_of(Option const& option, OptionValue value) {
  std::int64_t const index = value.type() == Type::boolean ? !value.boolean() : value.integer();
  return choices_of(option).at(static_cast<std::size_t>(index));
}

/// Returns the number in `given`, which must be a power of two. Otherwise throws Error(usage), which names
/// the flag and the nearest powers of two.
double power_of_two(std::string const& flag, std::string const& given, Range const& range) {
  double const number = parse_real(flag, given, range);
  int exponent = 0;
  if (std::frexp(number, &exponent) != 0.5)
    refuse(flag + " is " + given + ", which is not a power of two; give " + exact(std::ldexp(0.5, exponent)) +
           " or " + exact(std::ldexp(1.0, exponent)));
  return number;
}

/// Returns the seed in `text`, any unsigned 64-bit integer. Otherwise throws Error(usage), which names the
/// flag.
std::uint64_t seed_number(std::string const& flag, std::string const& text) {
  std::uint64_t seed = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (code != std::errc() || end != text.data() + text.size())
    refuse(flag + ": " + in_quotes(text) + " is not a seed; give a whole number from 0 to " +
           std::to_string(std::numeric_limits<std::uint64_t>::max()));
  return seed;
}

void add_flag(CommandLine& line, Option const& option, std::string const& names, OptionValue value) {
  std::string const help(option.help);
  Range const range = range_of(option);
  if (!option.choices.empty())
    return line.custom(names, std::string(option.choices), choice_of(option, value), help,
                       [&option, value](std::string const& flag, std::string const& given) {
                         Names const all = choices_of(option);
                         std::string const chosen = choice(flag, given, all);
                         auto const index = std::find(all.begin(), all.end(), chosen) - all.begin();
                         value.set_integer(value.type() == Type::boolean ? index == 0 : index);
                       });
  switch (value.type()) {
    case Type::real:
      if (option.rule == OptionRule::power_of_two)
        return line.custom(names, "X", exact(value.real()), help,
                           [value, range](std::string const& flag, std::string const& given) {
                             value.real() = power_of_two(flag, given, range);
                           });
      return line.real(names, value.real(), help, range);
    case Type::integer:
    case Type::count:
      return line.custom(
          names, option.rule == OptionRule::bytes ? "BYTES" : "N",
          option.rule == OptionRule::bytes ? "" : std::to_string(value.integer()), help,
          [&option, value](std::string const& flag, std::string const& given) {
            value.set_integer(option.rule == OptionRule::bytes
                                  ? bytes_number(flag, given)
                                  : parse_integer(flag, given, static_cast<std::int64_t>(option.min),
                                                  static_cast<std::int64_t>(option.max)));
          });
    case Type::seed:
      return line.custom(names, "N", std::to_string(value.seed()), help,
                         [value](std::string const& flag, std::string const& given) {
                           value.seed() = seed_number(flag, given);
                         });
    case Type::boolean:
      return line.toggle(names, value.boolean(), help);
    case Type::choice:
      break;  // an option of this type has choices, which the code above handles
  }
}

Json json_of(Option const& option, OptionValue value) {
  if (!option.choices.empty()) return choice_of(option, value);
  switch (value.type()) {
    case Type::real:
      return value.real();
    case Type::seed:
      return value.seed();
    case Type::boolean:
      return value.boolean();
    case Type::integer:
    case Type::count:
    case Type::choice:
      break;
  }
  return value.integer();
}

}  // namespace

void add_option_flags(CommandLine& line, OptionGroup group, TrainerOptions& options,
                      RenamedOption const& renamed) {
  for (Option const& option : option_table)
    if (option.group == group && !option.flags.empty())
      add_flag(line, option, std::string(option.name == renamed.name ? renamed.flags : option.flags),
               option.in(options));
}

void add_option_flag(CommandLine& line, std::string_view name, OptionValue value) {
  for (Option const& option : option_table)
    if (option.name == name) return add_flag(line, option, std::string(option.flags), value);
}

void add_option_values(Json& settings, OptionGroup group, TrainerOptions const& options,
                       RenamedOption const& renamed) {
  for (Option const& option : option_table)
    if (option.group == group && !option.key.empty())
      settings[std::string(option.name == renamed.name ? renamed.key : option.key)] =
          json_of(option, value_of(option, options));
}

std::string option_text(std::string_view name, TrainerOptions const& options) {
  for (Option const& option : option_table)
    if (option.name == name) return choice_of(option, value_of(option, options));
  return {};
}

std::string flag_of(Option const& option) {
  return std::string(option.flags.substr(0, option.flags.find(',')));
}

Names choices_of(Option const& option) {
  Names names;
  std::string_view rest = option.choices;
  while (!rest.empty()) {
    std::size_t const bar = std::min(rest.find('|'), rest.size());
    names.emplace_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return names;
}

Range range_of(Option const& option) {
  return {.min = option.min, .max = option.max, .open_above = option.rule == OptionRule::below};
}

}  // namespace cli
}  // namespace programs
