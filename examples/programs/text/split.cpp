// SPDX-License-Identifier: Apache-2.0
// Implements the splitting of a text by a regular expression, with the library PCRE2.
#include "text/split.hpp"

#include <algorithm>
#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<char const*>(text);
}

/// Characters that belong to a Unicode category since Unicode 15 to 16 and that PCRE2 10.42 does not know.
/// Each entry is the letter of a category and hexadecimal ranges first-last.
constexpr std::pair<char, char const*> additions[] = {
    {'L',
     "1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d4a-10d65 10d6f-10d85 10ec2-10ec4 1123f-11240 11380-11389 "
     "1138b 1138e 11390-113b5 113b7 113d1 113d3 11bc0-11be0 11f02 11f04-11f10 11f12-11f33 1342f 13441-13446 "
     "13460-143fa 16100-1611d 16d40-16d6c 18cff 1b132 1b155 1df25-1df2a 1e030-1e06d 1e4d0-1e4eb 1e5d0-1e5ed "
     "1e5f0 2b739 2ebf0-2ee5d 31350-323af"},
    {'M',
     "897 cf3 ece 10d69-10d6d 10efc-10eff 11241 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 "
     "113e1-113e2 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 11f5a 13440 13447-13455 1611e-1612f 1e08f "
     "1e4ec-1e4ef 1e5ee-1e5ef"},
    {'N',
     "10d40-10d49 116d0-116e3 11bf0-11bf9 11f50-11f59 16130-16139 16d70-16d79 1ccf0-1ccf9 1d2c0-1d2d3 "
     "1e4f0-1e4f9 1e5f1-1e5fa"},
    {'P', "1b4e-1b4f 1b7f 10d6e 113d4-113d5 113d7-113d8 11b00-11b09 11be1 11f43-11f4f 16d6d-16d6f 1e5ff"},
    {'S',
     "2427-2429 2ffc-2fff 31e4-31e5 31ef 10d8e-10d8f 1cc00-1ccef 1cd00-1ceb3 1f6dc 1f774-1f776 1f77b-1f77f "
     "1f7d9 1f8b2-1f8bb 1f8c0-1f8c1 1fa75-1fa77 1fa87-1fa89 1fa8f 1faad-1faaf 1fabb-1fabf 1fac6 1face-1facf "
     "1fada-1fadc 1fadf 1fae8-1fae9 1faf7-1faf8 1fbcb-1fbef"},
};

/// Returns the additional characters of a category in PCRE2 syntax, or "" if there are none.
std::string additions_to(std::string_view category) {
  std::string out;
  for (auto const& [letter, ranges] : additions) {
    if (category != std::string_view(&letter, 1)) continue;
    out = "\\x{";
    for (char const c : std::string_view(ranges))
      out += c == '-' ? std::string("}-\\x{") : c == ' ' ? std::string("}\\x{") : std::string(1, c);
    out += "}";
  }
  return out;
}

}  // namespace

void join_stretches(std::vector<Stretch> const& stretches, Delimiter delimiter, Pieces& out) {
  auto const joined = [](std::string_view first, std::string_view second) {
    return std::string_view(first.data(), first.size() + second.size());
  };
  std::size_t const before = out.size();
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    auto const [text, matches] = stretches[i];
    bool const after = i > 0, after_match = after && stretches[i - 1].matches;
    switch (delimiter) {
      case Delimiter::removed:
        if (!matches) out.push_back(text);
        break;
      case Delimiter::isolated:
        out.push_back(text);
        break;
      case Delimiter::merged_with_previous:
        if (matches && after && !after_match)
          out.back() = joined(out.back(), text);
        else
          out.push_back(text);
        break;
      case Delimiter::merged_with_next:
        if (!matches && after_match)
          out.back() = joined(out.back(), text);
        else
          out.push_back(text);
        break;
      case Delimiter::contiguous:
        if (out.size() > before && after_match == matches)
          out.back() = joined(out.back(), text);
        else
          out.push_back(text);
        break;
    }
  }
}

std::string pcre_pattern(std::string const& name, std::string_view pattern) {
  // Replaces \s, because PCRE2's own \s also includes U+180E.
  constexpr char spaces[] =
      "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
  auto const refuse = [&](std::string_view what) {
    throw_error(ErrorKind::data, {name, ": the expression '", files::printable(pattern), "' holds ", what,
                                  ", which tessera does not support; use a tokenizer without it"});
  };
  std::string out;
  bool in_class = false;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    char const c = pattern[at];
    std::string_view const rest = pattern.substr(at);
    if (c == '\\') {
      if (rest.size() < 2) refuse("a backslash at its end");
      char const next = rest[1];
      ++at;
      if (next == 's')
        out.append(in_class ? "" : "[").append(spaces).append(in_class ? "" : "]");
      else if (next == 'S' && !in_class)
        out.append("[^").append(spaces).append("]");
      else if (next == 'S')
        refuse("\\S in brackets");
      else if ((next == 'p' || (next == 'P' && !in_class)) && rest.size() > 4 && rest[2] == '{' &&
               rest[4] == '}') {
        std::string const more = additions_to(rest.substr(3, 1));
        out.append(in_class      ? ""
                   : next == 'p' ? "["
                                 : "[^")
            .append("\\p")
            .append(rest.substr(2, 3))
            .append(more);
        out.append(in_class ? "" : "]");
        at += 3;
      } else if (std::string_view("hHRXKGyYO").find(next) != std::string_view::npos)
        refuse(std::string("\\") + next);
      else
        out.append(rest.substr(0, 2));
    } else if (in_class) {
      if (rest.starts_with("[:")) {
        std::size_t const end = rest.find(":]");
        if (end == rest.npos) refuse("[: without :]");
        out.append(rest.substr(0, end + 2));
        at += end + 1;
        continue;
      }
      if (c == '[') refuse("brackets in brackets");
      if (rest.starts_with("&&")) refuse("&& in brackets");
      in_class = c != ']';
      out += c;
    } else {
      if (rest.starts_with("(?")) {
        std::size_t const end = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", 2);
        std::string_view const flags = rest.substr(2, end == rest.npos ? end : end - 2);
        bool const options = end != rest.npos && (rest[end] == ':' || rest[end] == ')');
        if (options && flags.find_first_not_of("ix-") != flags.npos) refuse("(?" + std::string(flags));
      }
      out += c;
      if (c == '[') {
        in_class = true;
        if (rest.starts_with("[^")) out += '^', ++at;
        if (pattern.substr(at + 1).starts_with("]")) refuse("brackets that begin with ]");
      }
    }
  }
  return out;
}

Expression::Expression(std::string const& name, std::string_view pattern) : name_(name) {
  std::string const text = pcre_pattern(name, pattern);
  if (first_invalid(text) != text.size())
    throw Error(ErrorKind::data, name + ": the expression is not valid UTF-8");
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                         &code, &offset, nullptr);
  if (made == nullptr)
    throw Error(ErrorKind::data, name + ": cannot use the expression '" + files::printable(pattern) + "' (" +
                                     message_of(code) + "); use a tokenizer without it");
  code_ = std::shared_ptr<void>(made, [](void* code_) { pcre2_code_free(static_cast<pcre2_code*>(code_)); });
  (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);  // without JIT the result is the same, but slower
}

void Expression::split(std::string_view text, Delimiter delimiter, bool invert, MatchScratch& scratch,
                       Pieces& out) const {
  auto* const code = static_cast<pcre2_code*>(code_.get());
  if (!scratch.data_) {
    scratch.data_ = std::shared_ptr<void>(
        pcre2_match_data_create_from_pattern(code, nullptr),
        [](void* data) { pcre2_match_data_free(static_cast<pcre2_match_data*>(data)); });
    if (!scratch.data_) throw std::bad_alloc();
  }
  auto* const data = static_cast<pcre2_match_data*>(scratch.data_.get());
  auto const* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto& stretches = scratch.stretches_;
  stretches.clear();
  bool const plain = delimiter == Delimiter::isolated;  // the most common case; it needs no list of stretches
  auto const add = [&](std::size_t from, std::size_t to, bool matches) {
    if (from == to) return;
    if (plain)
      out.push_back(text.substr(from, to - from));
    else
      stretches.push_back({text.substr(from, to - from), matches != invert});
  };
  std::size_t done = 0, at = 0;
  while (at < text.size()) {
    int const found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw Error(ErrorKind::data, name_ + ": the expression failed on a text (" + message_of(found) +
                                       "); use a tokenizer with a simpler one");
    PCRE2_SIZE const* const ends = pcre2_get_ovector_pointer(data);
    add(done, ends[0], false);
    add(ends[0], ends[1], true);
    done = at = ends[1];
    // after an empty match, the search continues behind the next character
    if (ends[0] == ends[1] && at < text.size()) at += character_bytes(text[at]);
  }
  add(done, text.size(), false);
  if (!plain) join_stretches(stretches, delimiter, out);
}

}  // namespace text
}  // namespace programs
