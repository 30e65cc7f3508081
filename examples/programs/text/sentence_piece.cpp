// SPDX-License-Identifier: Apache-2.0
// Implements SentencePiece tokenizers with the library libsentencepiece.
#include "text/sentence_piece.hpp"

#include <algorithm>
#include <functional>
#include <sentencepiece_processor.h>
#include <unordered_map>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

/// If `status` is an error, throws Error(data) with the library's reason. In a reason such as "Internal:
/// src/file.cc(232) [expression] text", only "text" is kept.
void check(sentencepiece::util::Status const& status, std::string const& name) {
  if (status.ok()) return;
  std::string reason = status.ToString();
  reason.erase(0, reason.find(": ") == reason.npos ? 0 : reason.find(": ") + 2);
  if (std::size_t const end = reason.rfind("] "); end != reason.npos && reason.find(".cc(") < end)
    reason.erase(0, end + 2);
  if (!reason.empty()) reason = " (" + files::printable(reason) + ")";
  throw Error(ErrorKind::data, name + ": libsentencepiece cannot use it" + reason +
                                   "; the file is damaged or not a SentencePiece model");
}

bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/// Whether the byte at `at` is a single space between two ASCII letters. A text may be cut there, because one
/// word ends and another begins.
bool is_cut(std::string_view bytes, std::size_t at) {
  return bytes[at] == ' ' && at > 0 && at + 1 < bytes.size() && is_ascii_letter(bytes[at - 1]) &&
         is_ascii_letter(bytes[at + 1]);
}

}  // namespace

struct SentencePieceTokenizer::Model {
  std::string name;
  sentencepiece::SentencePieceProcessor processor;
  sentencepiece::SentencePieceProcessor inside;  // the same model without a space at a text's start
  bool cuts = false;
  std::vector<AddedToken> list;
  AddedTokens added{{}};
  bool legacy = false, prefix = true;
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string const& bytes, std::string name)
    : name_(std::move(name)), model_(std::make_shared<Model>()) {
  auto& processor = model_->processor;
  model_->name = name_;
  check_sentence_piece_model(bytes, name_);
  check(processor.LoadFromSerializedProto(bytes), name_);
  // The library merges repeated protobuf fields. The appended bytes set add_dummy_prefix (field 3) of
  // normalizer_spec (field 3) to false.
  check(model_->inside.LoadFromSerializedProto(bytes + std::string("\x1a\x02\x18\0", 4)), name_);
  vocabulary_ = processor.GetPieceSize();
  // A text may be cut before a space only under three conditions. The library adds a space at the start of a
  // text. A space occurs only at the start of tokens. An unknown character is not one token together with the
  // space before it, because adjacent unknown words would then become one token.
  std::vector<std::string> pieces;
  check(processor.Encode("x", &pieces), name_);
  bool cuts = !pieces.empty() && pieces.front().starts_with(word_mark);
  check(processor.Encode("\U0010fffd", &pieces), name_);
  cuts = cuts && !pieces.empty() && pieces.front() == word_mark;
  for (int id = 0; cuts && id < processor.GetPieceSize(); ++id) {
    std::string_view const piece = processor.IdToPiece(id);
    for (std::size_t at = piece.find(word_mark); at != piece.npos; at = piece.find(word_mark, at + 1))
      if (at > 0 && !piece.substr(0, at).ends_with(word_mark)) cuts = false;
  }
  model_->cuts = cuts;
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::add_tokens(std::vector<AddedToken> tokens, bool legacy, bool prefix) {
  for (AddedToken const& token : tokens) vocabulary_ = std::max(vocabulary_, std::int64_t{token.id} + 1);
  model_->list = tokens;
  model_->added = AddedTokens(std::move(tokens));
  model_->legacy = legacy;
  model_->prefix = prefix;
}

namespace {

/// Encodes a text word by word, if the model allows this, and caches the tokens of words, because the library
/// is slow.
class SentencePieceEncoder final : public Encoder {
 public:
  explicit SentencePieceEncoder(std::shared_ptr<SentencePieceTokenizer::Model const> model)
      : model_(std::move(model)) {}

  void encode(std::string_view text, bool begins, Ids& out) override {
    std::size_t done = 0, next = 0;
    auto const section = [&](std::size_t end) {
      if (end <= done) return;
      std::string_view part = text.substr(done, end - done);
      bool const first = done == 0, goes_on = first && !begins;
      if (goes_on && part.starts_with(' ')) part.remove_prefix(1);  // the library adds a space at the start
      words(part, goes_on || model_->legacy || (first && model_->prefix), out);
    };
    while (auto const match = model_->added.find(text, next, done)) {
      section(match->begin);
      out.push_back(match->id);
      done = match->end;
      next = match->next;
    }
    section(text.size());
  }

 private:
  static constexpr std::size_t longest_word = 64, max_words = 1 << 16;

  /// Encodes a text. `prefix` says whether the library adds a space at the start of the text.
  void words(std::string_view text, bool prefix, Ids& out) {
    std::size_t begin = 0;
    auto const add = [&](std::string_view one) {
      prefix || begin > 0 ? word(one, out) : without_prefix(one, out);
    };
    for (std::size_t at = model_->cuts ? text.find(' ') : text.npos; at != text.npos;
         at = text.find(' ', at + 1))
      if (is_cut(text, at)) {
        add(text.substr(begin, at - begin));
        begin = at + 1;
      }
    add(text.substr(begin));
  }
  void word(std::string_view text, Ids& out) {
    if (text.empty()) return;
    if (text.size() > longest_word) return encoded(model_->processor, text, out);
    auto found = words_.find(text);
    if (found == words_.end()) {
      if (words_.size() >= max_words) words_.clear();
      found = words_.emplace(std::string(text), Ids()).first;
      encoded(model_->processor, text, found->second);
    }
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
  /// Encodes a text to which the library must not add a space. If the text itself starts with a space, the
  /// library possibly removes this space. So such a text is encoded after the marker "<unk>", and the tokens
  /// of the marker are removed.
  void without_prefix(std::string_view text, Ids& out) {
    if (!text.starts_with(' ') && !text.starts_with(word_mark)) return encoded(model_->inside, text, out);
    std::string const mark = "<unk>";
    Ids before, all;
    encoded(model_->inside, mark, before);
    encoded(model_->inside, mark + std::string(text), all);
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(std::min(before.size(), all.size())),
               all.end());
  }
  void encoded(sentencepiece::SentencePieceProcessor const& processor, std::string_view text, Ids& out) {
    check(processor.Encode({text.data(), text.size()}, &ids_), model_->name);
    for (int const id : ids_) out.push_back(static_cast<TokenId>(id));
  }

  std::shared_ptr<SentencePieceTokenizer::Model const> model_;
  std::vector<int> ids_;
  std::unordered_map<std::string, Ids, TextHash, std::equal_to<>> words_;
};

}  // namespace

std::unique_ptr<Encoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(model_);
}

std::optional<TokenId> SentencePieceTokenizer::begin_token() const {
  int const id = model_->processor.bos_id();
  return id < 0 ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

std::optional<TokenId> SentencePieceTokenizer::end_token() const {
  int const id = model_->processor.eos_id();
  return id < 0 ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

std::optional<TokenId> SentencePieceTokenizer::find(std::string_view token) const {
  for (AddedToken const& added : model_->list)
    if (added.content == token) return added.id;
  auto const& processor = model_->processor;
  int const id = processor.PieceToId({token.data(), token.size()});
  if (id < 0 || id >= processor.GetPieceSize() || processor.IdToPiece(id) != token) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::string SentencePieceTokenizer::token_text(TokenId id) const {
  for (AddedToken const& added : model_->list)
    if (added.id == id) return added.content;
  return model_->processor.IdToPiece(static_cast<int>(id));
}

std::size_t SentencePieceTokenizer::cut(std::string_view bytes, std::size_t least) const {
  AddedTokens const& added = model_->added;
  // An added token must not be cut in two. To notice this, at least the length of the longest added token
  // must follow the cut.
  std::size_t const behind = std::max<std::size_t>(2, added.longest() + 1);
  if (!model_->cuts || bytes.size() < behind) return 0;
  for (std::size_t at = bytes.size() - behind; at >= std::max<std::size_t>(least, 1); --at)
    if (is_cut(bytes, at) && (added.empty() || (!added.touch(bytes, at) && !added.begin_at(bytes, at) &&
                                                !added.begin_at(bytes, at + 1))))
      return at;
  return 0;
}

}  // namespace text
}  // namespace programs
