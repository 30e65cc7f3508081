// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tessera/core/error.hpp"

#include <utf8proc.h>

namespace tessera {
inline namespace v0 {
namespace text {

namespace {

/// How many bytes at `at` are a valid character (then `valid`), or the longest part of one, at least 1.
std::size_t step(std::string_view bytes, std::size_t at, bool& valid) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  unsigned char const first = byte(at);
  valid = first < 0x80;
  if (valid) return 1;
  if (first < 0xc2 || first > 0xf4) return 1;
  std::size_t const size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // What the second byte may be keeps out long spellings, surrogates and what lies beyond U+10FFFF.
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

std::size_t skip_ascii(std::string_view bytes, std::size_t at) {
  for (std::uint64_t word; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at;
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

void append_character(std::string& text, char32_t c) {
  auto const put = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) return put(c);
  if (c < 0x800)
    put(0xc0 | c >> 6);
  else if (c < 0x10000)
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f));
  else
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f));
  put(0x80 | (c & 0x3f));
}

std::size_t first_invalid(std::string_view bytes, std::size_t from) {
  for (std::size_t at = from;;) {
    at = skip_ascii(bytes, at);
    if (at >= bytes.size()) return bytes.size();
    bool valid = false;
    std::size_t const size = step(bytes, at, valid);
    if (!valid) return at;
    at += size;
  }
}

std::string_view repaired(std::string_view bytes, std::string& storage) {
  std::size_t at = first_invalid(bytes);
  if (at == bytes.size()) return bytes;
  storage.clear();
  std::size_t done = 0;
  while (at < bytes.size()) {
    storage.append(bytes.substr(done, at - done)).append("\xef\xbf\xbd");
    bool valid = false;
    done = at + step(bytes, at, valid);
    at = first_invalid(bytes, done);
  }
  storage.append(bytes.substr(done));
  return storage;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  auto const kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  auto const kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool letter_before(std::string_view bytes, std::size_t at) {
  for (std::size_t size = 1; size <= 4 && size <= at; ++size) {
    std::size_t begin = at - size;
    if ((static_cast<unsigned char>(bytes[begin]) & 0xc0) == 0x80) continue;
    bool valid = false;
    return step(bytes.substr(0, at), begin, valid) == size && valid &&
           is_letter(next_character(bytes, begin));
  }
  return false;
}

std::string_view normal_form(std::string_view text, Form form, std::string& storage) {
  if (skip_ascii(text, 0) == text.size()) return text;
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  auto const size = utf8proc_map(reinterpret_cast<utf8proc_uint8_t const*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made,
                                 static_cast<utf8proc_option_t>(options));
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0)
    throw Error(ErrorKind::data, std::string("a text cannot be normalised: ") + utf8proc_errmsg(size));
  storage.assign(reinterpret_cast<char const*>(made), static_cast<std::size_t>(size));
  std::free(made);
  return storage;
}

}  // namespace text
}  // namespace v0
}  // namespace tessera
