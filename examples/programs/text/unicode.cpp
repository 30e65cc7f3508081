// SPDX-License-Identifier: Apache-2.0
// Implements the Unicode properties of characters, and normal forms of text.
#include "text/unicode.hpp"

#include <cstdlib>
#include <new>

#include "tessera/core/error.hpp"

#include <utf8proc.h>

namespace programs {
using namespace tessera;
namespace text {

namespace {

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

bool is_word(char32_t c) {
  if (is_letter(c) || c == 0x200c || c == 0x200d) return true;
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
      (c >= 0x1f170 && c <= 0x1f189))
    return true;  // circled and squared letters
  auto const kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_NL) || kind == UTF8PROC_CATEGORY_PC;
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
    return utf8::utf8_step(bytes.substr(0, at), begin, valid) == size && valid &&
           is_letter(next_character(bytes, begin));
  }
  return false;
}

std::string_view normal_form(std::string_view text, Form form, std::string& storage) {
  if (utf8::skip_ascii(text, 0) == text.size()) return text;
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
}  // namespace programs
