// SPDX-License-Identifier: Apache-2.0
// Tokenizers in files: Hugging Face's tokenizer.json, GPT-2's vocab.json and merges.txt, SentencePiece's
// tokenizer.model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.hpp"

namespace programs {
namespace text {

/// What stands for a space in SentencePiece's alphabet: U+2581.
inline constexpr std::string_view word_mark = "\xe2\x96\x81";

/// Encodes texts one after the other; one a thread. Its memory is that of the longest text.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the tokens of valid UTF-8. `begins`: it is the beginning of a document, and not what follows a
  /// place that `Tokenizer::cut` gave.
  virtual void encode(std::string_view text, bool begins, Ids& out) = 0;
};

/// Immutable once opened; threads share it, and each makes an encoder.
class Tokenizer {
 public:
  /// Opens a folder, or one of its files. `end_of_text` names the token that ends a document; empty: the one
  /// that the folder names, "none": there is none. Throws Error(data) that names the file and what it asks
  /// for that is not there.
  static std::shared_ptr<Tokenizer const> open(std::string const& path, std::string const& end_of_text = {});
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> encoder() const = 0;
  /// The id of a token by its text.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  /// The text of a token, for people.
  virtual std::string token_text(TokenId id) const = 0;

  /// Where a text may be cut in two that are encoded apart with the same tokens: the last such place in
  /// [least, size), 0 where there is none. The bytes may be of any kind.
  virtual std::size_t cut(std::string_view bytes, std::size_t least) const = 0;

  /// One more than the largest id.
  std::int64_t vocabulary() const { return vocabulary_; }
  /// What stands before and behind the tokens of every document.
  Ids const& before() const { return before_; }
  Ids const& behind() const { return behind_; }
  /// The files that were read, and XXH3-128 over them.
  std::string const& description() const { return description_; }
  std::string const& hash() const { return hash_; }
  /// "<s> TEXT </s>".
  std::string document_form() const;

 protected:
  std::int64_t vocabulary_ = 0;
  Ids before_, behind_;
  std::string description_, hash_;
};

/// A whole text by one call, for tests and small texts: its bytes repaired, with what stands around a
/// document if `whole`.
Ids encode(Tokenizer const& tokenizer, std::string_view bytes, bool whole = false);

}  // namespace text
}  // namespace programs
