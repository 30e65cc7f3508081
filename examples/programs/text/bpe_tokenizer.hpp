// SPDX-License-Identifier: Apache-2.0
// Provides a BPE tokenizer with the stages of a tokenizer.json: added tokens, normalizers, pre-tokenizers and
// the BPE model.
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

/// The validated contents of a tokenizer's files.
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

  /// Returns the vocabulary with tokens spelled as in the file.
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
  /// Positions at which a text may be cut so that encoding both parts separately gives the same tokens:
  /// before a space, before a space or line end, or nowhere.
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

/// Decodes a token that is spelled in GPT-2's byte-level alphabet (one character per byte). Returns nullopt
/// if a character is not in the alphabet.
std::optional<std::string> bytes_of(std::string_view token);
/// gpt2_expression is the expression by which GPT-2 splits text into words. is_known_expression returns
/// whether a split expression is one of the known ones that always end a word between a letter and a
/// following space or line end.
extern char const* const gpt2_expression;
bool is_known_expression(std::string_view pattern);

}  // namespace text
}  // namespace programs
