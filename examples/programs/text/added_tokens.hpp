// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text. An added token, such as "<|endoftext|>", matches its whole text at any
// position, as in Hugging Face's package tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.hpp"

namespace programs {
namespace text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool left_strip = false, right_strip = false;  ///< the match includes the white space on this side
  bool single_word = false;                      ///< matches only if no word character is next to it
  bool normalized = false;                       ///< searched for in normalized text, else in original text
};

/// Adds tokens to a list and gives them the same ids as Hugging Face's package tokenizers. If the vocabulary
/// has a token with the same text, the added token gets the id of that token. Otherwise it gets the next
/// unused id. If a text is added twice, the flags of the second one count.
class AddedTokenList {
 public:
  /// `tokens` is the list. `find` returns the id of a text in the vocabulary, which has `size` tokens.
  AddedTokenList(std::vector<AddedToken>& tokens, std::int64_t size,
                 std::function<std::optional<TokenId>(std::string const&)> find);
  /// Adds a token to the list and returns its id.
  TokenId add(AddedToken token);
  bool contains(std::string_view content) const;

 private:
  std::vector<AddedToken>& tokens_;
  std::int64_t next_;
  std::function<std::optional<TokenId>(std::string const&)> find_;
};

/// Searches a text for the leftmost added token. If several tokens begin at one position, the longest one
/// matches.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);
  struct Match {
    std::size_t begin, end;  ///< bytes of the match, with the white space that belongs to it
    std::size_t next;        ///< the search for the next token begins here
    TokenId id;
  };
  /// Returns the first match that starts at or after byte `from`. Bytes before `done` belong to earlier
  /// matches, so a token with left_strip includes no white space before `done`.
  std::optional<Match> find(std::string_view text, std::size_t from, std::size_t done) const;
  /// Whether an added token begins before byte `at` of the text and ends at `at` or later.
  bool touch(std::string_view text, std::size_t at) const;
  /// Whether an added token begins at byte `at` of the text.
  bool begin_at(std::string_view text, std::size_t at) const { return longest_at(text, at) != nullptr; }
  bool empty() const { return tokens_.empty(); }
  std::size_t longest() const { return longest_; }

 private:
  AddedToken const* longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;   // sorted by first byte, then by length, longest first
  std::vector<std::size_t> starts_;  // for each first byte: index of its first token
  std::string first_bytes_;
  std::size_t longest_ = 0;
};

}  // namespace text
}  // namespace programs
