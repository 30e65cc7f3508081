// SPDX-License-Identifier: Apache-2.0
#include "text/split.hpp"

#include <algorithm>
#include <new>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "text/unicode.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<char const*>(text);
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
  // PCRE2's own \s has U+180E too.
  constexpr char spaces[] =
      "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
  auto const refuse = [&](std::string_view what) {
    v0::detail::throw_error(ErrorKind::data,
                            {name, ": the expression '", v0::detail::printable(pattern), "' holds ", what,
                             ", which tessera does not run; use a tokenizer without it"});
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
      else if (std::string_view("hHRXKGyYO").find(next) != std::string_view::npos)
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
    throw Error(ErrorKind::data, name + ": cannot use the expression '" + v0::detail::printable(pattern) +
                                     "' (" + message_of(code) + "); use a tokenizer without it");
  code_ = std::shared_ptr<void>(made, [](void* code_) { pcre2_code_free(static_cast<pcre2_code*>(code_)); });
  (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);  // without it matches are slower, and the same
}

void Expression::split(std::string_view text, Delimiter delimiter, bool invert, MatchRoom& room,
                       Pieces& out) const {
  auto* const code = static_cast<pcre2_code*>(code_.get());
  if (!room.data_) {
    room.data_ = std::shared_ptr<void>(pcre2_match_data_create_from_pattern(code, nullptr), [](void* data) {
      pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
    });
    if (!room.data_) throw std::bad_alloc();
  }
  auto* const data = static_cast<pcre2_match_data*>(room.data_.get());
  auto const* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto& stretches = room.stretches_;
  stretches.clear();
  bool const plain = delimiter == Delimiter::isolated;  // by far the most frequent: no list is needed
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
      throw Error(ErrorKind::data, name_ + ": the expression gives up on a text (" + message_of(found) +
                                       "); use a tokenizer with a simpler one");
    PCRE2_SIZE const* const ends = pcre2_get_ovector_pointer(data);
    add(done, ends[0], false);
    add(ends[0], ends[1], true);
    done = at = ends[1];
    if (ends[0] == ends[1] && at < text.size()) at += character_bytes(text[at]);  // an empty match cuts there
  }
  add(done, text.size(), false);
  if (!plain) join_stretches(stretches, delimiter, out);
}

}  // namespace text
}  // namespace v0
}  // namespace tessera
