// SPDX-License-Identifier: Apache-2.0
// Provides SentencePiece tokenizers through libsentencepiece: LLaMA 2's tokenizer.model and unigram models.
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

/// Throws Error(data), which starts with `name`, if the bytes of a model would make libsentencepiece abort
/// the program or read out of bounds.
void check_sentence_piece_model(std::string_view bytes, std::string const& name);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Loads a model from the bytes of its file. Throws Error(data), which starts with `name`.
  SentencePieceTokenizer(std::string const& bytes, std::string name);
  ~SentencePieceTokenizer() override;

  std::unique_ptr<Encoder> encoder() const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string token_text(TokenId id) const override;
  std::size_t cut(std::string_view bytes, std::size_t least) const override;

  /// Sets the added tokens, which are matched anywhere in a text. `legacy`: the text after an added token
  /// starts a new word. `prefix`: a document starts with a new word.
  void add_tokens(std::vector<AddedToken> tokens, bool legacy, bool prefix);
  /// Returns the token that the model itself defines for the start or the end of a text; nullopt if there is
  /// none.
  std::optional<TokenId> begin_token() const;
  std::optional<TokenId> end_token() const;
  void set_before(Ids before) { before_ = std::move(before); }
  void set_end_of_text(Ids behind) { behind_ = std::move(behind); }
  void set_source(std::string description, std::string hash) {
    description_ = std::move(description);
    hash_ = std::move(hash);
  }

  struct Model;  // hides libsentencepiece from this header

 private:
  std::string name_;
  std::shared_ptr<Model> model_;
};

}  // namespace text
}  // namespace programs
