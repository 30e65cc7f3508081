// SPDX-License-Identifier: Apache-2.0
// A config.json of Hugging Face as families of models read it: values by key, those of an object within it
// behind a point, "rope_parameters.rope_theta". Needs no JSON library; io/model_folder.hpp reads the file.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

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
  HubValue const* find(std::string_view key) const {
    auto const at = values.find(key);
    return at == values.end() ? nullptr : &at->second;
  }
  /// There, and not null.
  bool has(std::string_view key) const {
    HubValue const* const value = find(key);
    return value != nullptr && value->kind != HubValue::Kind::null;
  }

  /// A number above 0.
  double real(std::string const& key) const { return number(key, "a number above 0", false); }
  /// A whole number from 1 to 2^31 - 1.
  double whole(std::string const& key) const {
    return number(key, "a whole number from 1 to 2147483647", true);
  }
  bool flag(std::string const& key, bool absent) const {
    if (!has(key)) return absent;
    HubValue const& value = *find(key);
    if (value.kind != HubValue::Kind::boolean) fail(key, value, "true or false");
    return value.number != 0.0;
  }

  /// Returns a token id, or -1 for null. A negative number counts from the end of the vocabulary, as in
  /// PyTorch.
  double token(std::string const& key, std::int64_t vocabulary, double absent) const {
    HubValue const* const value = find(key);
    if (value == nullptr) return absent;
    if (value->kind == HubValue::Kind::null) return -1.0;
    double const size = static_cast<double>(vocabulary);
    double const at = value->number < 0.0 ? size + value->number : value->number;
    if (value->kind != HubValue::Kind::number || !(at >= 0.0 && at < size) || at != std::floor(at))
      fail(key, *value, "null or a token of the vocabulary");
    return at;
  }

  /// Records the key as an unsupported feature unless its value is in the list. The first value is the
  /// default for a missing key. If that is false, null counts as false.
  void support(std::string const& key, std::vector<HubValue> const& supported) {
    HubValue const* const value = find(key);
    if (value == nullptr) return;
    if (value->kind == HubValue::Kind::null && supported.front() == HubValue(false)) return;
    for (HubValue const& one : supported)
      if (*value == one) return;
    lack(key + " " + v0::detail::printable(value->json, 60) + " instead of " + supported.front().json);
  }
  void lack(std::string feature) { lacking_.push_back(std::move(feature)); }
  /// Notes a number that is not as it is here and changes nothing but the training: a dropout.
  void passed_over(std::string const& key, double here, double absent) {
    double const given = has(key) && find(key)->kind == HubValue::Kind::number ? find(key)->number : absent;
    if (given != here) not_applied_.push_back(key + " " + HubValue(given).json);
  }

  /// Throws Error(unsupported) with all features that are lacking.
  void refuse_lacking(std::string const& title) const {
    if (lacking_.empty()) return;
    throw Error(ErrorKind::unsupported, name + ": asks for what " + title + " lacks here: " + list(lacking_) +
                                            "; choose a model without " +
                                            (lacking_.size() == 1 ? "it" : "them"));
  }
  /// "resid_pdrop 0.1, attn_pdrop 0.1"; empty: nothing.
  std::string not_applied() const { return list(not_applied_); }

  [[noreturn]] void fail(std::string const& key, HubValue const& value, std::string const& needed) const {
    throw Error(ErrorKind::data, name + ": " + key + " is " + v0::detail::printable(value.json, 60) + "; " +
                                     needed + " is needed");
  }

 private:
  static std::string list(std::vector<std::string> const& items) {
    std::string text;
    for (std::string const& item : items) text += (text.empty() ? "" : ", ") + item;
    return text;
  }

  double number(std::string const& key, std::string const& needed, bool is_whole) const {
    HubValue const* const value = find(key);
    if (value == nullptr) throw Error(ErrorKind::data, name + ": lacks " + key + ", " + needed);
    double const at = value->number;
    bool const right = value->kind == HubValue::Kind::number && std::isfinite(at) && at > 0.0 &&
                       (!is_whole || (at == std::floor(at) && at <= 2147483647.0));
    if (!right) fail(key, *value, needed);
    return at;
  }

  std::vector<std::string> lacking_, not_applied_;
};

}  // namespace v0
}  // namespace tessera
