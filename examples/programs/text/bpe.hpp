// SPDX-License-Identifier: Apache-2.0
// Provides byte-pair encoding (BPE): merges adjacent symbols of a word in the order of a list of merges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace programs {
namespace text {

using TokenId = std::uint32_t;
using Ids = std::vector<TokenId>;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

/// Caches the tokens of words and holds the scratch memory of `Bpe::encode`. Each thread needs its own
/// WordCache. Its size is fixed.
class WordCache {
 public:
  WordCache();

 private:
  friend class Bpe;
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t key = 0, ids = 0;
    std::uint16_t key_size = 0, ids_count = 0;
  };
  struct Symbol {
    TokenId id;
    std::uint32_t rank;  // rank of the merge of this symbol and the next one
    std::int32_t previous, next;
  };
  static constexpr std::size_t entries = 1 << 17, key_bytes = 4 << 20, max_ids = 2 << 20;
  static constexpr std::size_t longest_key = 64;

  void clear();

  std::vector<Entry> table_;
  std::vector<char> keys_;
  Ids ids_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> queue_;
  std::size_t used_ = 0;
};

/// Encodes words to tokens. A Bpe does not change after construction, so threads can share it.
class Bpe {
 public:
  struct Options {
    bool bytes = true;  ///< true: symbols are bytes; false: symbols are characters
    bool byte_fallback =
        false;  ///< unknown characters become byte tokens <0x00> to <0xFF> if all of them exist
    bool ignore_merges = false;  ///< a word in the vocabulary is one token, regardless of the merges
    bool fuse_unknown = false;   ///< adjacent unknown characters become one token
    std::int64_t unknown = -1;   ///< the token of an unknown symbol; -1: none
  };
  struct Merge {
    TokenId left, right, result;
  };

  /// If `options.bytes` is true, the keys of `vocabulary` are raw bytes. If it is false, they are UTF-8.
  /// Error messages of `encode` start with `name`.
  Bpe(std::string name, Vocabulary vocabulary, std::vector<Merge> const& merges, Options options);

  /// Appends the tokens of `word` to `out`. Throws Error(data) if a symbol is not in the vocabulary and
  /// `options.unknown` is -1.
  void encode(std::string_view word, WordCache& cache, Ids& out) const;

  Vocabulary const& vocabulary() const { return vocabulary_; }
  Options const& options() const { return options_; }

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    std::uint32_t rank = 0;
    TokenId result = 0;
  };
  static constexpr std::uint32_t no_rank = ~std::uint32_t{0};

  Slot const* find(TokenId left, TokenId right) const;
  void symbols_of(std::string_view word, WordCache& cache) const;
  void merge_short(WordCache& cache, Ids& out) const;
  void merge_long(WordCache& cache, Ids& out) const;

  std::string name_;
  Vocabulary vocabulary_;
  Options options_;
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  std::array<std::int64_t, 256> first_{};  // token of each byte or ASCII character; -1: none
  std::array<std::int64_t, 256> fallback_{};
};

}  // namespace text
}  // namespace programs
