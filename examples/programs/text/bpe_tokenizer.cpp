// SPDX-License-Identifier: Apache-2.0
// Implements a BPE tokenizer with the stages that a tokenizer.json describes.
#include "text/bpe_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "tessera/core/error.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size())
    out.append(text.substr(done, at - done)).append(to);
  return out.append(text.substr(done));
}

/// Returns GPT-2's byte-level alphabet: the character that represents each byte. A printable byte is
/// represented by the character with its number. Any other byte is represented by a character from U+0100 on.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bool const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

/// Whether U+2581, which represents a space, occurs only at the start of tokens. A token may start with
/// several U+2581.
bool marks_begin_tokens(Vocabulary const& vocabulary) {
  for (auto const& [token, id] : vocabulary)
    for (std::size_t at = token.find(word_mark); at != token.npos; at = token.find(word_mark, at + 1))
      if (at > 0 && !std::string_view(token).substr(0, at).ends_with(word_mark)) return false;
  return true;
}

}  // namespace

char const* const gpt2_expression =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

bool is_known_expression(std::string_view pattern) {
  // Accepts the expressions of GPT-2, Llama 3 and Qwen 2. In them, only letters can follow a letter within a
  // match. So a space or a line end after a letter always begins another match.
  std::string_view const start = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  std::string_view const end = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  if (pattern == gpt2_expression) return true;
  if (!pattern.starts_with(start) || !pattern.ends_with(end) || pattern.size() < start.size() + end.size())
    return false;
  std::string_view const digits = pattern.substr(start.size(), pattern.size() - start.size() - end.size());
  return digits == "\\p{N}{1,3}" || digits == "\\p{N}" || digits == "\\p{N}+";
}

std::optional<std::string> bytes_of(std::string_view token) {
  static std::vector<std::int16_t> const bytes = [] {
    std::vector<std::int16_t> table(324, -1);
    auto const alphabet = byte_alphabet();
    for (unsigned byte = 0; byte < 256; ++byte) table[alphabet[byte]] = static_cast<std::int16_t>(byte);
    return table;
  }();
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    char32_t const c = next_character(token, at);
    if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
    out += static_cast<char>(bytes[c]);
  }
  return out;
}

// ---- the tokenizer --------------------------------------------------------------------------------------

namespace {

std::vector<AddedToken> chosen(std::vector<AddedToken> const& tokens, bool normalized) {
  std::vector<AddedToken> out;
  for (AddedToken const& token : tokens)
    if (token.normalized == normalized) out.push_back(token);
  return out;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeDescription d)
    : name_(d.name),
      added_(std::move(d.added)),
      normalizers_(std::move(d.normalizers)),
      pre_tokenizers_(std::move(d.pre_tokenizers)),
      bpe_(d.name, std::move(d.vocabulary), d.merges, d.model),
      raw_(chosen(added_, false)),
      normalized_([this] {
        auto tokens = chosen(added_, true);
        for (AddedToken& token : tokens) token.content = normalize(token.content, true);
        std::erase_if(tokens, [](AddedToken const& token) { return token.content.empty(); });
        return tokens;
      }()),
      all_(added_) {
  before_ = std::move(d.before);
  behind_ = std::move(d.behind);
  TokenId largest = 0;
  for (auto const& [token, id] : bpe_.vocabulary()) largest = std::max(largest, id);
  for (AddedToken const& token : added_) largest = std::max(largest, token.id);
  vocabulary_ = std::int64_t{largest} + 1;
  spaces_end_words_ =
      !bpe_.options().bytes && bpe_.vocabulary().contains(word_mark) && marks_begin_tokens(bpe_.vocabulary());
  cuts_ = find_cuts();
}

std::string BpeTokenizer::normalize(std::string_view text, bool begins) const {
  std::string now(text), storage;
  for (Normalizer const& normalizer : normalizers_) {
    if (auto const* const form = std::get_if<Form>(&normalizer)) {
      std::string_view const made = normal_form(now, *form, storage);
      if (made.data() == storage.data()) now.swap(storage);
    } else if (auto const* const prepend = std::get_if<Prepend>(&normalizer)) {
      if (begins && !now.empty()) now.insert(0, prepend->text);
    } else {
      auto const& [from, to] = std::get<Replace>(normalizer);
      if (now.find(from) != now.npos) now = replaced(now, from, to);
    }
  }
  return now;
}

BpeTokenizer::Cuts BpeTokenizer::find_cuts() const {
  for (Normalizer const& normalizer : normalizers_)
    if (auto const* const replace = std::get_if<Replace>(&normalizer); replace && replace->from.size() != 1)
      return Cuts::nowhere;
  for (AddedToken const& token : added_)
    if (token.normalized && !normalizers_.empty() && first_invalid(token.content) == token.content.size() &&
        std::any_of(token.content.begin(), token.content.end(), [](char c) { return (c & 0x80) != 0; }))
      return Cuts::nowhere;
  if (!bpe_.options().bytes) {
    // A text may be cut before a space only if spaces become U+2581 and U+2581 occurs only at the start of
    // tokens.
    bool marked = false;
    for (Normalizer const& normalizer : normalizers_)
      if (auto const* const replace = std::get_if<Replace>(&normalizer))
        marked = marked || (replace->from == " " && replace->to == word_mark);
    for (PreTokenizer const& stage : pre_tokenizers_) {
      auto const* const metaspace = std::get_if<Metaspace>(&stage);
      if (!metaspace && !std::holds_alternative<Digits>(stage)) return Cuts::nowhere;
      if (metaspace) marked = marked || metaspace->replacement == word_mark;
    }
    return marked && spaces_end_words_ ? Cuts::spaces : Cuts::nowhere;
  }
  bool known = false;
  for (PreTokenizer const& stage : pre_tokenizers_) {
    if (auto const* const split = std::get_if<Split>(&stage)) {
      if (!split->known) return Cuts::nowhere;
      known = true;
    } else if (auto const* const level = std::get_if<ByteLevel>(&stage)) {
      known = known || level->split;
    } else if (!std::holds_alternative<Digits>(stage)) {
      return Cuts::nowhere;
    }
  }
  return known ? Cuts::spaces_and_lines : Cuts::nowhere;
}

std::size_t BpeTokenizer::cut(std::string_view bytes, std::size_t least) const {
  if (cuts_ == Cuts::nowhere || bytes.size() < all_.longest() + 1) return 0;
  bool const lines = cuts_ == Cuts::spaces_and_lines;
  // An added token must not be cut in two. To notice this, at least the length of the longest added token
  // must follow the cut.
  for (std::size_t at = bytes.size() - all_.longest() - 1; at >= std::max<std::size_t>(least, 1); --at)
    if ((bytes[at] == ' ' || (lines && bytes[at] == '\n')) && letter_before(bytes, at) &&
        !all_.touch(bytes, at))
      return at;
  return 0;
}

std::optional<TokenId> BpeTokenizer::find(std::string_view token) const {
  for (AddedToken const& added : added_)
    if (added.content == token) return added.id;
  auto const& vocabulary = bpe_.vocabulary();
  auto const bytes =
      bpe_.options().bytes && first_invalid(token) == token.size() ? bytes_of(token) : std::nullopt;
  auto const found = vocabulary.find(bytes ? std::string_view(*bytes) : token);
  if (found == vocabulary.end()) return std::nullopt;
  return found->second;
}

std::string BpeTokenizer::token_text(TokenId id) const {
  for (AddedToken const& added : added_)
    if (added.id == id) return added.content;
  for (auto const& [token, known] : bpe_.vocabulary())
    if (known == id) return token;
  return "?";
}

// ---- encoding -------------------------------------------------------------------------------------------

class BpeEncoder final : public Encoder {
 public:
  explicit BpeEncoder(BpeTokenizer const& tokenizer)
      : tokenizer_(tokenizer), scratch_(tokenizer.pre_tokenizers_.size()) {}

  void encode(std::string_view text, bool begins, Ids& out) override {
    for_each_section(tokenizer_.raw_, text, out, [&](std::string_view section, std::size_t at) {
      bool const first = begins || at > 0;
      if (tokenizer_.normalizers_.empty()) return normalized(section, first, begins && at == 0, out);
      std::string const changed = tokenizer_.normalize(section, first);
      normalized(changed, first, begins && at == 0, out);
    });
  }

 private:
  template <class Encode>
  static void for_each_section(AddedTokens const& added, std::string_view text, Ids& out, Encode&& encode) {
    std::size_t done = 0, next = 0;
    while (auto const match = added.find(text, next, done)) {
      if (match->begin > done) encode(text.substr(done, match->begin - done), done);
      out.push_back(match->id);
      done = match->end;
      next = match->next;
    }
    if (done < text.size()) encode(text.substr(done), done);
  }

  /// Encodes a text after normalization. `first` says whether a prefix may be added to the text. `document`
  /// says whether the text is at the start of its document.
  void normalized(std::string_view text, bool first, bool document, Ids& out) {
    for_each_section(tokenizer_.normalized_, text, out, [&](std::string_view section, std::size_t at) {
      words(section, first || at > 0, document && at == 0, out);
    });
  }

  void words(std::string_view text, bool first, bool document, Ids& out) {
    owned_.clear();
    pieces_.assign(1, text);
    for (std::size_t stage = 0; stage < scratch_.size(); ++stage) {
      next_.clear();
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        apply(tokenizer_.pre_tokenizers_[stage], scratch_[stage], pieces_[i], first || i > 0,
              document && i == 0);
      pieces_.swap(next_);
    }
    for (std::string_view const piece : pieces_) {
      if (!tokenizer_.spaces_end_words_) {
        tokenizer_.bpe_.encode(piece, cache_, out);
        continue;
      }
      // No merge joins the end of a word with the start of the next word. So each word is encoded and cached
      // separately.
      std::size_t begin = 0;
      for (std::size_t at = 0; at < piece.size();) {
        std::size_t end = at;
        while (piece.substr(end).starts_with(word_mark)) end += word_mark.size();
        end = std::min(piece.find(word_mark, end), piece.size());
        tokenizer_.bpe_.encode(piece.substr(begin, end - begin), cache_, out);
        begin = at = end;
      }
    }
  }

  void apply(PreTokenizer const& stage, MatchScratch& scratch, std::string_view piece, bool first,
             bool document) {
    if (auto const* const split = std::get_if<Split>(&stage)) {
      split->expression.split(piece, split->delimiter, split->invert, scratch, next_);
    } else if (auto const* const level = std::get_if<ByteLevel>(&stage)) {
      if (level->prefix_space && first && !piece.starts_with(' '))
        piece = owned_.emplace_back(" ").append(piece);
      if (level->split)
        gpt2().split(piece, Delimiter::isolated, false, scratch, next_);
      else
        next_.push_back(piece);
    } else if (auto const* const digits = std::get_if<Digits>(&stage)) {
      stretches_.clear();
      for (std::size_t at = 0; at < piece.size();) {
        std::size_t const begin = at;
        bool const number = is_number(next_character(piece, at));
        stretches_.push_back({piece.substr(begin, at - begin), number});
      }
      // Each character is a part now. Joins adjacent parts without digits, so that only digits are split off.
      std::vector<Stretch> joined;
      for (Stretch const& stretch : stretches_)
        if (!joined.empty() && !joined.back().matches && !stretch.matches)
          joined.back().text = {joined.back().text.data(), joined.back().text.size() + stretch.text.size()};
        else
          joined.push_back(stretch);
      join_stretches(joined, digits->individual ? Delimiter::isolated : Delimiter::contiguous, next_);
    } else {
      auto const& metaspace = std::get<Metaspace>(stage);
      std::string& text = owned_.emplace_back(replaced(piece, " ", metaspace.replacement));
      bool const prepends = metaspace.scheme == Metaspace::Scheme::always  ? first
                            : metaspace.scheme == Metaspace::Scheme::first ? document
                                                                           : false;
      if (prepends && !text.starts_with(metaspace.replacement)) text.insert(0, metaspace.replacement);
      std::string_view const all = text;
      if (!metaspace.split) return next_.push_back(all);
      stretches_.clear();
      for (std::size_t at = 0; at < all.size();) {
        std::size_t const mark = std::min(all.find(metaspace.replacement, at), all.size());
        if (mark > at) stretches_.push_back({all.substr(at, mark - at), false});
        at = mark;
        if (at == all.size()) break;
        stretches_.push_back({all.substr(at, metaspace.replacement.size()), true});
        at += metaspace.replacement.size();
      }
      join_stretches(stretches_, Delimiter::merged_with_next, next_);
    }
  }

  static Expression const& gpt2() {
    static Expression const expression("GPT-2", gpt2_expression);
    return expression;
  }

  BpeTokenizer const& tokenizer_;
  std::vector<MatchScratch> scratch_;
  WordCache cache_;
  Pieces pieces_, next_;
  std::vector<Stretch> stretches_;
  std::deque<std::string> owned_;
};

std::unique_ptr<Encoder> BpeTokenizer::encoder() const { return std::make_unique<BpeEncoder>(*this); }

}  // namespace text
}  // namespace programs
