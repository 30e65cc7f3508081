// SPDX-License-Identifier: Apache-2.0
// Provides the values of a Hugging Face config.json by key. A value in an inner object has a dotted key, such
// as "rope_parameters.rope_theta". This header needs no JSON library; io/model_folder.hpp reads the file.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// One value of a config.json, kept as JSON text.
struct HubValue {
  enum class Kind : std::uint8_t { null, boolean, number, text, other };  ///< other: an object or a list

  Kind kind = Kind::null;
  std::string json = "null";
  double number = 0.0;  ///< for a number its value, for a boolean 0 or 1

  HubValue() = default;
  HubValue(Kind what, std::string spelled, double value = 0.0)
      : kind(what), json(std::move(spelled)), number(value) {}
  HubValue(char const* text) : HubValue(Kind::text, '"' + std::string(text) + '"') {}
  template <class N>
  requires std::is_arithmetic_v<N> HubValue(N value)
      : kind(std::is_same_v<N, bool> ? Kind::boolean : Kind::number), number(static_cast<double>(value)) {
    if constexpr (std::is_same_v<N, bool>) {
      json = value ? "true" : "false";
    } else {
      char digits[32];
      json.assign(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    }
  }

  friend bool operator==(HubValue const& a, HubValue const& b) {
    return a.kind == b.kind && (a.kind == Kind::number ? a.number == b.number : a.json == b.json);
  }
};

/// Keys and values to write into a config.json.
using HubEntries = std::vector<std::pair<std::string, HubValue>>;

/// Holds the values of a config.json. While a model family reads the values, this object records unsupported
/// features and settings that Tessera does not apply. Throws Error(data) with the file and the key if a value
/// is invalid.
class HubConfig {
 public:
  std::string name = "config.json";  ///< the path, for messages
  std::string source = {};           ///< the file's text, with the keys that Tessera ignores
  std::map<std::string, HubValue, std::less<>> values = {};

  /// Returns the value of a key, or null if the key is missing. A JSON null in the file is a value of
  /// Kind::null.
  HubValue const* find(std::string_view key) const;
  /// Whether the key exists and is not null.
  bool has(std::string_view key) const;

  /// Returns the value of a key, a number above 0. Throws Error(data) for a missing key or another value.
  double real(std::string const& key) const;
  /// Returns the value of a key, a whole number from 1 to 2^31 - 1. Throws Error(data) for a missing key or
  /// another value.
  double integer(std::string const& key) const;
  bool flag(std::string const& key, bool absent) const;

  /// Returns the token id at a key, -1 for a JSON null, or `absent` for a missing key. A negative number in
  /// the file counts from the end of the vocabulary, as in PyTorch: -2 is the token vocabulary - 2. Throws
  /// Error(data) for another value.
  double token(std::string const& key, std::int64_t vocabulary, double absent) const;

  /// Records `key` as an unsupported feature if its value is not in `supported`. A missing key counts as the
  /// first value of `supported`. If this first value is false, a JSON null counts as false.
  void support(std::string const& key, std::vector<HubValue> const& supported);
  void record_unsupported(std::string feature);
  /// Records a setting that affects only training and that Tessera does not apply, such as a dropout
  /// probability. `here` is the value with which Tessera computes; a setting with this value is not recorded.
  /// `absent` is the value of a missing key.
  void record_unapplied(std::string const& key, double here, double absent);

  /// Throws Error(unsupported) with a list of all recorded unsupported features. Returns if there are none.
  void refuse_unsupported(std::string const& title) const;
  /// Returns the list of settings that Tessera does not apply, such as "resid_pdrop 0.1, attn_pdrop 0.1".
  /// Empty if there are none.
  std::string not_applied() const;

  [[noreturn]] void fail(std::string const& key, HubValue const& value, std::string const& needed) const;

 private:
  static std::string list(std::vector<std::string> const& items);

  double number(std::string const& key, std::string const& needed, bool integral) const;

  std::vector<std::string> unsupported_, not_applied_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/hub_config_definitions.hpp"
#endif
