// SPDX-License-Identifier: Apache-2.0
// Parses the values of a command line: numbers, lists, choices, sizes in bytes. Every error message names the
// flag and the value.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/policy/parse.hpp"

namespace programs {
using namespace tessera;
namespace cli {

using Names = std::vector<std::string>;

[[noreturn]] inline void refuse(std::string const& text) { throw Error(ErrorKind::usage, text); }

/// Returns the value in quotes, for a message. Control characters are replaced, and a value of more than 80
/// characters is cut.
inline std::string in_quotes(std::string_view value) {
  std::string const shown = value.size() > 80 ? std::string(value.substr(0, 77)) + "..." : std::string(value);
  return "'" + files::printable(shown) + "'";
}

inline std::string joined(Names const& items, std::string_view between = ", ") {
  std::string text;
  for (auto const& item : items) text.append(text.empty() ? std::string_view() : between).append(item);
  return text;
}

/// Returns the value in lower case. The values that a flag with a fixed set of values accepts are all in
/// lower case.
inline std::string lower(std::string_view value) {
  std::string small(value);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

/// Returns the candidate with the smallest edit distance to the value, ignoring case. If several candidates
/// have this distance, returns the first of them. `candidates` must not be empty.
inline std::string nearest(std::string_view value, Names const& candidates) {
  auto const distance = [given = lower(value)](std::string const& candidate) {
    return edit_distance(given, lower(candidate));
  };
  return *std::min_element(candidates.begin(), candidates.end(), [&](auto const& one, auto const& other) {
    return distance(one) < distance(other);
  });
}

/// Returns the integer in `text`. Throws Error(usage) if `text` is not an integer in [min, max].
inline std::int64_t parse_integer(std::string const& flag, std::string_view text, std::int64_t min,
                                  std::int64_t max = std::numeric_limits<std::int64_t>::max()) {
  bool const bounded = max != std::numeric_limits<std::int64_t>::max();
  std::string const range = bounded
                                ? "a whole number from " + std::to_string(min) + " to " + std::to_string(max)
                                : "a whole number, " + std::to_string(min) + " or more";
  std::int64_t value = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range)
    refuse(flag + ": " + in_quotes(text) + " is too large a number; give " + range);
  if (code != std::errc() || end != text.data() + text.size())
    refuse(flag + ": " + in_quotes(text) + " is not a whole number; give " + range);
  if (value < min || value > max) refuse(flag + " is " + std::to_string(value) + "; give " + range);
  return value;
}

/// The range of legal values of a flag with a real number.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open_below = false;  ///< min itself is not legal
  bool open_above = false;  ///< max itself is not legal

  bool holds(double value) const {
    return (open_below ? value > min : value >= min) && (open_above ? value < max : value <= max);
  }
  std::string text() const {
    char line[96];
    std::string words = "a number";
    if (std::isfinite(min)) {
      std::snprintf(line, sizeof line, open_below ? " above %g" : " from %g", min);
      words += line;
    }
    if (std::isfinite(max)) {
      std::snprintf(line, sizeof line, open_above ? " below %g" : " up to %g", max);
      words += line;
    }
    return words;
  }
};

inline Range at_least(double min) { return {.min = min}; }
inline Range above(double min) { return {.min = min, .open_below = true}; }

/// Returns the number in `text`. Throws Error(usage) if `text` is not a number in `range`. "nan" and "inf"
/// are errors too.
inline double parse_real(std::string const& flag, std::string_view text, Range const& range = {}) {
  double value = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range)
    refuse(flag + ": " + in_quotes(text) + " is too large or too small a number; give " + range.text());
  if (code != std::errc() || end != text.data() + text.size())
    refuse(flag + ": " + in_quotes(text) + " is not a number; give " + range.text());
  if (!std::isfinite(value)) refuse(flag + ": " + in_quotes(text) + " is not finite; give " + range.text());
  if (!range.holds(value)) refuse(flag + " is " + std::string(text) + "; give " + range.text());
  return value;
}

/// Returns a size in bytes. `text` is a number with an optional unit: B, KB, KiB (or K), MB, MiB (or M), GB,
/// GiB (or G), TB, TiB (or T). KB to TB are powers of `thousand`: 1000, or 1024 for device memory, because
/// GPU makers call 2^30 bytes a GB.
inline std::int64_t bytes_number(std::string const& flag, std::string_view text, double thousand = 1000.0) {
  std::string const advice = "; give bytes such as 8589934592, 8GiB or 80GB";
  double value = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  while (!unit.empty() && unit.front() == ' ') unit.erase(unit.begin());
  unit = lower(unit);
  double scale = 0;
  if (unit.empty() || unit == "b") scale = 1;
  for (std::size_t power = 0; power < 4 && scale == 0; ++power) {
    std::string const letter(1, "kmgt"[power]);
    if (unit == letter || unit == letter + "i" || unit == letter + "ib")
      scale = std::pow(1024.0, power + 1.0);
    if (unit == letter + "b") scale = std::pow(thousand, power + 1.0);
  }
  if (code != std::errc() || scale == 0) refuse(flag + ": " + in_quotes(text) + " is not a size" + advice);
  double const bytes = value * scale;
  if (!(bytes >= 1.0 && bytes < 9.0e18))
    refuse(flag + " is " + in_quotes(text) + ", which is not a possible size" + advice);
  return static_cast<std::int64_t>(bytes);
}

/// Splits the values of a flag at commas and returns the items: {"a,b", "c"} has the items a, b and c. Throws
/// Error(usage) if an item is empty.
inline Names split_list(std::string const& flag, Names const& values) {
  Names items;
  for (auto const& value : values)
    for (std::size_t begin = 0; begin <= value.size();) {
      std::size_t const end = std::min(value.find(',', begin), value.size());
      if (end == begin)
        refuse(flag + ": " + in_quotes(value) + " has an empty item; give a list such as a,b,c");
      items.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  return items;
}

/// Returns the items without repetitions. The first of several equal items remains.
template <class T>
std::vector<T> distinct(std::vector<T> const& items) {
  std::vector<T> unique;
  for (auto const& item : items)
    if (std::find(unique.begin(), unique.end(), item) == unique.end()) unique.push_back(item);
  return unique;
}

/// Returns the element of `choices` that is equal to `value`, ignoring case. If there is none, throws
/// Error(usage); the message gives the nearest element and all elements.
inline std::string choice(std::string const& flag, std::string const& value, Names const& choices) {
  std::string const name = lower(value);
  if (std::find(choices.begin(), choices.end(), name) != choices.end()) return name;
  refuse(flag + ": " + in_quotes(value) + " is not known, the nearest is '" + nearest(name, choices) +
         "'; choose from " + joined(choices));
}

/// Returns a message of the library with policy names replaced by flags: "Precision<half>" becomes
/// "--precision fp16".
inline std::string in_flags(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"Precision<tf32>, <bf16x6> and <bf16x3>", "--precision tf32, bf16x6 and bf16x3"},
      {"Precision<half>", "--precision fp16"},
      {"Precision<bfloat16>", "--precision bf16"},
      {"Precision<float>", "--precision fp32"},
      {"Precision<double>", "--precision fp64"},
      {"Precision<tf32>", "--precision tf32"},
      {"LossScale<Dynamic>", "--loss-scale dynamic"},
      {"LossScale<Static>", "--loss-scale static"},
      {"Drop LossScale", "Leave --loss-scale out"},
      {"On<Cpu>", "--device cpu"},
      {"On<Cuda>", "--device cuda"},
      {"Capture<Graph>", "--capture graph"},
      {"Attention<Auto>", "--attention auto"},
      {"Attention<Fused>", "--attention fused"},
      {"Attention<Reference>", "--attention reference"},
      {"Attention<Cudnn>", "--attention cudnn"},
      {"Reduction<Ordered>", "--reduction ordered"},
      {"Reduction<Fast>", "--reduction fast"},
      {"compute --device", "compute with --device"},
      {"learning rate or set clip", "learning rate or give --clip"},
      {"no nn::Linear", "no linear layer"},
  };
  for (auto const& [of_library, of_line] : words)
    for (std::size_t at = 0; (at = text.find(of_library, at)) != text.npos; at += of_line.size())
      text.replace(at, of_library.size(), of_line);
  return text;
}

/// Formats 1234567 as "1,234,567".
inline std::string grouped(std::int64_t value) { return files::with_commas(value); }

/// Formats a number with `decimals` digits after the point. A negative number that is rounded to 0 has no
/// sign.
inline std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, files::plain(value));
  bool const is_zero = std::string_view(text).find_first_not_of("-0.") == std::string_view::npos;
  return text + (is_zero && text[0] == '-' ? 1 : 0);
}

/// Formats a number in a short form: "0.0003", "1e-08".
inline std::string shortest(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%g", files::plain(value));
  return text;
}

/// Formats a number with the fewest digits that parse back to it: "16777216", "1e-05".
inline std::string exact(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace cli
}  // namespace programs
