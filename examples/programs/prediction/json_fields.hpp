// SPDX-License-Identifier: Apache-2.0
// Reads values of JSON objects in files of machine times, and says which value is wrong.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace json_fields {

/// Returns the value of the key `key`. Throws Error(data) if the key is missing or the value has another
/// type. `is` is the test of the type, `type` its name in the message.
inline nlohmann::ordered_json const& value_in(nlohmann::ordered_json const& json, char const* key,
                                              bool (nlohmann::ordered_json::*is)() const noexcept,
                                              char const* type) {
  if (!json.is_object()) throw Error(ErrorKind::data, "it is not an object");
  auto const found = json.find(key);
  if (found == json.end()) throw Error(ErrorKind::data, "it has no " + in_quotes(key));
  if (!((*found).*is)()) throw Error(ErrorKind::data, in_quotes(key) + " is not " + type);
  return *found;
}

/// Returns the number at the key `key`. Throws Error(data) if it is not between `min` and `max`.
inline double number_in(nlohmann::ordered_json const& json, char const* key, double min, double max) {
  double const number = value_in(json, key, &nlohmann::ordered_json::is_number, "a number").get<double>();
  if (!(number >= min && number <= max))
    throw Error(ErrorKind::data,
                in_quotes(key) + " is not a number from " + shortest(min) + " to " + shortest(max));
  return number;
}

/// Returns the number of ranks at the key `key`. Throws Error(data) if it is not a whole number from `min` to
/// 65536.
inline int ranks_in(nlohmann::ordered_json const& json, char const* key, int min) {
  double const number = number_in(json, key, min, 65536);
  if (number != static_cast<int>(number))
    throw Error(ErrorKind::data, std::string(key) + " is not a whole number");
  return static_cast<int>(number);
}

/// Returns the text at the key `key`. Throws Error(data) if it is not a text.
inline std::string text_in(nlohmann::ordered_json const& json, char const* key) {
  return value_in(json, key, &nlohmann::ordered_json::is_string, "a text").get<std::string>();
}

}  // namespace json_fields
}  // namespace cli
}  // namespace programs
