// SPDX-License-Identifier: Apache-2.0
// Provides a BPE tokenizer with the stages that a tokenizer.json describes: added tokens, normalizers,
// pre-tokenizers and the BPE model.
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
  bool split = true;  ///< whether to split the text by GPT-2's expression
};
struct Split {
  Expression expression;
  Delimiter delimiter = Delimiter::isolated;
  bool invert = false;
  bool known = false;  ///< whether a letter before a space or a line end always ends a piece
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

/// The validated contents of the files of a tokenizer.
struct BpeDescription {
  std::string name;       ///< name of the file, for messages
  Vocabulary vocabulary;  ///< token -> id; a token is raw bytes if the model's symbols are bytes
  Vocabulary spelled;     ///< token as in the file -> id, if the symbols are bytes; else empty
  std::vector<Bpe::Merge> merges;
  Bpe::Options model;
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Ids before, behind;  ///< tokens that the post-processor adds before and after a text

  /// Returns the vocabulary in which tokens are spelled as in the file.
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

 private:
  friend class BpeEncoder;

  std::string normalize(std::string_view text, bool begins) const;
  /// The positions at which a text may be cut. If the two parts of the text are encoded separately, the
  /// tokens are the same as without the cut. The positions are before a space, before a space or a line end,
  /// or nowhere.
  enum class Cuts { nowhere, spaces, spaces_and_lines };
  Cuts find_cuts() const;

  std::string name_;
  std::vector<AddedToken> added_;
  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  Bpe bpe_;
  AddedTokens raw_, normalized_, all_;
  bool spaces_end_words_ = false;  // whether U+2581 occurs only at the start of tokens
  Cuts cuts_ = Cuts::nowhere;
};

/// Returns the bytes of a token that is spelled in GPT-2's byte-level alphabet, with one character per byte.
/// Returns nullopt if a character is not in the alphabet.
std::optional<std::string> bytes_of(std::string_view token);
/// `gpt2_expression` is the expression by which GPT-2 splits text into words. `is_known_expression` returns
/// whether `pattern` is one of a few known expressions. They all end a word between a letter and a space or
/// line end after it.
extern char const* const gpt2_expression;
bool is_known_expression(std::string_view pattern);

}  // namespace text
}  // namespace programs
