// SPDX-License-Identifier: Apache-2.0
// UTF-8 and what Unicode says of a character, as tokenizers ask for it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/io/utf8.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// The character at `at` of valid UTF-8; `at` moves behind it.
inline char32_t next_character(std::string_view text, std::size_t& at) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto const tail = [&](std::size_t i) { return static_cast<char32_t>(byte(i) & 0x3f); };
  std::size_t const i = at;
  if (byte(i) < 0x80) return at += 1, byte(i);
  if (byte(i) < 0xe0) return at += 2, (char32_t{byte(i)} & 0x1f) << 6 | tail(i + 1);
  if (byte(i) < 0xf0) return at += 3, (char32_t{byte(i)} & 0x0f) << 12 | tail(i + 1) << 6 | tail(i + 2);
  return at += 4, (char32_t{byte(i)} & 0x07) << 18 | tail(i + 1) << 12 | tail(i + 2) << 6 | tail(i + 3);
}

/// How many bytes the character takes that begins with this byte of valid UTF-8.
inline std::size_t character_bytes(char first) {
  auto const byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

void append_character(std::string& text, char32_t character);

using utf8::first_invalid;
using utf8::repaired;

/// Categories L*, and N*.
bool is_letter(char32_t character);
bool is_number(char32_t character);
/// Matches \w in Rust's regular expressions: a letter, mark, digit, connector or joiner.
bool is_word(char32_t character);
/// White_Space.
bool is_space(char32_t character);

/// The letter that ends right before `at`, told from bytes of any kind.
bool letter_before(std::string_view bytes, std::size_t at);

enum class Form { nfc, nfd, nfkc, nfkd };

/// A normal form of valid UTF-8. `text` itself where it is ASCII.
std::string_view normal_form(std::string_view text, Form form, std::string& storage);

}  // namespace text
}  // namespace programs
