// SPDX-License-Identifier: Apache-2.0
// Provides SentencePiece tokenizers with libsentencepiece, such as LLaMA 2's tokenizer.model and unigram
// models.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/tokenizer.hpp"

namespace programs {
namespace text {

/// Checks the bytes of a model before libsentencepiece reads them. Throws Error(data), which starts with
/// `name`, if libsentencepiece would abort the program or read out of bounds.
void check_sentence_piece_model(std::string_view bytes, std::string const& name);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Loads a model, given the bytes of its file. Throws Error(data), which starts with `name`.
  SentencePieceTokenizer(std::string const& bytes, std::string name);
  ~SentencePieceTokenizer() override;

  std::unique_ptr<Encoder> encoder() const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string token_text(TokenId id) const override;
  std::size_t cut(std::string_view bytes, std::size_t least) const override;

  /// Sets the added tokens, which match anywhere in a text. `legacy` says whether the text after an added
  /// token starts a new word. `prefix` says whether a document starts with a new word.
  void add_tokens(std::vector<AddedToken> tokens, bool legacy, bool prefix);
  /// Return the token that the model file defines for the start or the end of a text, or nullopt if it
  /// defines none.
  std::optional<TokenId> begin_token() const;
  std::optional<TokenId> end_token() const;
  void set_before(Ids before) { before_ = std::move(before); }
  void set_end_of_text(Ids behind) { behind_ = std::move(behind); }

  struct Model;  // defined in the source file, so that this header does not include libsentencepiece

 private:
  std::string name_;
  std::shared_ptr<Model> model_;
};

}  // namespace text
}  // namespace programs
