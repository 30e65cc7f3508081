// SPDX-License-Identifier: Apache-2.0
#include "text/sentence_piece.hpp"

#include <algorithm>
#include <functional>
#include <sentencepiece_processor.h>
#include <unordered_map>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "text/unicode.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

namespace {

void check(sentencepiece::util::Status const& status, std::string const& name) {
  if (!status.ok())
    throw Error(ErrorKind::data, name + ": libsentencepiece cannot use it (" +
                                     v0::detail::printable(status.ToString()) +
                                     "); the file is damaged or no SentencePiece model");
}

bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/// Whether a word ends before this byte and another begins there: one space between letters.
bool is_cut(std::string_view bytes, std::size_t at) {
  return bytes[at] == ' ' && at > 0 && at + 1 < bytes.size() && is_ascii_letter(bytes[at - 1]) &&
         is_ascii_letter(bytes[at + 1]);
}

}  // namespace

struct SentencePieceTokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string const& bytes, std::string name, bool begin)
    : name_(std::move(name)) {
  auto model = std::make_shared<Model>();
  auto& processor = model->processor;
  check_sentence_piece_model(bytes, name_);
  check(processor.LoadFromSerializedProto(bytes), name_);
  vocabulary_ = processor.GetPieceSize();
  if (begin && processor.bos_id() >= 0) before_.push_back(static_cast<TokenId>(processor.bos_id()));
  // A text may be cut before a space when a space begins a word, for the library puts one in front of a text.
  std::vector<std::string> pieces;
  check(processor.Encode("x", &pieces), name_);
  cuts_ = !pieces.empty() && pieces.front().starts_with(word_mark);
  for (int id = 0; cuts_ && id < processor.GetPieceSize(); ++id) {
    std::string_view const piece = processor.IdToPiece(id);
    for (std::size_t at = piece.find(word_mark); at != piece.npos; at = piece.find(word_mark, at + 1))
      if (at > 0 && !piece.substr(0, at).ends_with(word_mark)) cuts_ = false;
  }
  model_ = std::move(model);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

namespace {

/// Encodes word by word where a text may be cut, and remembers words: the library takes its time.
class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(std::shared_ptr<SentencePieceTokenizer::Model const> model, std::string name,
                       bool cuts)
      : model_(std::move(model)), name_(std::move(name)), cuts_(cuts) {}

  void encode(std::string_view text, bool begins, Ids& out) override {
    if (!begins && text.starts_with(' ')) text.remove_prefix(1);  // the library puts it back
    std::size_t begin = 0;
    for (std::size_t at = cuts_ ? text.find(' ') : text.npos; at != text.npos; at = text.find(' ', at + 1))
      if (is_cut(text, at)) {
        word(text.substr(begin, at - begin), out);
        begin = at + 1;
      }
    word(text.substr(begin), out);
  }

 private:
  static constexpr std::size_t longest_word = 64, most_words = 1 << 16;

  void word(std::string_view text, Ids& out) {
    if (text.empty()) return;
    if (text.size() > longest_word) return encoded(text, out);
    auto found = words_.find(text);
    if (found == words_.end()) {
      if (words_.size() >= most_words) words_.clear();
      found = words_.emplace(std::string(text), Ids()).first;
      encoded(text, found->second);
    }
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
  void encoded(std::string_view text, Ids& out) {
    check(model_->processor.Encode({text.data(), text.size()}, &ids_), name_);
    for (int const id : ids_) out.push_back(static_cast<TokenId>(id));
  }

  std::shared_ptr<SentencePieceTokenizer::Model const> model_;
  std::string name_;
  bool cuts_;
  std::vector<int> ids_;
  std::unordered_map<std::string, Ids, TextHash, std::equal_to<>> words_;
};

}  // namespace

std::unique_ptr<Encoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(model_, name_, cuts_);
}

std::optional<TokenId> SentencePieceTokenizer::end_token() const {
  int const id = model_->processor.eos_id();
  return id < 0 ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

std::optional<TokenId> SentencePieceTokenizer::find(std::string_view token) const {
  auto const& processor = model_->processor;
  int const id = processor.PieceToId({token.data(), token.size()});
  if (id < 0 || id >= processor.GetPieceSize() || processor.IdToPiece(id) != token) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::string SentencePieceTokenizer::token_text(TokenId id) const {
  return model_->processor.IdToPiece(static_cast<int>(id));
}

std::size_t SentencePieceTokenizer::cut(std::string_view bytes, std::size_t least) const {
  if (!cuts_ || bytes.size() < 2) return 0;
  for (std::size_t at = bytes.size() - 2; at >= std::max<std::size_t>(least, 1); --at)
    if (is_cut(bytes, at)) return at;
  return 0;
}

}  // namespace text
}  // namespace v0
}  // namespace tessera
