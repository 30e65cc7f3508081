// SPDX-License-Identifier: Apache-2.0
// Implements token and position embeddings on the GPU. The contracts are in ops/embedding.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/sort.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

// ---- forward --------------------------------------------------------------------------------------------

inline constexpr int embedding_warps = 8;

/// Computes one row of y per warp: the row of its token in `wte`, plus the row of its position. `wpe` is the
/// row of the first position, or null if positions have no embeddings.
template <class T, int N, bool Full>
__global__ __launch_bounds__(32 * embedding_warps) void embedding_forward_kernel(
    std::int64_t rows, std::int64_t columns, std::int64_t sequence, std::int32_t const* tokens, T const* wte,
    T const* wpe, T* y) {
  using S = compute_t<T>;
  std::int64_t const row = static_cast<std::int64_t>(blockIdx.x) * embedding_warps + threadIdx.y;
  if (row >= rows) return;
  T const* const token = wte + static_cast<std::int64_t>(tokens[row]) * columns;
  T const* const position = wpe ? wpe + row % sequence * columns : nullptr;
  T* const to = y + row * columns;
#pragma unroll 4
  for (std::int64_t column = std::int64_t{N} * threadIdx.x; column < columns; column += 32 * N) {
    Pack<T, N> result = load<N, Full>(token + column, columns - column);
    if (position) {
      Pack<T, N> const added = load<N, Full>(position + column, columns - column);
#pragma unroll
      for (int k = 0; k < N; ++k) result.value[k] = put<T>(get<S>(result.value[k]) + get<S>(added.value[k]));
    }
    store<N, Full>(to + column, result, columns - column);
  }
}

// ---- backward -------------------------------------------------------------------------------------------

/// The maximum number of tokens that are sorted at once. More tokens are sorted in several parts, in order.
inline constexpr std::int64_t sorted_tokens = std::int64_t{1} << 20;

/// Returns the bytes of workspace that the backward pass needs for `tokens` tokens: at most 16.5 MiB.
constexpr std::size_t embedding_workspace_bytes(std::int64_t tokens) {
  return sort_workspace_bytes(std::min(tokens, sorted_tokens));
}

inline constexpr int run_warps = 4;

/// Adds each row of dy to the row of its token in `partial`, except for rows of the token `padding`. `tokens`
/// is sorted, and rows[i] is the row in dy of tokens[i]. There is one warp per token. Of several equal
/// tokens, the warp of the first one adds the rows of all of them, in order, and the other warps return. The
/// warp processes stripes of 32 N columns, with up to 16 loads per lane in flight.
template <class T, int N>
__global__ __launch_bounds__(32 * run_warps) void add_runs_kernel(std::int64_t count, std::int64_t columns,
                                                                  std::int32_t const* tokens,
                                                                  std::int32_t const* rows,
                                                                  std::int64_t padding, T const* dy,
                                                                  compute_t<T>* partial) {
  using S = compute_t<T>;
  constexpr int parts = 4, rows_of_part = 4, batch = parts * rows_of_part;
  constexpr unsigned all = 0xffffffffu;
  int const lane = static_cast<int>(threadIdx.x);
  std::int64_t const begin = static_cast<std::int64_t>(blockIdx.x) * run_warps + threadIdx.y;
  if (begin >= count) return;
  std::int32_t const token = tokens[begin];
  if (token == padding || (begin > 0 && tokens[begin - 1] == token)) return;
  for (std::int64_t stripe = blockIdx.y; stripe * 32 * N < columns; stripe += gridDim.y) {
    std::int64_t const column = (stripe * 32 + lane) * N;
    // a lane's N columns are all inside or all outside, because N divides `columns`
    bool const inside = column < columns;
    T const* const from = dy + column;
    S* const to = partial + token * columns + column;
    constexpr int each = N < pack_width<S> ? N : pack_width<S>;
    Pack<S, each> sums[N / each] = {};
    if (inside)
#pragma unroll
      for (int k = 0; k < N / each; ++k) sums[k] = load<each, true>(to + k * each, each);
    for (std::int64_t first = begin;; first += batch) {
      std::int64_t const i = first + lane;
      bool const same = lane < batch && i < count && tokens[i] == token;
      std::int32_t const row_of_lane = same ? rows[i] : 0;
      int const found = __popc(__ballot_sync(all, same));
      Pack<T, N> loaded[batch];
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        if (part * rows_of_part >= found) break;
#pragma unroll
        for (int r = part * rows_of_part; r < (part + 1) * rows_of_part; ++r) {
          std::int64_t const row = __shfl_sync(all, row_of_lane, r);
          if (inside && r < found) loaded[r] = load<N, true>(from + row * columns, N);
        }
      }
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        if (part * rows_of_part >= found) break;
#pragma unroll
        for (int r = part * rows_of_part; r < (part + 1) * rows_of_part; ++r)
          if (inside && r < found)
#pragma unroll
            for (int k = 0; k < N; ++k) sums[k / each].value[k % each] += get<S>(loaded[r].value[k]);
      }
      if (found < batch) break;
    }
    if (inside)
#pragma unroll
      for (int k = 0; k < N / each; ++k) store<each, true>(to + k * each, sums[k], each);
  }
}

/// Enqueues kernels that sort `count` tokens (at most sorted_tokens) and add the row of dy of each token to
/// the row of the token's embedding in `partial`. Tokens that equal `padding` are skipped.
template <class T>
void run_add_token_rows(Context<Cuda>& context, std::int64_t count, std::int64_t columns,
                        std::int64_t vocabulary, std::int32_t const* tokens, std::int64_t padding,
                        T const* dy, compute_t<T>* partial) {
  constexpr int n = pack_width<T>;
  SortedKeys const sorted = run_sort(context.stream(), count, tokens, vocabulary, context.workspace().data());
  bool const packed =
      columns % n == 0 && takes_packs<n>(dy) && takes_packs<pack_width<compute_t<T>>>(partial);
  std::int64_t const stripe = 32 * (packed ? n : 1), stripes = (columns + stripe - 1) / stripe;
  auto* const kernel = packed ? &add_runs_kernel<T, n> : &add_runs_kernel<T, 1>;
  kernel<<<dim3(blocks_for(count, run_warps), static_cast<unsigned>(std::min<std::int64_t>(65535, stripes))),
           dim3(32, run_warps), 0, context.stream()>>>(count, columns, sorted.keys, sorted.rows, padding, dy,
                                                       partial);
}

/// Sets `used` elements of dwpe, from element `first` on, to the sums of dy over the samples, in order. Sets
/// all other elements of dwpe to zero.
template <class T>
void run_add_positions(cudaStream_t stream, std::int64_t samples, std::int64_t first, std::int64_t used,
                       std::int64_t elements, T const* dy, T* dwpe) {
  std::int64_t const end = first + used;
  run_fill(stream, first, dwpe, compute_t<T>(0));
  run_accumulate<compute_t<T>>(stream, used, dy, samples, used, AccumulateStart::zero, dwpe + first);
  run_fill(stream, elements - end, dwpe + end, compute_t<T>(0));
}

struct Embedding {
  template <class T>
  static void forward(Context<Cuda>& context, Tensor<std::int32_t const, Cuda> tokens,
                      Tensor<T const, Cuda> wte, Tensor<T const, Cuda> wpe, Tensor<T, Cuda> y,
                      ops::EmbeddingOptions const& with) {
    constexpr int n = pack_width<T>;
    std::int64_t const rows = y.shape().rows(), columns = y.shape().columns();
    if (rows == 0) return;
    T const* const positions = wpe ? wpe.data() + with.first_position * columns : nullptr;
    bool const full_packs = columns % n == 0 && takes_packs<n>(wte.data(), positions, y.data());
    auto* const kernel =
        full_packs ? &embedding_forward_kernel<T, n, true> : &embedding_forward_kernel<T, 1, false>;
    kernel<<<blocks_for(rows, embedding_warps), dim3(32, embedding_warps), 0, context.stream()>>>(
        rows, columns, tokens.shape().columns(), tokens.data(), wte.data(), positions, y.data());
  }

  /// Computes dwte and dwpe with the same bits as on the CPU: tokens are sorted stably, then each token's
  /// rows are added in order. The sums for dwte are computed in `partial`; if `fresh` is true, `partial` is
  /// set to zero first. Needs embedding_workspace_bytes(tokens) bytes of workspace. Reads dy once for each of
  /// the two results.
  template <class T>
  static void backward(Context<Cuda>& context, Tensor<std::int32_t const, Cuda> tokens,
                       Tensor<T const, Cuda> dy, Tensor<compute_t<T>, Cuda> partial, bool fresh,
                       Tensor<T, Cuda> dwte, Tensor<T, Cuda> dwpe, ops::EmbeddingOptions const& with) {
    using S = compute_t<T>;
    std::int64_t const rows = dy.shape().rows(), columns = dy.shape().columns();
    if (dwte) {
      if (fresh) run_fill(context.stream(), partial.elements(), partial.data(), S(0));
      for (std::int64_t begin = 0; begin < rows; begin += sorted_tokens)
        run_add_token_rows(context, std::min(sorted_tokens, rows - begin), columns, dwte.shape().rows(),
                           tokens.data() + begin, with.padding_token, dy.data() + begin * columns,
                           partial.data());
      if (static_cast<void const*>(partial.data()) != static_cast<void const*>(dwte.data()))
        run_convert(context.stream(), dwte.elements(), static_cast<S const*>(partial.data()), dwte.data());
    }
    std::int64_t const used = tokens.shape().columns() * columns;
    if (dwpe)
      run_add_positions(context.stream(), used > 0 ? rows * columns / used : 0, with.first_position * columns,
                        used, dwpe.elements(), dy.data(), dwpe.data());
  }
};

}  // namespace cuda

template <>
struct backend::Embedding<Cuda> : cuda::Embedding {};

}  // namespace v0
}  // namespace tessera
