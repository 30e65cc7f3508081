// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text. They are matched as whole strings at any position, as in Hugging Face's
// package tokenizers.
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
  bool left_strip = false, right_strip = false;  ///< also takes the white space next to it
  bool single_word = false;                      ///< matches only if no word character is next to it
  bool normalized = false;                       ///< is searched for after normalization
};

/// Adds tokens to a vocabulary and assigns their ids as Hugging Face's package tokenizers does: the id in the
/// vocabulary if it has the text, else the next unused id. If two tokens have the same text, the flags of the
/// last one count.
class AddedTokenList {
 public:
  /// `find` looks up a text in the vocabulary, which has `size` tokens.
  AddedTokenList(std::vector<AddedToken>& tokens, std::int64_t size,
                 std::function<std::optional<TokenId>(std::string const&)> find);
  /// Adds the token and returns its id.
  TokenId add(AddedToken token);
  bool contains(std::string_view content) const;

 private:
  std::vector<AddedToken>& tokens_;
  std::int64_t next_;
  std::function<std::optional<TokenId>(std::string const&)> find_;
};

/// Searches a text for the leftmost added token. If several begin there, the longest one matches.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);
  struct Match {
    std::size_t begin, end;  ///< includes the white space that it takes
    std::size_t next;        ///< where to search for the next token
    TokenId id;
  };
  /// Returns the first match at or after `from`. A token that strips the white space on its left strips none
  /// before `done`.
  std::optional<Match> find(std::string_view text, std::size_t from, std::size_t done) const;
  /// Returns whether some token overlaps or ends at position `at`.
  bool touch(std::string_view text, std::size_t at) const;
  /// Returns whether some token begins at position `at`.
  bool begin_at(std::string_view text, std::size_t at) const { return longest_at(text, at) != nullptr; }
  bool empty() const { return tokens_.empty(); }
  std::size_t longest() const { return longest_; }

 private:
  AddedToken const* longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;   // sorted by first byte, then longest first
  std::vector<std::size_t> starts_;  // index of the first token for each first byte
  std::string first_bytes_;
  std::size_t longest_ = 0;
};

}  // namespace text
}  // namespace programs
