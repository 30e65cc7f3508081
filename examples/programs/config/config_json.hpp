// SPDX-License-Identifier: Apache-2.0
// Parses the text of a DeepSpeed configuration as JSON or Hjson, as DeepSpeed does. Hjson allows comments,
// missing or extra commas, and keys and strings without quotes. A key must not occur twice in an object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/io/utf8.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

using Json = nlohmann::ordered_json;

namespace config {

/// Parses text as Python's package hjson 3.1 does, except that it refuses multiline strings ('''...''').
class HjsonReader {
 public:
  HjsonReader(std::string_view text, std::string const& name) : text_(text), name_(name) {
    if (text.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  Json read() {
    Json json;
    if (std::size_t const at = utf8::first_invalid(text_); at < text_.size()) {
      at_ = at;
      fail("bytes that are not UTF-8");
    }
    skip();
    if (at_ < text_.size()) json = next() == '{' || next() == '[' ? value(0) : object(0, false);
    skip();
    if (at_ < text_.size()) fail("unexpected text after the end of the object");
    if (!json.is_object())
      throw Error(
          ErrorKind::config,
          name_ + ": is not a JSON object; a configuration must be one: {\"train_batch_size\": 32, ...}");
    return json;
  }

 private:
  [[noreturn]] void fail(std::string const& what) const {
    std::string_view const before = text_.substr(0, at_);
    std::size_t const line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    std::size_t const column = at_ - (before.rfind('\n') + 1) + 1;
    throw Error(ErrorKind::config, name_ + ": is not valid JSON, parse error at line " +
                                       std::to_string(line) + ", column " + std::to_string(column) + ": " +
                                       what);
  }

  /// Returns the character `ahead` positions after the current one; 0 past the end of the text.
  char next(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view with) const { return text_.substr(at_).starts_with(with); }
  bool at_line_end() const { return at_ == text_.size() || next() == '\n' || next() == '\r'; }
  bool at_comment() const { return next() == '#' || starts("//") || starts("/*"); }

  /// Skips white space and comments.
  void skip() {
    while (at_ < text_.size()) {
      if (std::string_view(" \t\r\n").find(next()) != std::string_view::npos) {
        ++at_;
      } else if (starts("/*")) {
        std::size_t const end = text_.find("*/", at_ + 2);
        if (end == text_.npos) fail("a comment /* has no end; close it with */");
        at_ = end + 2;
      } else if (at_comment()) {
        while (!at_line_end()) ++at_;
      } else {
        break;
      }
    }
  }

  Json value(int depth) {
    constexpr int max_depth = 16;
    if (depth > max_depth)
      throw Error(
          ErrorKind::config,
          name_ + ": is nested too deeply for a configuration; give the JSON file of a configuration");
    switch (next()) {
      case '{':
        ++at_;
        return object(depth, true);
      case '[':
        ++at_;
        return array(depth);
      case '"':
      case '\'':
        if (starts("'''")) fail("a string of several lines in ''' is not supported; write it in quotes");
        return quoted();
      default:
        return bare();
    }
  }

  Json object(int depth, bool braces) {
    Json json = Json::object();
    while (true) {
      skip();
      if (braces ? next() == '}' : at_ == text_.size()) break;
      std::string const name = key();
      skip();
      if (next() != ':') fail("a colon is missing after the key " + in_quotes(name));
      ++at_;
      skip();
      if (json.contains(name))
        throw Error(ErrorKind::config,
                    name_ + ": the key " + in_quotes(name) + " is given twice; leave one out");
      json[name] = value(depth + 1);
      skip();
      if (next() == ',') ++at_;
    }
    if (braces) ++at_;
    return json;
  }
  Json array(int depth) {
    Json json = Json::array();
    while (true) {
      skip();
      if (next() == ']') break;
      json.push_back(value(depth + 1));
      skip();
      if (next() == ',') ++at_;
    }
    ++at_;
    return json;
  }

  std::string key() {
    if (next() == '"' || next() == '\'') return quoted();
    std::size_t const begin = at_;
    while (next() != ':') {
      if (at_ == text_.size()) fail("the end of the file, where a key or the end of an object is expected");
      if (std::string_view("{}[],").find(next()) != std::string_view::npos)
        fail("'" + std::string(1, next()) + "', where a key is expected");
      ++at_;
    }
    std::string const name = trimmed(text_.substr(begin, at_ - begin));
    if (name.empty()) fail("a colon without a key before it");
    if (name.find_first_of(" \t\r\n") != name.npos)
      fail("the key " + in_quotes(name) + " contains white space; put it in quotes, or add a colon after it");
    return name;
  }

  std::string quoted() {
    char const quote = next();
    std::size_t const begin = at_++;
    std::string json = "\"";  // the string as JSON, in which a single quote needs no escape
    while (next() != quote) {
      if (at_line_end()) {
        at_ = begin;
        fail("a string has no closing quote on its line");
      }
      if (starts("\\'")) {
        json += '\'';
        at_ += 2;
      } else if (next() == '\\') {
        json += text_.substr(at_, 2);
        at_ = std::min(at_ + 2, text_.size());
      } else {
        json += next() == '"' ? "\\\"" : std::string(1, next());
        ++at_;
      }
    }
    ++at_;
    try {
      return Json::parse(json + "\"").get<std::string>();
    } catch (Json::exception const&) {
      at_ = begin;
      fail("a string with a control character or an unknown escape");
    }
  }

  /// Reads a value without quotes. A literal (true, false, null) or a number ends at a comma, a bracket or a
  /// comment. Any other value is a string that extends to the end of the line.
  Json bare() {
    if (at_ == text_.size() || std::string_view("{}[],:").find(next()) != std::string_view::npos)
      fail(at_ == text_.size() ? "the end of the file, where a value is expected"
                               : "'" + std::string(1, next()) + "', where a value is expected");
    std::size_t const begin = at_;
    for (;; ++at_) {
      bool const ends = at_line_end();
      if (!ends && std::string_view(",}]").find(next()) == std::string_view::npos && !at_comment()) continue;
      std::string const word = trimmed(text_.substr(begin, at_ - begin));
      bool const literal = word == "true" || word == "false" || word == "null";
      bool const number = word.find_first_not_of("0123456789+-.eE") == word.npos;
      if (Json const json = literal || number ? Json::parse(word, nullptr, false) : Json();
          literal || (number && json.is_number()))
        return json;
      if (!ends) continue;
      return word;
    }
  }

  static std::string trimmed(std::string_view text) {
    std::size_t const begin = text.find_first_not_of(" \t\r\n");
    if (begin == text.npos) return {};
    return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin));
  }

  std::string_view text_;
  std::string const& name_;
  std::size_t at_ = 0;
};

}  // namespace config

/// Returns the JSON object in the text of a configuration. `name` is the file's name for messages. Throws
/// Error(config) for a syntax error, a repeated key, or a text that is too long or too deeply nested.
inline Json parse_config(std::string_view text, std::string const& name) {
  constexpr std::size_t max_bytes = 1 << 20;
  if (text.size() > max_bytes)
    throw Error(
        ErrorKind::config,
        name + ": is larger than 1 MiB, so it is not a configuration; name the JSON file of a configuration");
  return config::HjsonReader(text, name).read();
}

}  // namespace cli
}  // namespace programs
