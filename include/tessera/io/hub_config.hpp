// SPDX-License-Identifier: Apache-2.0
// A config.json of Hugging Face as families of models read it: values by key, those of an object within it
// behind a point, "rope_parameters.rope_theta". Needs no JSON library; io/model_folder.hpp reads the file.
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

/// One value of a config.json, kept as JSON spells it.
struct HubValue {
  enum class Kind : std::uint8_t { null, boolean, number, text, other };  ///< other: an object or a list

  Kind kind = Kind::null;
  std::string json = "null";
  double number = 0.0;  ///< of a number; of a boolean 0 or 1

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

/// Values to write into a config.json.
using HubEntries = std::vector<std::pair<std::string, HubValue>>;

/// The values of a config.json, and what was found out while a family read them: features that it lacks, and
/// what will not be applied. Values that cannot be are Error(data) with file and key.
class HubConfig {
 public:
  std::string name = "config.json";  ///< the path, for messages
  std::string source = {};           ///< the file's text; what is not understood stays when it is written
  std::map<std::string, HubValue, std::less<>> values = {};

  /// Null where there is none; a null of the file is a value.
  HubValue const* find(std::string_view key) const;
  /// There, and not null.
  bool has(std::string_view key) const;

  /// A number above 0.
  double real(std::string const& key) const;
  /// A whole number from 1 to 2^31 - 1.
  double whole(std::string const& key) const;
  bool flag(std::string const& key, bool absent) const;

  /// Returns a token id, or -1 for null. A negative number counts from the end of the vocabulary, as in
  /// PyTorch.
  double token(std::string const& key, std::int64_t vocabulary, double absent) const;

  /// Records the key as an unsupported feature unless its value is in the list. The first value is the
  /// default for a missing key. If that is false, null counts as false.
  void support(std::string const& key, std::vector<HubValue> const& supported);
  void lack(std::string feature);
  /// Notes a number that is not as it is here and changes nothing but the training: a dropout.
  void passed_over(std::string const& key, double here, double absent);

  /// Throws Error(unsupported) with all features that are lacking.
  void refuse_lacking(std::string const& title) const;
  /// "resid_pdrop 0.1, attn_pdrop 0.1"; empty: nothing.
  std::string not_applied() const;

  [[noreturn]] void fail(std::string const& key, HubValue const& value, std::string const& needed) const;

 private:
  static std::string list(std::vector<std::string> const& items);

  double number(std::string const& key, std::string const& needed, bool is_whole) const;

  std::vector<std::string> lacking_, not_applied_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/hub_config_definitions.hpp"
#endif
