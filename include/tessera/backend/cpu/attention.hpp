// SPDX-License-Identifier: Apache-2.0
// Implements causal attention in tiles, after FlashAttention (arXiv 2205.14135). ops/attention.hpp documents
// the operations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "tessera/backend/cpu/gemm.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// The buffers (tiles) of attention in a worker's scratch memory. They follow the buffers that matrix
/// products use. The constants are numbers of values or rows. `unit` makes each tile the same number of bytes
/// for float and double.
template <class S>
struct AttentionTiles {
  static constexpr std::int64_t unit = 8 / static_cast<std::int64_t>(sizeof(S));
  static constexpr std::int64_t block = 64;  // queries of a forward tile, keys of a backward tile
  static constexpr std::int64_t forward_keys = 512 * unit;
  static constexpr std::int64_t backward_queries = 256 * unit;
  static constexpr std::int64_t head_tile = 32768 * unit;  // upper bound of block_rows(head) * head
  static constexpr std::int64_t query_sums = 131072 * unit;

  S* scores;     // scores, block x forward_keys; in backward: backward_queries x block
  S* slopes;     // in backward: gradients of the scores, backward_queries x block, after `scores`
  S* sums;       // block x head channels: outputs; in backward: dV, or dQ in query_gradients
  S* more_sums;  // block x head channels: in backward dK
  S* queries;    // in backward: dQ of all query heads that share a key head, if it fits; in forward: packed
                 // keys and values, if they fit
  S* rows;       // statistics: up to two numbers per query

  static constexpr std::size_t bytes =
      static_cast<std::size_t>(block * forward_keys + 2 * head_tile + query_sums + 2 * backward_queries) *
      sizeof(S);

  static_assert((ProductScratch<S>::bytes + 63) / 64 * 64 + bytes <= Context<Cpu>::scratch_bytes);

  explicit AttentionTiles(std::span<std::byte> scratch) {
    scores = reinterpret_cast<S*>(scratch.data() + (ProductScratch<S>::bytes + 63) / 64 * 64);
    slopes = scores + backward_queries * block;
    sums = scores + block * forward_keys;
    more_sums = sums + head_tile;
    queries = more_sums + head_tile;
    rows = queries + query_sums;
  }

  /// Returns the number of rows in the tile `sums`: 64, or fewer for very wide heads.
  static std::int64_t block_rows(std::int64_t head) {
    std::int64_t rows = block;
    while (rows > 1 && rows * head > head_tile) rows /= 2;
    return rows;
  }
};

template <class T>
using Heads = ops::HeadColumns<T, Cpu>;

/// Identifies one head of queries or of keys in one sample. `row` returns the address of the head's part of a
/// row, in a tensor that has one row per token and all heads in a row. `row_of` returns the index of a row of
/// the head in a tensor (B,heads,T).
struct HeadIndex {
  std::int64_t sequence, head;  // rows per sample, and channels of a head
  std::int64_t sample, number;

  static HeadIndex of_queries(ops::AttentionSizes const& sizes, std::int64_t sample, std::int64_t number) {
    return {sizes.queries, sizes.head, sample, number};
  }
  static HeadIndex of_keys(ops::AttentionSizes const& sizes, std::int64_t sample, std::int64_t number) {
    return {sizes.keys, sizes.head, sample, number};
  }

  template <class T>
  T* row(ops::Columns<T, Cpu> const& of, std::int64_t row) const {
    return of.data + (sample * sequence + row) * of.stride + number * head;
  }
  /// Returns the rows of the head from row `first` on, as a matrix operand.
  template <class T>
  Matrix<std::remove_const_t<T>> rows(ops::Columns<T, Cpu> const& of, std::int64_t first,
                                      bool transposed = false) const {
    return {row(of, first), of.stride, transposed};
  }
  std::int64_t row_of(std::int64_t heads, std::int64_t row) const {
    return (sample * heads + number) * sequence + row;
  }
};

/// Writes values[i] * factor to to[i] for i < n.
template <class S, class T>
EIGEN_STRONG_INLINE void scale_row(S const* values, S factor, std::int64_t n, T* to) {
  for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
    put(to + i, get<S>(values + i, full, count) * Packet<S>(factor), full, count);
  });
}

/// Sets row[i] = e^(row[i]*scale - shift) for i < n, and row[i] = 0 for n <= i < padded. Returns the sum of
/// the row.
template <class S>
EIGEN_STRONG_INLINE S exponentiate_row(S* row, std::int64_t n, std::int64_t padded, S scale, S shift) {
  Packet<S> sum(S(0));
  Packet<S> const factor(scale), offset(-shift);
  for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
    Packet<S> const value = exp(fma(get<S>(static_cast<S const*>(row) + i, full, count), factor, offset));
    put(row + i, value, full, count);
    sum = sum + get<S>(static_cast<S const*>(row) + i, full, count);
  });
  std::fill(row + n, row + std::max(n, padded), S(0));
  return lane_sum(sum);
}

/// The products of the forward pass with a head of keys and values: the scores of blocks of queries, and
/// their outputs. If several blocks share the head, and it fits into scratch memory, it is packed once.
/// Otherwise each product packs what it needs.
template <class T>
class ForwardProducts {
  using S = compute_t<T>;
  using Tiles = AttentionTiles<S>;

 public:
  /// The queries see the first `keys` keys of the head `at`. `shared` says whether they are several blocks.
  ForwardProducts(std::span<std::byte> scratch, Heads<T const> const& x, HeadIndex at, std::int64_t keys,
                  [[maybe_unused]] bool shared)
      : scratch_(scratch.data()), x_(x), at_(at), keys_(keys) {
    if constexpr (packs_less<S>) {
      std::int64_t const padded_keys = padded(keys) * at.head, padded_values = keys * padded(at.head);
      if (!shared || padded_keys + padded_values > Tiles::query_sums) return;
      packed_keys_ = Tiles(scratch).queries;
      packed_values_ = packed_keys_ + padded_keys;
      for (std::int64_t key = 0; key < keys; key += Tiles::block) {
        PackedRight<S> const to = packed_keys(key);
        pack_right(at.rows(x.k, key, true), to.depth, to.cols, packed_keys_ + key * at.head);
      }
      pack_right(at.rows(x.v, 0), keys, at.head, packed_values_);
    }
  }

  /// Sets `scores` = q k^T, where k are the keys [key, key + count). `key` is a multiple of forward_keys.
  void scores(Matrix<T> q, std::int64_t rows, std::int64_t key, std::int64_t count, S* scores) const {
    if constexpr (packs_less<S>) {
      if (packed_keys_) {
        for (std::int64_t i = 0; i < count; i += Tiles::block)
          product_with_packed(scratch_, q, packed_keys(key + i), 0, rows, std::min(Tiles::block, count - i),
                              at_.head, InPlace<S>{scores + i, Tiles::forward_keys});
        return;
      }
    }
    product_serial<S>(scratch_, q, at_.rows(x_.k, key, true), rows, count, at_.head,
                      InPlace<S>{scores, Tiles::forward_keys});
  }

  /// Sets `sums` = p v, where v are the values of the keys [key, key + count). If `key` is not 0, adds to
  /// `sums`.
  void outputs(S const* p, std::int64_t rows, std::int64_t key, std::int64_t count, S* sums) const {
    Matrix<S> const probabilities{p, Tiles::forward_keys};
    InPlace<S> const result{sums, at_.head, key != 0};
    if constexpr (packs_less<S>) {
      if (packed_values_) {
        PackedRight<S> const values{packed_values_, keys_, at_.head};
        product_with_packed(scratch_, probabilities, values, key, rows, at_.head, count, result);
        return;
      }
    }
    product_serial<S>(scratch_, probabilities, at_.rows(x_.v, key), rows, at_.head, count, result);
  }

 private:
  static std::int64_t padded(std::int64_t count) {
    constexpr std::int64_t width = Packet<S>::size;
    return (count + width - 1) / width * width;
  }
  /// Returns the packed block of at most 64 keys that starts at `key`.
  PackedRight<S> packed_keys(std::int64_t key) const {
    return {packed_keys_ + key * at_.head, at_.head, std::min(Tiles::block, keys_ - key)};
  }

  std::byte* scratch_;
  Heads<T const> x_;
  HeadIndex at_;
  std::int64_t keys_;
  S* packed_keys_ = nullptr;  // null if the head is not packed
  S* packed_values_ = nullptr;
};

/// Computes the outputs and the logsumexp of queries [first, first + rows) of a head. `at` identifies the
/// query head, and `products` multiplies by its head of keys and values. Query first + i sees the keys up to
/// last + i.
template <class T>
void attention_forward_block(std::span<std::byte> scratch, HeadIndex at, ForwardProducts<T> const& products,
                             Heads<T const> const& x, std::int64_t first, std::int64_t last,
                             std::int64_t rows, ops::Columns<T, Cpu> out, compute_t<T>* logsumexp) {
  using S = compute_t<T>;
  AttentionTiles<S> const tiles(scratch);
  S const scale = S(1) / std::sqrt(S(at.head));
  std::int64_t const head = at.head;
  S* const largest = tiles.rows;
  S* const total = tiles.rows + rows;
  std::fill_n(largest, rows, -std::numeric_limits<S>::infinity());
  std::fill_n(total, rows, S(0));
  std::int64_t const end = last + rows;
  for (std::int64_t key = 0; key < end; key += tiles.forward_keys) {
    std::int64_t const keys = std::min(tiles.forward_keys, end - key);
    products.scores(at.rows(x.q, first), rows, key, keys, tiles.scores);
    for (std::int64_t row = 0; row < rows; ++row) {
      S* const scores = tiles.scores + row * tiles.forward_keys;
      std::int64_t const visible = std::max<std::int64_t>(0, std::min(keys, last + row - key + 1));
      Packet<S> largest_lanes(-std::numeric_limits<S>::infinity());
      for_packets<S>(0, visible, [&](std::int64_t i, auto full, std::int64_t count) {
        largest_lanes = max(largest_lanes, get<S>(static_cast<S const*>(scores) + i, full, count,
                                                  -std::numeric_limits<S>::infinity()));
      });
      S const top = std::max(largest[row], lane_max(largest_lanes) * scale);
      S const keep = key == 0 ? S(0) : std::exp(largest[row] - top);
      total[row] = total[row] * keep + exponentiate_row(scores, visible, keys, scale, top);
      largest[row] = top;
      if (key != 0) scale_row(tiles.sums + row * head, keep, head, tiles.sums + row * head);
    }
    products.outputs(tiles.scores, rows, key, keys, tiles.sums);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    scale_row(tiles.sums + row * head, S(1) / total[row], head, at.row(out, first + row));
    logsumexp[row] = largest[row] + std::log(total[row]);
  }
}

/// Computes the gradients of one head of keys and values, and of the query heads that share it. Processes the
/// keys block by block. For each block of keys, it processes the query heads in order. For each query head,
/// it processes the queries that see the block.
template <class T>
class AttentionBackward {
  using S = compute_t<T>;
  using Tiles = AttentionTiles<S>;

 public:
  using Rows = ops::Columns<T const, Cpu>;

  AttentionBackward(std::span<std::byte> scratch, ops::AttentionSizes const& sizes, std::int64_t sample,
                    std::int64_t key_head, Rows dout, Heads<T const> const& x, Rows out, S const* logsumexp,
                    Heads<T> const& dx)
      : scratch_(scratch.data()),
        tiles_(scratch),
        sizes_(sizes),
        keys_at_(HeadIndex::of_keys(sizes, sample, key_head)),
        dout_(dout),
        x_(x),
        out_(out),
        logsumexp_(logsumexp),
        dx_(dx),
        scale_(S(1) / std::sqrt(S(sizes.head))) {}

  void run() {
    std::int64_t const head = sizes_.head, sequence = sizes_.queries, block = Tiles::block_rows(head);
    // dQ is a sum over blocks of keys. If T has the precision of sums (T = S), the sum is built in the
    // output. Otherwise it is built in scratch memory if it fits. If it does not fit, query_gradients
    // computes dQ after this loop, one block of queries after another.
    bool const in_place = std::is_same_v<S, T>;
    bool const in_scratch = !in_place && sizes_.group * sequence * head <= Tiles::query_sums;
    for (std::int64_t key = 0; key < sizes_.keys; key += block) {
      std::int64_t const keys = std::min(block, sizes_.keys - key);
      // The first query that sees the key `key`.
      std::int64_t const first = std::max<std::int64_t>(0, key - sizes_.first);
      bool add = false;
      for (std::int64_t member = 0; member < sizes_.group; ++member) {
        select_query_head(member);
        for (std::int64_t query = first; query < sequence; query += Tiles::backward_queries) {
          std::int64_t const queries = std::min(Tiles::backward_queries, sequence - query);
          recompute(query, queries, key, keys);
          product_serial<S>(scratch_, Matrix<S>{tiles_.scores, Tiles::block, true}, at_.rows(dout_, query),
                            keys, head, queries, InPlace<S>{tiles_.sums, head, add});
          product_serial<S>(scratch_, Matrix<S>{tiles_.slopes, Tiles::block, true}, at_.rows(x_.q, query),
                            keys, head, queries, InPlace<S>{tiles_.more_sums, head, add});
          add = true;
          if constexpr (std::is_same_v<S, T>)
            query_gradient(queries, key, keys, at_.row(dx_.q, query), dx_.q.stride, key != 0);
          else if (in_scratch)
            query_gradient(queries, key, keys, tiles_.queries + (member * sequence + query) * head, head,
                           key != 0);
        }
      }
      if (!add) {  // no query sees these keys
        std::fill_n(tiles_.sums, keys * head, S(0));
        std::fill_n(tiles_.more_sums, keys * head, S(0));
      }
      for (std::int64_t row = 0; row < keys; ++row) {
        scale_row(tiles_.sums + row * head, S(1), head, keys_at_.row(dx_.v, key + row));
        scale_row(tiles_.more_sums + row * head, S(1), head, keys_at_.row(dx_.k, key + row));
      }
    }
    if (in_place) return;
    for (std::int64_t member = 0; member < sizes_.group; ++member) {
      select_query_head(member);
      if (in_scratch)
        for (std::int64_t row = 0; row < sequence; ++row)
          scale_row(tiles_.queries + (member * sequence + row) * head, S(1), head, at_.row(dx_.q, row));
      else
        query_gradients();
    }
  }

 private:
  /// Makes a query head the current one: number `member` of the query heads that share the key head.
  void select_query_head(std::int64_t member) {
    at_ = HeadIndex::of_queries(sizes_, keys_at_.sample, keys_at_.number * sizes_.group + member);
    dots_query_ = -1;
  }

  /// Computes dQ of the current query head, one block of queries after another.
  void query_gradients() {
    std::int64_t const head = sizes_.head, sequence = sizes_.queries, block = Tiles::block_rows(head);
    for (std::int64_t query = 0; query < sequence; query += block) {
      std::int64_t const queries = std::min(block, sequence - query), end = sizes_.first + query + queries;
      for (std::int64_t key = 0; key < end; key += block) {
        std::int64_t const keys = std::min(block, sizes_.keys - key);
        recompute(query, queries, key, keys);
        query_gradient(queries, key, keys, tiles_.sums, head, key != 0);
      }
      for (std::int64_t row = 0; row < queries; ++row)
        scale_row(tiles_.sums + row * head, S(1), head, at_.row(dx_.q, query + row));
    }
  }

  /// Processes the queries [query, query + queries) and the keys [key, key + keys). Sets tiles_.scores to
  /// their probabilities, which this function recomputes with the forward pass's logsumexp. Sets
  /// tiles_.slopes = dS * scale, where dS is the gradient of the scores.
  void recompute(std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys) {
    std::int64_t const head = sizes_.head;
    S const* const shifts = logsumexp_ + at_.row_of(sizes_.heads, query);
    dot_rows(query, queries);
    product_serial<S>(scratch_, at_.rows(x_.q, query), keys_at_.rows(x_.k, key, true), queries, keys, head,
                      InPlace<S>{tiles_.scores, Tiles::block, false});
    product_serial<S>(scratch_, at_.rows(dout_, query), keys_at_.rows(x_.v, key, true), queries, keys, head,
                      InPlace<S>{tiles_.slopes, Tiles::block, false});
    for (std::int64_t row = 0; row < queries; ++row) {
      S* const scores = tiles_.scores + row * Tiles::block;
      S* const slopes = tiles_.slopes + row * Tiles::block;
      std::int64_t const visible =
          std::max<std::int64_t>(0, std::min(keys, sizes_.first + query + row - key + 1));
      exponentiate_row(scores, visible, keys, scale_, shifts[row]);
      Packet<S> const dot(tiles_.rows[row]), factor(scale_);
      for_packets<S>(0, visible, [&](std::int64_t i, auto full, std::int64_t count) {
        Packet<S> const probability = get<S>(static_cast<S const*>(scores) + i, full, count);
        Packet<S> const slope = get<S>(static_cast<S const*>(slopes) + i, full, count);
        put(slopes + i, probability * factor * (slope - dot), full, count);
      });
      std::fill(slopes + visible, slopes + keys, S(0));
    }
  }

  /// Sets tiles_.rows[i] = dout . out of query `query` + i, the term that the gradient of softmax subtracts.
  /// Does nothing if the previous call had the same queries and the same query head.
  void dot_rows(std::int64_t query, std::int64_t queries) {
    if (query == dots_query_ && queries == dots_count_) return;
    for (std::int64_t row = 0; row < queries; ++row) {
      T const* const a = at_.row(dout_, query + row);
      T const* const b = at_.row(out_, query + row);
      Packet<S> sum(S(0));
      for_packets<S>(0, at_.head, [&](std::int64_t i, auto full, std::int64_t count) {
        sum = multiply_add(get<S>(a + i, full, count), get<S>(b + i, full, count), sum);
      });
      tiles_.rows[row] = lane_sum(sum);
    }
    dots_query_ = query;
    dots_count_ = queries;
  }

  void query_gradient(std::int64_t queries, std::int64_t key, std::int64_t keys, S* to, std::int64_t stride,
                      bool add) {
    product_serial<S>(scratch_, Matrix<S>{tiles_.slopes, Tiles::block}, keys_at_.rows(x_.k, key), queries,
                      sizes_.head, keys, InPlace<S>{to, stride, add});
  }

  std::byte* scratch_;
  Tiles tiles_;
  ops::AttentionSizes sizes_;
  HeadIndex keys_at_, at_{};  // the keys, and the current query head
  Rows dout_;
  Heads<T const> x_;
  Rows out_;
  S const* logsumexp_;
  Heads<T> dx_;
  S scale_;
  std::int64_t dots_query_ = -1, dots_count_ = 0;
};

struct Attention {
  template <class T>
  static void forward(Context<Cpu>& context, AttentionKind, Heads<T const> const& x,
                      ops::AttentionSizes const& sizes, Tensor<T> out, Tensor<compute_t<T>> logsumexp) {
    std::int64_t const block = AttentionTiles<compute_t<T>>::block_rows(sizes.head);
    std::int64_t const blocks = (sizes.queries + block - 1) / block;
    // A task computes adjacent blocks of a head, which share the packed keys and values. Eight tasks per
    // worker divide the work evenly enough.
    std::int64_t const pairs = sizes.samples * sizes.heads;
    std::int64_t const tasks = std::int64_t{8} * context.pool().threads();
    std::int64_t const parts =
        packs_less<compute_t<T>> ? std::clamp<std::int64_t>((tasks + pairs - 1) / pairs, 1, blocks) : blocks;
    context.pool().parallel_for(pairs * parts, [&](std::int64_t task, int worker) {
      std::int64_t const pair = task / parts, sample = pair / sizes.heads, number = pair % sizes.heads;
      std::int64_t const part = task % parts, begin = blocks * part / parts * block;
      std::int64_t const end = std::min(blocks * (part + 1) / parts * block, sizes.queries);
      HeadIndex const at = HeadIndex::of_queries(sizes, sample, number);
      std::span<std::byte> const scratch = context.worker_scratch(worker);
      ForwardProducts<T> const products(scratch, x, HeadIndex::of_keys(sizes, sample, number / sizes.group),
                                        sizes.first + end, end - begin > block);
      for (std::int64_t first = begin; first < end; first += block)
        attention_forward_block<T>(scratch, at, products, x, first, sizes.first + first,
                                   std::min(block, end - first), out,
                                   logsumexp.data() + at.row_of(sizes.heads, first));
    });
  }

  template <class T>
  static void backward(Context<Cpu>& context, AttentionKind, ConstTensor<T> dout, Heads<T const> const& x,
                       ConstTensor<T> out, ConstTensor<compute_t<T>> logsumexp,
                       ops::AttentionSizes const& sizes, Heads<T> const& dx,
                       Tensor<compute_t<T>> const& = {}) {
    std::int64_t const key_heads = sizes.key_heads();
    context.pool().parallel_for(sizes.samples * key_heads, [&](std::int64_t task, int worker) {
      AttentionBackward<T>(context.worker_scratch(worker), sizes, task / key_heads, task % key_heads, dout, x,
                           out, logsumexp.data(), dx)
          .run();
    });
  }
};

}  // namespace cpu

template <>
struct backend::Attention<Cpu> : cpu::Attention {};

}  // namespace v0
}  // namespace tessera
