// SPDX-License-Identifier: Apache-2.0
// Opens tokenizers: Hugging Face's tokenizer.json, GPT-2's vocab.json and merges.txt, and SentencePiece's
// tokenizer.model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe.hpp"

namespace programs {
namespace text {

/// U+2581, the character that represents a space in SentencePiece's tokens.
inline constexpr std::string_view word_mark = "\xe2\x96\x81";

/// Encodes texts to tokens. Each thread needs its own encoder. The memory of an encoder grows with the
/// longest text.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the tokens of a valid UTF-8 text to `out`. `begins` says whether the text is the start of a
  /// document. If a document was cut at a position that `Tokenizer::cut` returned, `begins` is false for the
  /// text after the cut.
  virtual void encode(std::string_view text, bool begins, Ids& out) = 0;
};

/// A file that a tokenizer was read from. In another folder, `Tokenizer::open` finds a copy of the file under
/// the name `name`.
struct TokenizerFile {
  std::filesystem::path path;
  std::string name;
};

/// A tokenizer. It does not change after `open`, so threads can share it. Each thread makes its own encoder.
class Tokenizer {
 public:
  /// Opens a folder or one of its files. `end_of_text` is the token that ends a document. If `end_of_text` is
  /// empty, the folder's own token is used; "none" means no token. Throws Error(data), which names the file
  /// and the unsupported feature.
  static std::shared_ptr<Tokenizer const> open(std::string const& path, std::string const& end_of_text = {});
  /// Returns whether `path` is a folder in which `open` would find a tokenizer. Does not read the files.
  static bool is_in(std::filesystem::path const& path);
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> encoder() const = 0;
  /// Returns the id of the token with the text `token`, or nullopt if there is none.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  /// Returns the text of a token for display.
  virtual std::string token_text(TokenId id) const = 0;

  /// Returns the last position in [least, bytes.size()) at which `bytes` may be cut, or 0 if there is none.
  /// If the two parts are encoded separately, the tokens are the same as without the cut. The bytes are
  /// possibly not valid UTF-8.
  virtual std::size_t cut(std::string_view bytes, std::size_t least) const = 0;

  /// Returns the vocabulary size: the largest id plus one.
  std::int64_t vocabulary() const { return vocabulary_; }
  /// Return the tokens that are added before (`before`) and after (`behind`) every document.
  Ids const& before() const { return before_; }
  Ids const& behind() const { return behind_; }
  /// Return the names of the files that were read (`description`), and the XXH3-128 of their contents
  /// (`hash`).
  std::string const& description() const { return description_; }
  std::string const& hash() const { return hash_; }
  /// Returns all files that were read, including the files of special tokens and settings.
  std::vector<TokenizerFile> const& files() const { return files_; }
  /// Sets the results of the three functions above. Only `open` calls it.
  void set_source(std::string description, std::string hash, std::vector<TokenizerFile> files) {
    description_ = std::move(description);
    hash_ = std::move(hash);
    files_ = std::move(files);
  }
  /// Returns the form of a document with the tokens that begin and end it, such as "<s> TEXT </s>".
  std::string document_form() const;

 protected:
  std::int64_t vocabulary_ = 0;
  Ids before_, behind_;

 private:
  std::string description_, hash_;
  std::vector<TokenizerFile> files_;
};

/// Returns the tokens of a whole text, for tests and small texts. Invalid UTF-8 becomes U+FFFD. If `whole` is
/// true, adds the tokens that begin and end a document.
Ids encode(Tokenizer const& tokenizer, std::string_view bytes, bool whole = false);

}  // namespace text
}  // namespace programs
