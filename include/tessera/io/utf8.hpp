// SPDX-License-Identifier: Apache-2.0
// Converts any bytes to valid UTF-8: invalid bytes become U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tessera {
inline namespace v0 {
namespace utf8 {

/// Returns the number of bytes of the character at index `at`. `valid` tells whether the character is
/// complete and valid. If it is not, the result is the number of its bytes with which some valid character
/// begins, but at least 1.
inline std::size_t utf8_step(std::string_view bytes, std::size_t at, bool& valid) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  unsigned char const first = byte(at);
  valid = first < 0x80;
  if (valid) return 1;
  if (first < 0xc2 || first > 0xf4) return 1;
  std::size_t const size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // This range for the second byte excludes overlong encodings, surrogates and values beyond U+10FFFF.
  unsigned char const low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char const high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < size; ++i) {
    if (at + i >= bytes.size()) return i;
    unsigned char const next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xbf)) return i;
  }
  valid = true;
  return size;
}

inline std::size_t skip_ascii(std::string_view bytes, std::size_t at) {
  for (std::uint64_t word; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at;
}

/// Returns the index of the first byte, at or after `from`, that does not belong to a valid character.
/// Returns bytes.size() if all are valid.
inline std::size_t first_invalid(std::string_view bytes, std::size_t from = 0) {
  for (std::size_t at = from;;) {
    at = skip_ascii(bytes, at);
    if (at >= bytes.size()) return bytes.size();
    bool valid = false;
    std::size_t const size = utf8_step(bytes, at, valid);
    if (!valid) return at;
    at += size;
  }
}

/// Returns the bytes as valid UTF-8. Each invalid sequence becomes one U+FFFD, as with Python's
/// errors='replace'. Adds the number of replacements to `replaced`. If all bytes are valid, returns `bytes`
/// itself, otherwise a view of `storage`.
inline std::string_view repaired(std::string_view bytes, std::string& storage, std::int64_t& replaced) {
  std::size_t at = first_invalid(bytes);
  if (at == bytes.size()) return bytes;
  storage.clear();
  std::size_t done = 0;
  for (; at < bytes.size(); ++replaced) {
    storage.append(bytes.substr(done, at - done)).append("\xef\xbf\xbd");
    bool valid = false;
    done = at + utf8_step(bytes, at, valid);
    at = first_invalid(bytes, done);
  }
  storage.append(bytes.substr(done));
  return storage;
}
inline std::string_view repaired(std::string_view bytes, std::string& storage) {
  std::int64_t replaced = 0;
  return repaired(bytes, storage, replaced);
}

}  // namespace utf8
namespace detail {
using namespace utf8;
}  // namespace detail
}  // namespace v0
}  // namespace tessera
