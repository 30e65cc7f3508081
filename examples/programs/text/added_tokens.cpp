// SPDX-License-Identifier: Apache-2.0
// Implements the search for added tokens, such as "<|endoftext|>", in a text.
#include "text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

/// Whether a word character starts at byte `at` of valid UTF-8 text (word_at), or ends there (word_before).
bool word_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word(next_character(text, at));
}
bool word_before(std::string_view text, std::size_t at) {
  if (at == 0) return false;
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return word_at(text, at);
}

}  // namespace

AddedTokenList::AddedTokenList(std::vector<AddedToken>& tokens, std::int64_t size,
                               std::function<std::optional<TokenId>(std::string const&)> find)
    : tokens_(tokens), next_(size), find_(std::move(find)) {
  for (AddedToken const& token : tokens_) next_ = std::max(next_, std::int64_t{token.id} + 1);
}

TokenId AddedTokenList::add(AddedToken token) {
  for (AddedToken& there : tokens_)
    if (there.content == token.content) {
      token.id = there.id;
      there = std::move(token);
      return there.id;
    }
  std::optional<TokenId> const own = find_(token.content);
  token.id = own ? *own : static_cast<TokenId>(next_);
  next_ = std::max(next_, std::int64_t{token.id} + 1);
  tokens_.push_back(token);
  return token.id;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), starts_(257) {
  auto const first = [](AddedToken const& token) { return static_cast<unsigned char>(token.content[0]); };
  std::stable_sort(tokens_.begin(), tokens_.end(), [&](AddedToken const& a, AddedToken const& b) {
    return first(a) != first(b) ? first(a) < first(b) : a.content.size() > b.content.size();
  });
  for (AddedToken const& token : tokens_) {
    ++starts_[first(token) + std::size_t{1}];
    longest_ = std::max(longest_, token.content.size());
    if (first_bytes_.empty() || first_bytes_.back() != token.content[0]) first_bytes_ += token.content[0];
  }
  for (std::size_t byte = 1; byte < starts_.size(); ++byte) starts_[byte] += starts_[byte - 1];
}

AddedToken const* AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  auto const byte = static_cast<unsigned char>(text[at]);
  for (std::size_t i = starts_[byte]; i < starts_[byte + std::size_t{1}]; ++i)
    if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

bool AddedTokenList::contains(std::string_view content) const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [&](AddedToken const& there) { return there.content == content; });
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from,
                                                    std::size_t done) const {
  if (tokens_.empty()) return std::nullopt;
  bool const one = first_bytes_.size() == 1;
  for (std::size_t at = from; at < text.size(); ++at) {
    at = one ? text.find(first_bytes_[0], at) : text.find_first_of(first_bytes_, at);
    if (at == text.npos) break;
    AddedToken const* const token = longest_at(text, at);
    if (!token) continue;
    Match match{at, at + token->content.size(), at + token->content.size(), token->id};
    if (token->single_word && (word_before(text, match.begin) || word_at(text, match.end))) {
      at = match.end - 1;  // no other token is searched for inside this text
      continue;
    }
    if (token->left_strip) match.begin = std::max(match.begin, done);
    while (token->left_strip && match.begin > done) {
      std::size_t before = match.begin - 1;
      while (before > done && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
      std::size_t after = before;
      if (!is_space(next_character(text, after))) break;
      match.begin = before;
    }
    while (token->right_strip && match.end < text.size()) {
      std::size_t after = match.end;
      if (!is_space(next_character(text, after))) break;
      match.end = after;
    }
    if (match.begin < match.end) return match;
    at = match.next - 1;  // an earlier token already included this whole match as white space
  }
  return std::nullopt;
}

bool AddedTokens::touch(std::string_view text, std::size_t at) const {
  for (std::size_t begin = at - std::min(at, longest_); begin < at; ++begin)
    for (std::size_t i = starts_[static_cast<unsigned char>(text[begin])];
         i < starts_[static_cast<unsigned char>(text[begin]) + std::size_t{1}]; ++i)
      if (begin + tokens_[i].content.size() >= at && text.substr(begin).starts_with(tokens_[i].content))
        return true;
  return false;
}

}  // namespace text
}  // namespace programs
