// SPDX-License-Identifier: Apache-2.0
// Provides UTF-8 decoding and the character properties that tokenizers use.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/io/utf8.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// Returns the character at byte `at` of valid UTF-8 text and moves `at` to the byte after it.
inline char32_t next_character(std::string_view text, std::size_t& at) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto const tail = [&](std::size_t i) { return static_cast<char32_t>(byte(i) & 0x3f); };
  std::size_t const i = at;
  if (byte(i) < 0x80) return at += 1, byte(i);
  if (byte(i) < 0xe0) return at += 2, (char32_t{byte(i)} & 0x1f) << 6 | tail(i + 1);
  if (byte(i) < 0xf0) return at += 3, (char32_t{byte(i)} & 0x0f) << 12 | tail(i + 1) << 6 | tail(i + 2);
  return at += 4, (char32_t{byte(i)} & 0x07) << 18 | tail(i + 1) << 12 | tail(i + 2) << 6 | tail(i + 3);
}

/// Returns the number of bytes of the UTF-8 character whose first byte is `first`.
inline std::size_t character_bytes(char first) {
  auto const byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

void append_character(std::string& text, char32_t character);

using utf8::first_invalid;
using utf8::repaired;

/// Whether a character is in the Unicode categories L* (is_letter) or N* (is_number).
bool is_letter(char32_t character);
bool is_number(char32_t character);
/// Whether \w of Rust's regular expressions matches the character: a letter, mark, digit, connector or
/// joiner.
bool is_word(char32_t character);
/// Whether the character has the Unicode property White_Space.
bool is_space(char32_t character);

/// Whether the character that ends directly before byte `at` is a letter. The bytes are possibly not valid
/// UTF-8.
bool letter_before(std::string_view bytes, std::size_t at);

enum class Form { nfc, nfd, nfkc, nfkd };

/// Returns valid UTF-8 text in a Unicode normal form. The result is `text` itself if it is ASCII, otherwise a
/// view of `storage`.
std::string_view normal_form(std::string_view text, Form form, std::string& storage);

}  // namespace text
}  // namespace programs
