// SPDX-License-Identifier: Apache-2.0
// Provides causal attention without tensor cores, for every type and head width. The contract is in
// ops/attention.hpp.
//
// A thread block computes 64 rows of the result, for a slice of a head's channels. In the forward kernel and
// in the kernel for dq, a row belongs to a query, and the block iterates in order over tiles of 64 keys. In
// the kernel for dk and dv, a row belongs to a key, and the block iterates in order over tiles of 64 queries.
// If a head has several slices, the block of each slice computes the scores again. Sums are computed in S,
// the compute type of T, in an order that depends only on the shape.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Computes where the values of a head are. Tensors of queries, keys and values have one row per token, in
/// which the heads are adjacent columns. logsumexp is (samples,heads,queries). A pair is a sample and a query
/// head. `group` consecutive query heads share one key head.
struct HeadLayout {
  std::int64_t sequence, keys;         // queries and keys of a sample
  std::int64_t offset;                 // query i attends to the keys up to offset + i
  std::int64_t channels, head, heads;  // channels of all heads, channels of one head, number of heads
  std::int64_t group;

  explicit HeadLayout(ops::AttentionSizes const& sizes)
      : sequence(sizes.queries),
        keys(sizes.keys),
        offset(sizes.first),
        channels(sizes.heads * sizes.head),
        head(sizes.head),
        heads(sizes.heads),
        group(sizes.group) {}

  /// Returns the index of the first value of query 0 of a pair. Rows are `stride` values apart.
  __device__ std::int64_t first(std::int64_t pair, std::int64_t stride) const {
    return pair / heads * sequence * stride + pair % heads * head;
  }
  /// Returns the index of the first value of key 0 of a pair. Rows are `stride` values apart. `Own` means
  /// that each head has its own keys, one per query.
  template <bool Own = false>
  __device__ std::int64_t first_key(std::int64_t pair, std::int64_t stride) const {
    return Own ? first(pair, stride) : pair / heads * keys * stride + pair % heads / group * head;
  }
  /// Returns the index of the first value of row 0 of a pair's output. Rows are `channels` values apart.
  __device__ std::int64_t out(std::int64_t pair) const { return first(pair, channels); }
  __device__ std::int64_t rows(std::int64_t pair) const { return pair * sequence; }
  /// Returns the first query that attends to the key `key`.
  __device__ std::int64_t sees(std::int64_t key) const { return key > offset ? key - offset : 0; }
};

/// Queries, keys and values, or their gradients. Strides are the distances between rows, in values.
template <class T>
struct Heads {
  T *q, *k, *v;
  std::int64_t q_stride, kv_stride;

  explicit Heads(ops::HeadColumns<T, Cuda> const& of)
      : q(of.q.data), k(of.k.data), v(of.v.data), q_stride(of.q.stride), kv_stride(of.k.stride) {}
};

/// A 64 x 64 tile, distributed over the registers of the threads, with 16 threads across. Thread (x, y) holds
/// the values in rows y * rows + i and columns x + 16 j.
template <class S>
struct AttentionTile {
  static constexpr int size = 64;
  static constexpr int rows = sizeof(S) == 4 ? 8 : 4;  // rows per thread
  static constexpr int threads = size / rows * 16;
  // the row length of a transposed tile: aligned for vectors, few bank conflicts
  static constexpr int stride = size + 4;
  static constexpr int depth = 32;  // channels of a transposed tile of operands

  /// The bytes of two transposed tiles of operands (or one tile of scores), and 64 rows of W channels.
  template <int W>
  static constexpr std::size_t shared_bytes = (size * stride + size * W) * sizeof(S);

  S* transposed;
  S* plain;
  int const x = threadIdx.x % 16, y = threadIdx.x / 16;

  __device__ explicit AttentionTile(unsigned char* shared)
      : transposed(reinterpret_cast<S*>(shared)), plain(transposed + size * stride) {}

  /// Copies a tile to shared memory, transposed: to[d][r] = from[r][d] for r < rows_here and d < depths. The
  /// rest of 64 rows and 32 channels becomes 0. A warp reads 8 channels of 4 rows at a time, so it writes to
  /// 32 different banks.
  template <class T>
  static __device__ void load_transposed(S* to, T const* from, std::int64_t stride_from, int rows_here,
                                         std::int64_t depths) {
    int const lane = threadIdx.x % 32;
#pragma unroll 4
    for (int i = threadIdx.x / 32; i < 64; i += threads / 32) {
      int const r = i % 16 * 4 + lane / 8, d = i / 16 * 8 + lane % 8;
      to[d * stride + r] = r < rows_here && d < depths ? get<S>(from[r * stride_from + d]) : S(0);
    }
  }

  /// Copies rows to shared memory: plain[r][c] = from[r][c] for r < rows_here and c < columns. The rest of 64
  /// rows and W channels becomes 0.
  template <int W, class T>
  __device__ void load_rows(T const* from, std::int64_t stride_from, int rows_here,
                            std::int64_t columns) const {
#pragma unroll 4
    for (int i = threadIdx.x; i < size * W; i += threads) {
      int const r = i / W, c = i % W;
      plain[i] = r < rows_here && c < columns ? get<S>(from[r * stride_from + c]) : S(0);
    }
  }

  /// Adds to sums[i][j] the sum over k < count of left[k][row i] * right[k][column j], k in order. The
  /// operands are zero-padded to a multiple of 8 in k.
  template <int N>
  __device__ void multiply(S const* left, S const* right, int right_stride, int count,
                           S (&sums)[rows][N]) const {
    for (int k = 0; k < count; k += 8)
#pragma unroll
      for (int d = k; d < k + 8; ++d) {
        S a[rows], b[N];
        load_vectors(left + d * stride + y * rows, a);
#pragma unroll
        for (int j = 0; j < N; ++j) b[j] = right[d * right_stride + x + 16 * j];
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
          for (int j = 0; j < N; ++j) sums[i][j] = detail::multiply_add(a[i], b[j], sums[i][j]);
      }
  }

  /// Computes sums (64, 64) = left right^T over a head's channels. Synchronizes all threads around the loads.
  template <class T>
  __device__ void scores(T const* left, std::int64_t left_stride, int left_rows, T const* right,
                         std::int64_t right_stride, int right_rows, std::int64_t head,
                         S (&sums)[rows][4]) const {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = S(0);
    for (std::int64_t d = 0; d < head; d += depth) {
      std::int64_t const rest = head - d;
      __syncthreads();
      load_transposed(transposed, left + d, left_stride, left_rows, rest);
      load_transposed(transposed + depth * stride, right + d, right_stride, right_rows, rest);
      __syncthreads();
      multiply(transposed, transposed + depth * stride, stride,
               static_cast<int>(rest < depth ? rest : std::int64_t{depth}), sums);
    }
  }

  /// Adds the product of values (64, 64) and right (64, W) to `sums`. `values` is a tile in registers. Only
  /// the first `columns` of the W channels of `right` exist. Synchronizes all threads before and after the
  /// loads.
  template <int W, class T>
  __device__ void multiply_rows(S const (&values)[rows][4], T const* right, std::int64_t right_stride,
                                int right_rows, std::int64_t columns, S (&sums)[rows][W / 16]) const {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < rows; ++i) transposed[(x + 16 * j) * stride + y * rows + i] = values[i][j];
    load_rows<W>(right, right_stride, right_rows, columns);
    __syncthreads();
    multiply(transposed, plain, W, size, sums);
  }

 private:
  static __device__ void load_vectors(float const* from, float (&to)[rows]) {
#pragma unroll
    for (int i = 0; i < rows; i += 4) {
      float4 const four = *reinterpret_cast<float4 const*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  }
  static __device__ void load_vectors(double const* from, double (&to)[rows]) {
#pragma unroll
    for (int i = 0; i < rows; i += 2) {
      double2 const two = *reinterpret_cast<double2 const*>(from + i);
      to[i] = two.x;
      to[i + 1] = two.y;
    }
  }
};

template <class T>
inline constexpr int tile_threads = AttentionTile<compute_t<T>>::threads;
/// The number of blocks of the gradient kernels that a multiprocessor should hold at once.
template <class T>
inline constexpr int tile_gradient_blocks = sizeof(compute_t<T>) == 4 ? 3 : 1;

/// largest_of_16 returns the maximum, and sum_of_16 the sum, of a value over the 16 threads that share rows
/// of a tile. The order of the operations is fixed. All 16 threads get the result.
template <class S>
__device__ S largest_of_16(S value) {
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) value = fmax(value, __shfl_xor_sync(~0u, value, lane));
  return value;
}
template <class S>
__device__ S sum_of_16(S value) {
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

/// The work of one thread block: channels [channel, channel + W) of 64 rows of a pair, from row `first` on.
struct AttentionPart {
  std::int64_t pair, first, channel;

  template <int W>
  static __device__ AttentionPart of_block(HeadLayout const& at, std::int64_t rows, bool last_rows_first) {
    std::int64_t const slices = (at.head + W - 1) / W, tiles = (rows + 63) / 64;
    std::int64_t const part = blockIdx.x / slices, tile = part % tiles;
    return {part / tiles, 64 * (last_rows_first ? tiles - 1 - tile : tile), blockIdx.x % slices * W};
  }
  /// Returns the number of blocks that cover `pairs` pairs.
  template <int W>
  static unsigned blocks(HeadLayout const& at, std::int64_t rows, std::int64_t pairs) {
    return static_cast<unsigned>(pairs * ((rows + 63) / 64) * ((at.head + W - 1) / W));
  }
};

__device__ __forceinline__ int rows_of_tile(std::int64_t sequence, std::int64_t first) {
  return static_cast<int>(min(std::int64_t{64}, sequence - first));
}

/// Computes out and logsumexp of an AttentionPart. `Packed` means that queries, keys and values have the same
/// stride, that the values begin where the keys end, and that each head has one key per query. With `Packed`,
/// the fp32 kernel uses 128 registers per thread instead of 168, so a multiprocessor holds one more block.
template <class T, int W, bool Packed>
__global__ __launch_bounds__(tile_threads<T>) void attention_forward_tiles(HeadLayout at, compute_t<T> scale,
                                                                           Heads<T const> x, T* out,
                                                                           compute_t<T>* logsumexp) {
  using S = compute_t<T>;
  using Tile = AttentionTile<S>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Tile const tile(shared_bytes);
  AttentionPart const part = AttentionPart::of_block<W>(at, at.sequence, true);
  std::int64_t const row = part.first + tile.y * Tile::rows, offset = Packed ? 0 : at.offset;
  std::int64_t const end = offset + min(at.sequence, part.first + 64);
  std::int64_t const q_stride = Packed ? x.kv_stride : x.q_stride;
  T const* const queries = x.q + at.first(part.pair, q_stride) + part.first * q_stride;
  S largest[Tile::rows], total[Tile::rows], sums[Tile::rows][W / 16] = {};
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i) {
    largest[i] = S(-INFINITY);
    total[i] = S(0);
  }
  for (std::int64_t key = 0; Packed ? key <= part.first : key < end; key += 64) {
    int const keys = rows_of_tile(Packed ? at.sequence : at.keys, key);
    S scores[Tile::rows][4];
    tile.scores(queries, q_stride, rows_of_tile(at.sequence, part.first),
                x.k + at.template first_key<Packed>(part.pair, x.kv_stride) + key * x.kv_stride, x.kv_stride,
                keys, at.head, scores);
#pragma unroll
    for (int i = 0; i < Tile::rows; ++i) {
      S top = largest[i], sum = S(0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        bool const visible = key + tile.x + 16 * j <= offset + row + i;
        scores[i][j] = visible ? scores[i][j] * scale : S(-INFINITY);
        top = fmax(top, scores[i][j]);
      }
      top = largest_of_16(top);
      S const keep = detail::exponential(largest[i] - top);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum += scores[i][j] = detail::exponential(scores[i][j] - top);
      total[i] = detail::multiply_add(total[i], keep, sum_of_16(sum));
      largest[i] = top;
#pragma unroll
      for (int j = 0; j < W / 16; ++j) sums[i][j] *= keep;
    }
    tile.template multiply_rows<W>(scores,
                                   (Packed ? x.k + at.channels : x.v) +
                                       at.template first_key<Packed>(part.pair, x.kv_stride) +
                                       key * x.kv_stride + part.channel,
                                   x.kv_stride, keys, at.head - part.channel, sums);
  }
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i) {
    if (row + i >= at.sequence) break;
    S const factor = S(1) / total[i];
    T* const to = out + at.out(part.pair) + (row + i) * at.channels;
#pragma unroll
    for (int j = 0; j < W / 16; ++j) {
      std::int64_t const channel = part.channel + tile.x + 16 * j;
      if (channel < at.head) to[channel] = put<T>(sums[i][j] * factor);
    }
    if (part.channel == 0 && tile.x == 0)
      logsumexp[at.rows(part.pair) + row + i] = largest[i] + log(total[i]);
  }
}

/// The arguments of the gradient kernels. A grid computes consecutive pairs (a pair is a sample and a head),
/// from `first_pair` on. Block 0 of the grid and element 0 of `dots` belong to `first_pair`.
template <class T>
struct AttentionGradient {
  HeadLayout at;
  std::int64_t first_pair;
  compute_t<T> scale;
  T const* dout;
  Heads<T const> x;
  T const* out;
  compute_t<T> const* logsumexp;
  compute_t<T>* dots;  // (pairs of the grid, queries), see attention_dots
  Heads<T> dx;
  // null, or receives the sums of dq, dk and dv over blocks of a sample's rows, (blocks, 3 C) for C channels
  // of all heads. With sums, dq, dk and dv must be adjacent columns of one tensor.
  compute_t<T>* partials = nullptr;

  /// Returns the address in `partials` of the sums over the block of rows that contains row `row` of the pair
  /// `pair`. `which` is 0 for dq, 1 for dk and 2 for dv.
  __device__ compute_t<T>* partials_of(std::int64_t pair, std::int64_t row, int which) const {
    constexpr std::int64_t rows = ops::attention_block_rows;
    std::int64_t const block = pair / at.heads * ((at.sequence + rows - 1) / rows) + row / rows;
    return partials + (3 * block + which) * at.channels + pair % at.heads * at.head;
  }
};

/// Writes to `dots` the dot product of dout and out of each row, which the gradient of the softmax subtracts.
/// One warp computes one row. Each lane sums every 32nd channel, then a fixed tree adds the lanes' sums.
template <class T>
__global__ __launch_bounds__(256) void attention_dots(AttentionGradient<T> g, std::int64_t rows) {
  using S = compute_t<T>;
  HeadLayout const& at = g.at;
  std::int64_t const row = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (row >= rows) return;
  int const lane = threadIdx.x % 32;
  std::int64_t const from = at.out(g.first_pair + row / at.sequence) + row % at.sequence * at.channels;
  S sum(0);
  for (std::int64_t d = lane; d < at.head; d += 32)
    sum = detail::multiply_add(get<S>(g.dout[from + d]), get<S>(g.out[from + d]), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) g.dots[row] = sum;
}

/// Computes dq of 64 queries: the sum over keys, in order, of scale p (dp - dot) k. For a query and a key k
/// with value v, p is the probability (softmax of the score), dp = dout . v is the gradient of p, and dot is
/// the query's element of g.dots.
template <class T, int W>
__global__ __launch_bounds__(tile_threads<T>, tile_gradient_blocks<T>) void attention_query_gradient_tiles(
    AttentionGradient<T> g) {
  using S = compute_t<T>;
  using Tile = AttentionTile<S>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Tile const tile(shared_bytes);
  HeadLayout const& at = g.at;
  AttentionPart const part = AttentionPart::of_block<W>(at, at.sequence, true);
  std::int64_t const pair = g.first_pair + part.pair;
  std::int64_t const row = part.first + tile.y * Tile::rows, seen = at.offset + row;
  std::int64_t const end = at.offset + min(at.sequence, part.first + 64);
  int const queries_here = rows_of_tile(at.sequence, part.first);
  T const* const queries = g.x.q + at.first(pair, g.x.q_stride) + part.first * g.x.q_stride;
  std::int64_t const stride = g.x.kv_stride, keys_at = at.first_key(pair, stride);
  T const* const douts = g.dout + at.out(pair) + part.first * at.channels;
  S lse[Tile::rows], dot[Tile::rows], sums[Tile::rows][W / 16] = {};
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i) {
    bool const exists = row + i < at.sequence;
    lse[i] = exists ? g.logsumexp[at.rows(pair) + row + i] : S(0);
    dot[i] = exists ? g.dots[at.rows(part.pair) + row + i] : S(0);
  }
  for (std::int64_t key = 0; key < end; key += 64) {
    int const keys_here = rows_of_tile(at.keys, key);
    T const* const keys = g.x.k + keys_at + key * stride;
    T const* const values = g.x.v + keys_at + key * stride;
    S scores[Tile::rows][4], slopes[Tile::rows][4];
    tile.scores(queries, g.x.q_stride, queries_here, keys, stride, keys_here, at.head, scores);
    tile.scores(douts, at.channels, queries_here, values, stride, keys_here, at.head, slopes);
#pragma unroll
    for (int i = 0; i < Tile::rows; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        bool const visible = key + tile.x + 16 * j <= seen + i;
        S const probability = detail::exponential(detail::multiply_add(scores[i][j], g.scale, -lse[i]));
        slopes[i][j] = visible ? probability * g.scale * (slopes[i][j] - dot[i]) : S(0);
      }
    tile.template multiply_rows<W>(slopes, keys + part.channel, stride, keys_here, at.head - part.channel,
                                   sums);
  }
  T* const to = g.dx.q + at.first(pair, g.dx.q_stride);
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i)
#pragma unroll
    for (int j = 0; j < W / 16; ++j) {
      std::int64_t const channel = part.channel + tile.x + 16 * j;
      if (row + i < at.sequence && channel < at.head)
        to[(row + i) * g.dx.q_stride + channel] = put<T>(sums[i][j]);
    }
}

/// Computes dk and dv of 64 keys. They are sums over the heads that share the keys and over the queries that
/// attend to them, in order.
template <class T, int W>
__global__ __launch_bounds__(tile_threads<T>, tile_gradient_blocks<T>) void attention_key_gradient_tiles(
    AttentionGradient<T> g) {
  using S = compute_t<T>;
  using Tile = AttentionTile<S>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Tile const tile(shared_bytes);
  HeadLayout const& at = g.at;
  AttentionPart const part = AttentionPart::of_block<W>(at, at.keys, false);
  std::int64_t const of_grid = part.pair * at.group,
                     pair = g.first_pair + of_grid;  // the first pair that shares the keys
  std::int64_t const row = part.first + tile.y * Tile::rows;
  int const keys_here = rows_of_tile(at.keys, part.first);
  std::int64_t const stride = g.x.kv_stride, own = at.first_key(pair, stride) + part.first * stride;
  T const* const keys = g.x.k + own;
  T const* const values = g.x.v + own;
  T const* const queries_of = g.x.q + at.first(pair, g.x.q_stride);
  T const* const douts_of = g.dout + at.out(pair);
  S dkeys[Tile::rows][W / 16] = {}, dvalues[Tile::rows][W / 16] = {};
  for (int member = 0; member < at.group; ++member)
    for (std::int64_t query = at.sees(part.first); query < at.sequence; query += 64) {
      int const queries_here = rows_of_tile(at.sequence, query);
      T const* const queries = queries_of + member * at.head + query * g.x.q_stride;
      T const* const douts = douts_of + member * at.head + query * at.channels;
      S scores[Tile::rows][4], slopes[Tile::rows][4];
      tile.scores(keys, stride, keys_here, queries, g.x.q_stride, queries_here, at.head, scores);
      tile.scores(values, stride, keys_here, douts, at.channels, queries_here, at.head, slopes);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::int64_t const other = query + tile.x + 16 * j;
        bool const exists = other < at.sequence;
        S const lse = exists ? g.logsumexp[at.rows(pair + member) + other] : S(0);
        S const dot = exists ? g.dots[at.rows(of_grid + member) + other] : S(0);
#pragma unroll
        for (int i = 0; i < Tile::rows; ++i) {
          bool const visible = exists && row + i <= at.offset + other;
          S const probability = detail::exponential(detail::multiply_add(scores[i][j], g.scale, -lse));
          scores[i][j] = visible ? probability : S(0);
          slopes[i][j] = visible ? probability * g.scale * (slopes[i][j] - dot) : S(0);
        }
      }
      std::int64_t const channels_here = at.head - part.channel;
      tile.template multiply_rows<W>(scores, douts + part.channel, at.channels, queries_here, channels_here,
                                     dvalues);
      tile.template multiply_rows<W>(slopes, queries + part.channel, g.x.q_stride, queries_here,
                                     channels_here, dkeys);
    }
  std::int64_t const to_stride = g.dx.kv_stride, to_at = at.first_key(pair, to_stride);
  T* const to_keys = g.dx.k + to_at;
  T* const to_values = g.dx.v + to_at;
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i)
#pragma unroll
    for (int j = 0; j < W / 16; ++j) {
      std::int64_t const channel = part.channel + tile.x + 16 * j;
      if (row + i >= at.keys || channel >= at.head) continue;
      to_keys[(row + i) * to_stride + channel] = put<T>(dkeys[i][j]);
      to_values[(row + i) * to_stride + channel] = put<T>(dvalues[i][j]);
    }
}

/// Lets a kernel use `bytes` bytes of dynamic shared memory, also if this is more than the default limit of
/// 48 KiB.
template <class Kernel>
cudaError_t allow_shared(Kernel* kernel, std::size_t bytes) {
  return bytes <= 48 * 1024 ? cudaSuccess
                            : cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(bytes));
}

template <int W, class T>
cudaError_t run_attention_forward_tiles(cudaStream_t stream, HeadLayout const& at, std::int64_t pairs,
                                        compute_t<T> scale, Heads<T const> const& x, T* out,
                                        compute_t<T>* logsumexp) {
  using Tile = AttentionTile<compute_t<T>>;
  constexpr std::size_t bytes = Tile::template shared_bytes<W>;
  static_assert(bytes <= min_shared_bytes);
  bool const packed =
      x.q_stride == x.kv_stride && x.v == x.k + at.channels && at.group == 1 && at.keys == at.sequence;
  auto* const kernel = packed ? &attention_forward_tiles<T, W, true> : &attention_forward_tiles<T, W, false>;
  cudaError_t const status = allow_shared(kernel, bytes);
  kernel<<<AttentionPart::blocks<W>(at, at.sequence, pairs), Tile::threads, bytes, stream>>>(at, scale, x,
                                                                                             out, logsumexp);
  return status;
}

template <int W, class T>
cudaError_t run_attention_gradient_tiles(cudaStream_t stream, AttentionGradient<T> const& g,
                                         std::int64_t pairs) {
  using Tile = AttentionTile<compute_t<T>>;
  constexpr std::size_t bytes = Tile::template shared_bytes<W>;
  static_assert(bytes <= min_shared_bytes);
  cudaError_t const query_status = allow_shared(attention_query_gradient_tiles<T, W>, bytes);
  cudaError_t const key_status = allow_shared(attention_key_gradient_tiles<T, W>, bytes);
  attention_dots<<<blocks_for(pairs * g.at.sequence, 8), 256, 0, stream>>>(g, pairs * g.at.sequence);
  attention_query_gradient_tiles<T, W>
      <<<AttentionPart::blocks<W>(g.at, g.at.sequence, pairs), Tile::threads, bytes, stream>>>(g);
  attention_key_gradient_tiles<T, W>
      <<<AttentionPart::blocks<W>(g.at, g.at.keys, pairs / g.at.group), Tile::threads, bytes, stream>>>(g);
  return query_status != cudaSuccess ? query_status : key_status;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
