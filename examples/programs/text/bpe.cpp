// SPDX-License-Identifier: Apache-2.0
// Implements byte-pair encoding (BPE) of one word.
#include "text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/xxhash.hpp"

#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

WordCache::WordCache() : table_(entries) {
  keys_.reserve(key_bytes);
  ids_.reserve(max_ids);
}

void WordCache::clear() {
  std::fill(table_.begin(), table_.end(), Entry());
  keys_.clear();
  ids_.clear();
  used_ = 0;
}

namespace {

std::uint64_t pair_of(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

std::size_t mixed(std::uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return static_cast<std::size_t>(pair ^ pair >> 32);
}

}  // namespace

Bpe::Bpe(std::string name, Vocabulary vocabulary, std::vector<Merge> const& merges, Options options)
    : name_(std::move(name)), vocabulary_(std::move(vocabulary)), options_(options) {
  slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  mask_ = slots_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    std::uint64_t const pair = pair_of(merges[rank].left, merges[rank].right);
    std::size_t at = mixed(pair) & mask_;
    while (slots_[at].pair != ~std::uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & mask_;
    // if a pair is listed twice, the last entry counts
    slots_[at] = {pair, static_cast<std::uint32_t>(rank), merges[rank].result};
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    auto const letter = static_cast<char>(byte);
    auto const found = vocabulary_.find(std::string_view(&letter, 1));
    bool const known = found != vocabulary_.end() && (options_.bytes || byte < 128);
    first_[byte] = known ? std::int64_t{found->second} : -1;
    if (!options_.byte_fallback) continue;
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    auto const token = vocabulary_.find(std::string_view(text));
    fallback_[byte] = token == vocabulary_.end() ? -1 : std::int64_t{token->second};
  }
}

Bpe::Slot const* Bpe::find(TokenId left, TokenId right) const {
  std::uint64_t const pair = pair_of(left, right);
  for (std::size_t at = mixed(pair) & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == ~std::uint64_t{0}) return nullptr;
  }
}

/// Splits a word into its initial symbols, which are bytes or characters, and stores them in cache.symbols_.
void Bpe::symbols_of(std::string_view word, WordCache& cache) const {
  auto& symbols = cache.symbols_;
  symbols.clear();
  auto const add = [&](TokenId id) { symbols.push_back({id, no_rank, 0, 0}); };
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t const begin = at;
    auto const byte = static_cast<unsigned char>(word[at]);
    std::int64_t id = first_[byte];
    at += options_.bytes ? 1 : character_bytes(word[at]);
    if (!options_.bytes && byte >= 128) {
      auto const found = vocabulary_.find(word.substr(begin, at - begin));
      id = found == vocabulary_.end() ? -1 : std::int64_t{found->second};
    }
    std::string_view const character = word.substr(begin, at - begin);
    auto const fallback = [&](char letter) { return fallback_[static_cast<unsigned char>(letter)]; };
    if (id < 0 && options_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char letter) { return fallback(letter) >= 0; })) {
      for (char const letter : character) add(static_cast<TokenId>(fallback(letter)));
    } else if (id >= 0) {
      add(static_cast<TokenId>(id));
    } else if (options_.unknown >= 0) {
      if (!after_unknown || !options_.fuse_unknown) add(static_cast<TokenId>(options_.unknown));
      after_unknown = true;
      continue;
    } else {
      char hex[16] = {};
      for (std::size_t i = 0; i < at - begin; ++i)
        std::snprintf(hex + 2 * i, 3, "%02x", static_cast<unsigned char>(word[begin + i]));
      throw_error(ErrorKind::data,
                  {name_, ": the vocabulary has no token for the bytes ", hex,
                   " of the text, and no unknown token; use a tokenizer that has all 256 bytes"});
    }
    after_unknown = false;
  }
}

/// Merges the symbols in cache.symbols_ and appends the tokens to `out`. Before each merge, searches all
/// pairs for the one of the smallest rank. This is the fastest method for few symbols.
void Bpe::merge_short(WordCache& cache, Ids& out) const {
  auto& symbols = cache.symbols_;
  std::size_t count = symbols.size();
  auto const rank_at = [&](std::size_t at) {
    if (at + 1 >= count) return no_rank;
    Slot const* const slot = find(symbols[at].id, symbols[at + 1].id);
    return slot ? slot->rank : no_rank;
  };
  for (std::size_t at = 0; at < count; ++at) symbols[at].rank = rank_at(at);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t at = 1; at + 1 < count; ++at)
      if (symbols[at].rank < symbols[best].rank) best = at;
    if (count == 0 || symbols[best].rank == no_rank) break;
    symbols[best].id = find(symbols[best].id, symbols[best + 1].id)->result;
    std::memmove(symbols.data() + best + 1, symbols.data() + best + 2,
                 (count - best - 2) * sizeof(WordCache::Symbol));
    --count;
    symbols[best].rank = rank_at(best);
    if (best > 0) symbols[best - 1].rank = rank_at(best - 1);
  }
  for (std::size_t at = 0; at < count; ++at) out.push_back(symbols[at].id);
}

/// Merges the symbols in cache.symbols_ and appends the tokens to `out`. Uses a priority queue of (rank,
/// position). The time is O(n log n) for n symbols.
void Bpe::merge_long(WordCache& cache, Ids& out) const {
  auto& symbols = cache.symbols_;
  auto& queue = cache.queue_;
  queue.clear();
  auto const later = [](std::uint64_t a, std::uint64_t b) { return a > b; };
  auto const count = static_cast<std::int32_t>(symbols.size());
  auto const offer = [&](std::int32_t at) {
    auto& symbol = symbols[static_cast<std::size_t>(at)];
    symbol.rank = no_rank;
    if (symbol.next < 0) return;
    Slot const* const slot = find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
    if (!slot) return;
    symbol.rank = slot->rank;
    queue.push_back(std::uint64_t{slot->rank} << 32 | static_cast<std::uint32_t>(at));
    std::push_heap(queue.begin(), queue.end(), later);
  };
  for (std::int32_t at = 0; at < count; ++at) {
    symbols[static_cast<std::size_t>(at)].previous = at - 1;
    symbols[static_cast<std::size_t>(at)].next = at + 1 < count ? at + 1 : -1;
  }
  for (std::int32_t at = 0; at < count; ++at) offer(at);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    std::uint64_t const top = queue.back();
    queue.pop_back();
    auto const at = static_cast<std::int32_t>(top & 0xffffffffu);
    auto& symbol = symbols[static_cast<std::size_t>(at)];
    if (symbol.rank != static_cast<std::uint32_t>(top >> 32))
      continue;  // outdated: one of the two symbols was merged after this entry was queued
    auto& eaten = symbols[static_cast<std::size_t>(symbol.next)];
    symbol.id = find(symbol.id, eaten.id)->result;
    symbol.next = eaten.next;
    eaten.rank = no_rank;
    if (symbol.next >= 0) symbols[static_cast<std::size_t>(symbol.next)].previous = at;
    offer(at);
    if (symbol.previous >= 0) offer(symbol.previous);
  }
  for (std::int32_t at = count > 0 ? 0 : -1; at >= 0; at = symbols[static_cast<std::size_t>(at)].next)
    out.push_back(symbols[static_cast<std::size_t>(at)].id);
}

void Bpe::encode(std::string_view word, WordCache& cache, Ids& out) const {
  constexpr std::size_t few = 48;
  if (word.empty()) return;
  if (options_.ignore_merges) {
    auto const whole = vocabulary_.find(word);
    if (whole != vocabulary_.end()) return out.push_back(whole->second);
  }
  auto const merge = [&] {
    symbols_of(word, cache);
    cache.symbols_.size() <= few ? merge_short(cache, out) : merge_long(cache, out);
  };
  if (word.size() > WordCache::longest_key) return merge();
  std::uint64_t const hash = XXH3_64bits(word.data(), word.size());
  std::size_t at = hash & (WordCache::entries - 1);
  for (;; at = (at + 1) & (WordCache::entries - 1)) {
    auto const& entry = cache.table_[at];
    if (entry.key_size == 0) break;
    if (entry.hash == hash && entry.key_size == word.size() &&
        std::memcmp(cache.keys_.data() + entry.key, word.data(), word.size()) == 0) {
      auto const ids = cache.ids_.begin() + entry.ids;
      out.insert(out.end(), ids, ids + entry.ids_count);
      return;
    }
  }
  std::size_t const before = out.size();
  merge();
  std::size_t const made = out.size() - before;
  if (cache.used_ >= WordCache::entries / 2 || cache.keys_.size() + word.size() > WordCache::key_bytes ||
      cache.ids_.size() + made > WordCache::max_ids) {
    cache.clear();
    at = hash & (WordCache::entries - 1);
  }
  cache.table_[at] = {hash, static_cast<std::uint32_t>(cache.keys_.size()),
                      static_cast<std::uint32_t>(cache.ids_.size()), static_cast<std::uint16_t>(word.size()),
                      static_cast<std::uint16_t>(made)};
  cache.keys_.insert(cache.keys_.end(), word.begin(), word.end());
  cache.ids_.insert(cache.ids_.end(), out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  ++cache.used_;
}

}  // namespace text
}  // namespace programs
