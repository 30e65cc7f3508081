// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/hub_config.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/hub_config.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_INLINE HubValue const* HubConfig::find(std::string_view key) const {
  auto const at = values.find(key);
  return at == values.end() ? nullptr : &at->second;
}

TESSERA_INLINE bool HubConfig::has(std::string_view key) const {
  HubValue const* const value = find(key);
  return value != nullptr && value->kind != HubValue::Kind::null;
}

TESSERA_INLINE double HubConfig::real(std::string const& key) const {
  return number(key, "a number above 0", false);
}

TESSERA_INLINE double HubConfig::integer(std::string const& key) const {
  return number(key, "a whole number from 1 to 2147483647", true);
}

TESSERA_INLINE bool HubConfig::flag(std::string const& key, bool absent) const {
  if (!has(key)) return absent;
  HubValue const& value = *find(key);
  if (value.kind != HubValue::Kind::boolean) fail(key, value, "true or false");
  return value.number != 0.0;
}

TESSERA_INLINE double HubConfig::token(std::string const& key, std::int64_t vocabulary, double absent) const {
  HubValue const* const value = find(key);
  if (value == nullptr) return absent;
  if (value->kind == HubValue::Kind::null) return -1.0;
  double const size = static_cast<double>(vocabulary);
  double const at = value->number < 0.0 ? size + value->number : value->number;
  if (value->kind != HubValue::Kind::number || !(at >= 0.0 && at < size) || at != std::floor(at))
    fail(key, *value, "null or a token of the vocabulary");
  return at;
}

TESSERA_INLINE void HubConfig::support(std::string const& key, std::vector<HubValue> const& supported) {
  HubValue const* const value = find(key);
  if (value == nullptr) return;
  if (value->kind == HubValue::Kind::null && supported.front() == HubValue(false)) return;
  for (HubValue const& one : supported)
    if (*value == one) return;
  record_unsupported(key + " " + files::printable(value->json, 60) + " instead of " + supported.front().json);
}

TESSERA_INLINE void HubConfig::record_unsupported(std::string feature) {
  unsupported_.push_back(std::move(feature));
}

TESSERA_INLINE void HubConfig::record_unapplied(std::string const& key, double here, double absent) {
  double const given = has(key) && find(key)->kind == HubValue::Kind::number ? find(key)->number : absent;
  if (given != here) not_applied_.push_back(key + " " + HubValue(given).json);
}

TESSERA_INLINE void HubConfig::refuse_unsupported(std::string const& title) const {
  if (unsupported_.empty()) return;
  throw Error(ErrorKind::unsupported,
              name + ": needs features that " + title + " does not support: " + list(unsupported_) +
                  "; choose a model without " + (unsupported_.size() == 1 ? "it" : "them"));
}

TESSERA_INLINE std::string HubConfig::not_applied() const { return list(not_applied_); }

TESSERA_INLINE void HubConfig::fail(std::string const& key, HubValue const& value,
                                    std::string const& needed) const {
  throw Error(ErrorKind::data,
              name + ": " + key + " is " + files::printable(value.json, 60) + "; " + needed + " is needed");
}

TESSERA_INLINE std::string HubConfig::list(std::vector<std::string> const& items) {
  std::string text;
  for (std::string const& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

TESSERA_INLINE double HubConfig::number(std::string const& key, std::string const& needed,
                                        bool integral) const {
  HubValue const* const value = find(key);
  if (value == nullptr) throw Error(ErrorKind::data, name + ": lacks " + key + ", " + needed);
  double const at = value->number;
  bool const right = value->kind == HubValue::Kind::number && std::isfinite(at) && at > 0.0 &&
                     (!integral || (at == std::floor(at) && at <= 2147483647.0));
  if (!right) fail(key, *value, needed);
  return at;
}

}  // namespace v0
}  // namespace tessera
