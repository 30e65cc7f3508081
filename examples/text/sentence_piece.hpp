// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model through libsentencepiece: LLaMA 2's tokenizer.model, and unigram models.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizer.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

/// Throws Error(data) that starts with `name` for a model whose bytes libsentencepiece would end the program
/// for, or read beyond.
void check_sentence_piece_model(std::string_view bytes, std::string const& name);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Throws Error(data) that starts with `name`. With `begin` documents begin with the model's token for
  /// that, where it has one.
  SentencePieceTokenizer(std::string const& bytes, std::string name, bool begin);
  ~SentencePieceTokenizer() override;

  std::unique_ptr<Encoder> encoder() const override;
  std::optional<TokenId> find(std::string_view token) const override;
  std::string token_text(TokenId id) const override;
  std::size_t cut(std::string_view bytes, std::size_t least) const override;

  /// The model's own token for the end of a text.
  std::optional<TokenId> end_token() const;
  void set_end_of_text(Ids behind) { behind_ = std::move(behind); }
  void set_source(std::string description, std::string hash) {
    description_ = std::move(description);
    hash_ = std::move(hash);
  }

  struct Model;  // libsentencepiece's, which this header does not show

 private:
  std::string name_;
  std::shared_ptr<Model const> model_;
  bool cuts_ = false;
};

}  // namespace text
}  // namespace v0
}  // namespace tessera
