// SPDX-License-Identifier: Apache-2.0
// Reads JSON that Python wrote: a whole object, or the text in one field of an object on a line. Needs
// nlohmann-json.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/utf8.hpp"

namespace tessera {
inline namespace v0 {
namespace json_lines {

/// Whether JSON has objects and arrays nested more than 64 deep. The JSON library copies and destroys nested
/// values by recursion, so a file of 100,000 opening brackets would overflow the stack.
inline bool nests_too_deeply(std::string_view json) {
  constexpr int max_depth = 64;
  int depth = 0;
  bool inside = false;  // whether `at` is inside a string
  for (std::size_t at = 0; at < json.size(); ++at) {
    char const c = json[at];
    if (inside && c == '\\') ++at;
    if (c == '"') inside = !inside;
    if (inside) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > max_depth) return true;
  }
  return false;
}

/// Handles the events of the JSON parser. Keeps the text of the field `field` of the outer object. Also keeps
/// the names of the outer object's fields, for messages. Ignores all other values.
struct FieldReader final : nlohmann::json_sax<nlohmann::json> {
  explicit FieldReader(std::string const& field) : field_(field) {}

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, string_t const&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (depth != 1 || !here) return other();
    text = std::move(value);
    found = true, wrong = false;
    return true;
  }
  bool start_object(std::size_t) override { return begin(true); }
  bool start_array(std::size_t) override { return begin(false); }
  bool end_object() override { return --depth, true; }
  bool end_array() override { return --depth, true; }
  bool key(string_t& name) override {
    if (depth != 1) return true;
    here = name == field_;
    if (names.size() < 120) names += (names.empty() ? "" : ", ") + name;
    return true;
  }
  bool parse_error(std::size_t at, std::string const&, nlohmann::detail::exception const& error) override {
    // The error text is "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ...".
    // Keeps only the part from "syntax error" on.
    position = at;
    message = error.what();
    message.erase(0, message.find("] ") + 2);
    if (message.starts_with("parse error")) message.erase(0, message.find(": ") + 2);
    return false;
  }

  std::string text, names, message;
  std::size_t position = 0;
  std::int64_t depth = 0;
  bool found = false, wrong = false, here = false, object = false;

 private:
  bool begin(bool is_object) {
    if (depth == 0) object = is_object;
    other();
    ++depth;
    return true;
  }
  bool other() {
    if (depth == 1 && here) found = true, wrong = true;
    return true;
  }

  std::string const& field_;
};

inline int hex_digits(std::string_view text) {
  int value = 0;
  if (text.size() < 4) return -1;
  for (char const c : text.substr(0, 4)) {
    int const digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                               : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/// If a JSON text starts with a number beyond the range of double, such as 1e999, returns the number of its
/// characters. Otherwise returns 0.
inline std::size_t huge_number(std::string_view text) {
  std::size_t const size = std::min(text.find_first_not_of("+-.0123456789Ee"), text.size());
  auto const digit = [&](std::size_t at) { return at < size && text[at] >= '0' && text[at] <= '9'; };
  // from_chars accepts 01e999 and 1.e999, but JSON does not. For such a text this function returns 0.
  std::size_t const first = text.starts_with('-') ? 1 : 0, point = text.substr(0, size).find('.');
  if ((text.substr(first).starts_with('0') && digit(first + 1)) || (point != text.npos && !digit(point + 1)))
    return 0;
  double value = 0.0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + size, value);
  bool const complete = code == std::errc::result_out_of_range && end == text.data() + size;
  return complete ? size : 0;
}

/// Replaces NaN, Infinity and -Infinity by null. Python reads and writes these words, but they are not valid
/// JSON. If `huge` is true, also replaces numbers beyond the range of double, which Python reads as Infinity.
inline std::string with_null_for_nan(std::string_view line, bool huge = false) {
  std::string out;
  bool inside = false;  // whether `at` is inside a string
  for (std::size_t at = 0; at < line.size();) {
    std::string_view const rest = line.substr(at);
    std::size_t size = 1;
    if (inside && rest[0] == '\\') size = std::min<std::size_t>(2, rest.size());
    if (rest[0] == '"') inside = !inside;
    for (std::string_view const word : {"NaN", "Infinity", "-Infinity"})
      if (!inside && rest.starts_with(word)) size = word.size();
    bool null = !inside && size > 1;
    if (std::string_view("-0123456789").find(rest[0]) != rest.npos && !inside && !null) {
      std::size_t const beyond = huge ? huge_number(rest) : 0;
      null = beyond > 0;
      size = null ? beyond : std::min(rest.find_first_not_of("+-.0123456789Ee"), rest.size());
    }
    out.append(null ? "null" : rest.substr(0, size));
    at += size;
  }
  return out;
}

/// Returns the text with each escape of an unpaired surrogate replaced by \ufffd. An example is \ud83d if no
/// escape of a low surrogate, such as \ude00, follows it.
inline std::string with_whole_pairs(std::string_view line) {
  std::string out(line);
  for (std::size_t at = 0; (at = out.find('\\', at)) != out.npos && at + 1 < out.size();) {
    std::string_view const rest = std::string_view(out).substr(at);
    int const unit = rest[1] == 'u' ? hex_digits(rest.substr(2)) : -1;
    if (unit < 0xd800 || unit > 0xdfff) {
      at += 2;
      continue;
    }
    bool const next = rest.size() >= 12 && rest[6] == '\\' && rest[7] == 'u';
    int const low = next ? hex_digits(rest.substr(8)) : -1;
    bool const pair = unit < 0xdc00 && low >= 0xdc00 && low <= 0xdfff;
    if (!pair) out.replace(at + 2, 4, "fffd");
    at += pair ? 12 : 6;
  }
  return out;
}

/// Parses a JSON object. NaN and Infinity become null, and an unpaired surrogate becomes U+FFFD. Throws
/// Error(data), which names the file, if the text is not a JSON object or if a key occurs twice. Python would
/// silently use the last value of a repeated key, possibly the wrong one.
inline nlohmann::ordered_json parse_object(std::string_view bytes, std::string const& name) {
  std::string text = with_null_for_nan(bytes);
  if (text.find("\\ud") != text.npos || text.find("\\uD") != text.npos) text = with_whole_pairs(text);
  auto const fail = [&](std::string const& what) { throw Error(ErrorKind::data, name + ": " + what); };
  using Json = nlohmann::ordered_json;
  std::vector<std::set<std::string>> keys;
  auto const watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 64) fail("is nested too deeply for a configuration");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail("has the key " + files::printable(parsed.get<std::string>()) + " twice; keep one of them");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (nlohmann::json::exception const& error) {
    std::string_view what = error.what();
    if (std::size_t const end_of_id = what.find("] "); end_of_id != what.npos)
      what.remove_prefix(end_of_id + 2);
    fail("is not valid JSON: " + files::printable(what) + "; the file is damaged, copy it again");
  }
  if (!json.is_object()) fail("is not a JSON object; name the folder of a model");
  return json;
}

/// Parses a line as Python does: NaN and numbers beyond the range of double are accepted. Returns a reader
/// that holds the text of the field `field`, or the reason of the failure. `parsed` tells whether the line is
/// valid.
inline FieldReader read_line(std::string_view line, std::string const& field, bool& parsed) {
  auto const parse = [](std::string_view text, FieldReader& into) {
    return nlohmann::json::sax_parse(text.begin(), text.end(), &into);
  };
  FieldReader first(field);
  parsed = parse(line, first);
  if (parsed) return first;
  FieldReader second(field);
  parsed = parse(with_null_for_nan(line, true), second);
  return parsed ? std::move(second) : std::move(first);
}

/// Returns the line as valid UTF-8, without escapes of unpaired surrogates. The result is `line` itself or a
/// view of `storage`. Adds the number of replaced invalid byte sequences to `replaced`.
inline std::string_view mended_line(std::string_view line, std::string (&storage)[2],
                                    std::int64_t& replaced) {
  line = utf8::repaired(line, storage[0], replaced);
  if (line.find("\\ud") != line.npos || line.find("\\uD") != line.npos)
    line = storage[1] = with_whole_pairs(line);
  return line;
}

/// Whether `line` is a JSON object, under the rules of `field_of`.
inline bool is_object_line(std::string_view line) {
  std::string storage[2];
  std::string const field;
  std::int64_t replaced = 0;
  bool parsed = false;
  FieldReader const reader = read_line(mended_line(line, storage, replaced), field, parsed);
  return parsed && reader.object;
}

}  // namespace json_lines
namespace detail {
using namespace json_lines;
}  // namespace detail

/// Returns the string in the field `field` of the JSON object on a line, as valid UTF-8. If the field occurs
/// several times, the last one counts. Unpaired surrogates and invalid bytes become U+FFFD. The number of
/// invalid byte sequences is added to `replaced`. Throws Error(data) that starts with `where`. If the line is
/// not an object, the error ends with `otherwise`, the caller's advice.
inline std::string field_of(std::string_view line, std::string const& field, std::string const& where,
                            std::string_view otherwise = {}, std::int64_t* replaced = nullptr) {
  std::string storage[2];
  std::int64_t count = 0;
  bool parsed = false;
  json_lines::FieldReader reader =
      json_lines::read_line(json_lines::mended_line(line, storage, count), field, parsed);
  if (replaced != nullptr) *replaced += count;
  if (!parsed)
    throw_error(ErrorKind::data, {where, ": is not valid JSON, at byte ", reader.position, " of the line: ",
                                  files::printable(utf8::repaired(reader.message, storage[0]), 300),
                                  "; each line must be one object", otherwise});
  if (!reader.object)
    throw_error(ErrorKind::data,
                {where, ": is JSON, but not an object; each line must be one object", otherwise});
  if (!reader.found)
    throw_error(ErrorKind::data,
                {where, ": has no field '", files::printable(field), "', its fields are: ",
                 reader.names.empty() ? "none" : files::printable(reader.names), "; give --field NAME"});
  if (reader.wrong)
    throw_error(ErrorKind::data,
                {where, ": the field '", files::printable(field), "' is not text; give --field NAME"});
  return std::move(reader.text);
}

}  // namespace v0
}  // namespace tessera
