// SPDX-License-Identifier: Apache-2.0
// Provides a BPE tokenizer as tokenizer.json describes it: added tokens, normalizers, pre-tokenizers and
// model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/bpe.hpp"
#include "text/split.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

struct Prepend {
  std::string text;
};
struct Replace {
  std::string from, to;
};
using Normalizer = std::variant<Form, Prepend, Replace>;

struct ByteLevel {
  bool prefix_space = false;
  bool split = true;  ///< splits by GPT-2's expression
};
struct Split {
  Expression expression;
  Delimiter delimiter = Delimiter::isolated;
  bool invert = false;
  bool known = false;  ///< a letter before a space or a line end always ends a piece
};
struct Digits {
  bool individual = false;
};
struct Metaspace {
  enum class Scheme { always, first, never };
  std::string replacement;
  Scheme scheme = Scheme::always;
  bool split = true;
};
using PreTokenizer = std::variant<ByteLevel, Split, Digits, Metaspace>;

/// A tokenizer as a folder's files describe it, read and checked.
struct BpeDescription {
  std::string name;       ///< file name for messages
  Vocabulary vocabulary;  ///< keyed by token bytes if symbols are bytes
  Vocabulary spelled;     ///< keyed by the file's spelling if symbols are bytes; else empty
  std::vector<Bpe::Merge> merges;
  Bpe::Options model;
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Ids before, behind;  ///< tokens that the post-processor puts around a text

  /// Returns the vocabulary with the spelling of the file.
  Vocabulary const& tokens() const { return spelled.empty() ? vocabulary : spelled; }
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeDescription description);

  std::unique_ptr<Encoder> encoder() const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string token_text(TokenId id) const override;
  std::size_t cut(std::string_view bytes, std::size_t least) const override;

  void set_end_of_text(Ids behind) { behind_ = std::move(behind); }
  void set_before(Ids before) { before_ = std::move(before); }
  void set_source(std::string description, std::string hash) {
    description_ = std::move(description);
    hash_ = std::move(hash);
  }

 private:
  friend class BpeEncoder;

  std::string normalize(std::string_view text, bool begins) const;
  /// The positions where a text may be cut: before a space, before a line end, or nowhere.
  enum class Cuts { nowhere, spaces, spaces_and_lines };
  Cuts find_cuts() const;

  std::string name_;
  std::vector<AddedToken> added_;
  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  Bpe bpe_;
  AddedTokens raw_, normalized_, all_;
  bool spaces_end_words_ = false;  // no token has U+2581 after another character
  Cuts cuts_ = Cuts::nowhere;
};

/// Returns the bytes that a token of the byte-level alphabet represents; nothing if a character is not in the
/// alphabet.
std::optional<std::string> bytes_of(std::string_view token);
/// gpt2_expression is GPT-2's expression. is_known_expression checks whether the pieces of an expression
/// always end after a letter that is followed by a space or a line end.
extern char const* const gpt2_expression;
bool is_known_expression(std::string_view pattern);

}  // namespace text
}  // namespace programs
