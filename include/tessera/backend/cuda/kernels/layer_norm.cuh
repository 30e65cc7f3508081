// SPDX-License-Identifier: Apache-2.0
// Implements layer normalisation and RMS normalisation on the GPU. RMS normalisation uses 0 for the mean and
// has no beta. The contracts are in ops/layer_norm.hpp and ops/rms_norm.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/sums.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

// All multiplications are explicitly rounded or fused (activation.cuh). Otherwise the compiler could fuse
// them differently in different variants of a kernel, and all variants must compute the same bits. The
// threads with the same threadIdx.y share a row: pack p of a thread is pack p * blockDim.x + threadIdx.x of
// the row. This layout depends only on the shape, so the order of a sum does not depend on addresses. `Full`
// means that rows consist of whole packs and are aligned for packs.

/// Returns the pack of a row that begins at column `position`. Values beyond the row's `columns` columns are
/// zero. With `Full`, the zeros are set as whole words and not value by value.
template <int N, bool Full, class T>
__device__ __forceinline__ Pack<T, N> load_of_row(T const* row, int position, int columns) {
  if constexpr (Full) {
    using Bits = Word<sizeof(Pack<T, N>)>;
    Bits bits{};
    if (position < columns) bits = *reinterpret_cast<Bits const*>(row + position);
    return *reinterpret_cast<Pack<T, N> const*>(&bits);
  } else {
    return load<N, false>(row + position, columns - position);
  }
}
template <int N, bool Full, class T>
__device__ __forceinline__ void store_of_row(T* row, Pack<T, N> const& pack, int position, int columns) {
  if (!Full || position < columns) store<N, Full>(row + position, pack, columns - position);
}

/// norm_row_threads is the maximum number of threads per row. The other constants are numbers of packs of a
/// row that a thread keeps in registers, in the forward or backward pass. If one warp can hold a whole row
/// with norm_warp_packs, but not with norm_backward_packs, the backward pass uses norm_warp_packs.
inline constexpr int norm_row_threads = 512;
inline constexpr int norm_forward_packs = 4;
template <class T>
inline constexpr int norm_backward_packs = sizeof(T) == 4 ? 4 : 2;
template <class T>
inline constexpr int norm_warp_packs = sizeof(T) == 4   ? 6
                                       : sizeof(T) == 2 ? 3
                                                        : 2;

/// Returns the shape (x, y) of a thread block. x is the number of threads that share a row of `columns`
/// columns, a multiple of 32. If 512 threads suffice, a thread holds at most `packs` packs of the row. y is
/// the number of rows that a block of about `threads` threads processes at once.
template <class T>
dim3 norm_block_shape(std::int64_t columns, int packs, int threads) {
  std::int64_t const of_warp = std::int64_t{32} * packs * pack_width<T>;
  int const warps =
      static_cast<int>(std::clamp<std::int64_t>((columns + of_warp - 1) / of_warp, 1, norm_row_threads / 32));
  return dim3(static_cast<unsigned>(32 * warps), static_cast<unsigned>(std::max(1, threads / 32 / warps)));
}

// ---- forward --------------------------------------------------------------------------------------------

/// Normalises one row with the threads of one threadIdx.y. A row that fits stays in registers. A longer row
/// is read again for each of up to three passes: the mean, the variance, and y. Without `Centered` (RMS
/// normalisation) there is no beta and no mean.
template <class T, bool Full, bool Centered>
__global__ __launch_bounds__(norm_row_threads, sizeof(T) == 8 ? 1 : 2) void layer_norm_forward_kernel(
    std::int64_t rows, int columns, T const* x, T const* gamma, T const* beta, compute_t<T> epsilon, T* y,
    compute_t<T>* mean, compute_t<T>* rstd) {
  using S = compute_t<T>;
  constexpr int n = pack_width<T>, packs = norm_forward_packs;
  std::int64_t const own = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // threads beyond the last row repeat the last row and write nothing
  std::int64_t const row = own < rows ? own : rows - 1;
  int const span = static_cast<int>(blockDim.x) * packs * n;
  auto const position_of = [](int begin, int p) {
    return begin + static_cast<int>(p * blockDim.x + threadIdx.x) * n;
  };
  T const* const from = x + row * columns;
  S values[packs][n];
  int loaded = -1;
  // Divides the row into spans that fit into the registers. For each span [begin, begin + span), loads its
  // values and calls work(begin).
  auto const for_spans = [&](auto const& work) {
    for (int begin = 0; begin < columns; begin += span) {
      if (begin != loaded) {
        Pack<T, n> stored[packs];
#pragma unroll
        for (int p = 0; p < packs; ++p)
          stored[p] = load_of_row<n, Full>(from, position_of(begin, p), columns);
#pragma unroll
        for (int p = 0; p < packs; ++p) read_pack(stored[p], values[p]);
        loaded = begin;
      }
      work(begin);
    }
  };
  auto const sum_over_row = [&](auto const& add) {
    S sum(0);
    for_spans([&](int begin) {
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        int const position = position_of(begin, p);
        if (position >= columns) break;
#pragma unroll
        for (int k = 0; k < n; ++k)
          if (Full || position + k < columns) sum = add(sum, values[p][k]);
      }
    });
    return reduce_row<Sum>(sum);
  };
  S average(0);
  if constexpr (Centered) average = sum_over_row([](S sum, S value) { return sum + value; }) / S(columns);
  S const squares = sum_over_row(
      [average](S sum, S value) { return detail::multiply_add(value - average, value - average, sum); });
  S const scale = S(1) / sqrt(squares / S(columns) + epsilon);
  if (own >= rows) return;
  if (threadIdx.x == 0) {
    if constexpr (Centered) mean[row] = average;
    rstd[row] = scale;
  }
  for_spans([&](int begin) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      int const position = position_of(begin, p);
      if (position >= columns) break;
      S gammas[n], betas[n] = {}, result[n];
      read_pack(load_of_row<n, Full>(gamma, position, columns), gammas);
      if constexpr (Centered) read_pack(load_of_row<n, Full>(beta, position, columns), betas);
#pragma unroll
      for (int k = 0; k < n; ++k)
        result[k] =
            detail::multiply_add(detail::multiply(values[p][k] - average, scale), gammas[k], betas[k]);
      store_of_row<n, Full>(y + row * columns, make_pack<T>(result), position, columns);
    }
  });
}

// ---- backward -------------------------------------------------------------------------------------------

/// The operands of the backward pass. `residual` is a gradient that is added to dx. `residual_sums` and
/// `dx_sums`, each (blocks,columns), receive the sums of `residual` and of `dx` over blocks of rows.
/// `residual`, `dx`, `residual_sums` and `dx_sums` may be null. A null output is not computed.
template <class T>
struct NormGradient {
  std::int64_t rows, columns;
  T const *dy, *x, *gamma;
  compute_t<T> const *mean, *rstd;
  T const* residual;
  T* dx;
  compute_t<T>*residual_sums, *dx_sums;
};

/// Returns dx of one value. `scaled` is dy gamma, `normal` is the normalised value and `scale` is the row's
/// rstd. `sum_mean` is the row's mean of dy gamma. `minus_dot_mean` is minus the row's mean of dy gamma times
/// the normalised value.
template <class S>
__device__ __forceinline__ S norm_slope(S scaled, S normal, S sum_mean, S minus_dot_mean, S scale) {
  return detail::multiply(detail::multiply_add(normal, minus_dot_mean, scaled - sum_mean), scale);
}

/// Sums both values over the threads of a row, or only the second one without `Centered`.
template <bool Centered, class S>
__device__ __forceinline__ void reduce_norm_sums(S (&sums)[2]) {
  if constexpr (Centered)
    reduce_row<Sum>(sums);
  else
    sums[1] = reduce_row<Sum>(sums[1]);
}

/// norm_backward_threads is the maximum number of threads of a backward block. It is smaller with `Sums`,
/// because a thread then also keeps sums over rows in registers. norm_warp_threads is the number of threads
/// of a block with one row per warp.
template <bool Sums>
inline constexpr int norm_backward_threads = Sums ? 256 : norm_row_threads;
inline constexpr int norm_warp_threads = 128;

/// Computes dx, and for each thread block the sums of dgamma and (with Centered) of dbeta over the block's
/// rows. Reads each row once. If `partials` is not null, it receives these sums; its shape is
/// (2,blocks,columns), or (1,blocks,columns) without Centered. The threads of one threadIdx.y keep a row in
/// registers, and add their rows in order. Then the results of all values of threadIdx.y are added in order.
/// With Sums, the residual gradient and dx are summed over the block's rows in the same way. Each of these
/// two outputs has `sum_blocks` rows, one per thread block. If there are fewer thread blocks, the remaining
/// rows are set to zero.
template <class T, int Packs, int Threads, int Blocks, bool Full, bool Centered, bool Sums>
__global__ __launch_bounds__(Threads, Blocks) void layer_norm_backward_kernel(NormGradient<T> g,
                                                                              std::int64_t rows_of_block,
                                                                              compute_t<T>* partials,
                                                                              int sum_blocks) {
  using S = compute_t<T>;
  constexpr int n = pack_width<T>, packs = Packs;
  // `shared` is used only by thread blocks that process several rows at once; they have at most 256 threads
  constexpr int shared_threads = Threads < 256 ? Threads : 256;
  __shared__ S shared[shared_threads * packs * n];
  int const columns = static_cast<int>(g.columns), span = static_cast<int>(blockDim.x) * packs * n;
  auto const position = [](int p) { return static_cast<int>((p * blockDim.x + threadIdx.x) * n); };
  S dgamma[packs][n] = {}, dbeta[packs][n] = {}, residual_sums[packs][n] = {}, dx_sums[packs][n] = {};

  // While the threads compute a row, the packs of the next row are copied to shared memory. Each thread
  // copies the packs that it uses itself. The memory holds two rows of three arrays: dy, x and the residual
  // gradient.
  extern __shared__ uint4 norm_packs[];
  int const threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
  auto const in_flight_copy = [&](int which, int array, int p) {
    return reinterpret_cast<Pack<T, n>*>(norm_packs + ((which * 3 + array) * packs + p) * threads + thread);
  };
  std::int64_t const first = blockIdx.x * rows_of_block, end = min(first + rows_of_block, g.rows);
  auto const send_for = [&](std::int64_t row, int which) {
    std::int64_t const at = row * g.columns;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      bool const exists = row < end && position(p) < columns;
      copy_16_bytes(in_flight_copy(which, 0, p), g.dy + at + position(p), exists);
      copy_16_bytes(in_flight_copy(which, 1, p), g.x + at + position(p), exists);
      if (g.residual) copy_16_bytes(in_flight_copy(which, 2, p), g.residual + at + position(p), exists);
    }
    commit_copies();
  };
  if constexpr (Full) send_for(first + threadIdx.y, 0);
  S next_center(0), next_scale(0);
  auto const load_statistics = [&](std::int64_t row) {
    if constexpr (Centered) next_center = row < end ? g.mean[row] : S(0);
    next_scale = row < end ? g.rstd[row] : S(0);
  };
  load_statistics(first + threadIdx.y);
  int which = 0;
  for (std::int64_t base = first; base < end; base += blockDim.y, which ^= 1) {
    std::int64_t const row = base + threadIdx.y;
    bool const present = row < end;  // a row beyond the end counts as a row of zeros without columns
    int const here = present ? columns : 0;
    std::int64_t const at = row * g.columns;
    S const center = next_center, scale = next_scale;
    load_statistics(row + blockDim.y);
    Pack<T, n> gammas[packs], slopes[packs], inputs[packs], residuals[packs];
    if constexpr (Full) {
      send_for(row + blockDim.y, which ^ 1);
      wait_for_copies<1>();
    }
#pragma unroll  // gamma is loaded again for each row, because as fp32 it would need too many registers
    for (int p = 0; p < packs; ++p) gammas[p] = load_of_row<n, Full>(g.gamma, position(p), columns);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if constexpr (Full) {
        slopes[p] = *in_flight_copy(which, 0, p);
        inputs[p] = *in_flight_copy(which, 1, p);
        if (g.residual) residuals[p] = *in_flight_copy(which, 2, p);
      } else {
        slopes[p] = load_of_row<n, Full>(g.dy + at, position(p), here);
        inputs[p] = load_of_row<n, Full>(g.x + at, position(p), here);
        if (g.residual) residuals[p] = load_of_row<n, Full>(g.residual + at, position(p), here);
      }
    }

    // the sums over the row of dy gamma, and of dy gamma times the normalised value
    S sums[2] = {S(0), S(0)};
    // Calls work(k, dy, dy gamma, normalised value) for each value k of pack p.
    auto const for_values = [&](int p, auto const& work) {
      S slope[n], factor[n], input[n];
      read_pack(slopes[p], slope);
      read_pack(gammas[p], factor);
      read_pack(inputs[p], input);
#pragma unroll
      for (int k = 0; k < n; ++k)
        work(k, slope[k], detail::multiply(slope[k], factor[k]), detail::multiply(input[k] - center, scale));
    };
#pragma unroll
    for (int p = 0; p < packs; ++p)
      for_values(p, [&](int k, S slope, S scaled, S normal) {
        if constexpr (Centered) sums[0] += scaled;
        sums[1] = detail::multiply_add(scaled, normal, sums[1]);
        dgamma[p][k] = detail::multiply_add(slope, normal, dgamma[p][k]);
        if constexpr (Centered) dbeta[p][k] += slope;
      });
    reduce_norm_sums<Centered>(sums);
    S const sum_mean = sums[0] / S(columns), minus_dot_mean = -sums[1] / S(columns);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      S values[n], residual[n] = {};
      if (g.residual) read_pack(residuals[p], residual);
      for_values(p, [&](int k, S, S scaled, S normal) {
        values[k] = norm_slope(scaled, normal, sum_mean, minus_dot_mean, scale);
        if (g.residual) values[k] += residual[k];
      });
      Pack<T, n> const result = make_pack<T>(values);
      if constexpr (Sums) {
        read_pack(result, values);  // the rounded values, as they are stored
#pragma unroll
        for (int k = 0; k < n; ++k) {
          // beyond the row, inputs are zero but the dx computed from them is not
          if (g.residual) residual_sums[p][k] += residual[k];
          if (position(p) + (Full ? 0 : k) < here) dx_sums[p][k] += values[k];
        }
      }
      if (g.dx) store_of_row<n, Full>(g.dx + at, result, position(p), here);
    }
  }

  auto const finish = [&](S const(&sums)[packs][n], S* to) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < packs; ++p)
#pragma unroll
      for (int k = 0; k < n; ++k) {
        int const column = position(p) + k;
        if (blockDim.y > 1)
          shared[threadIdx.y * span + column] = sums[p][k];
        else if (column < columns)
          to[column] = sums[p][k];
      }
    if (blockDim.y == 1) return;
    __syncthreads();
    for (int column = threadIdx.y * blockDim.x + threadIdx.x; column < columns;
         column += blockDim.x * blockDim.y) {
      S sum(0);
      for (int y = 0; y < static_cast<int>(blockDim.y); ++y) sum += shared[y * span + column];
      to[column] = sum;
    }
  };
  if (partials) {
    finish(dgamma, partials + blockIdx.x * g.columns);
    if constexpr (Centered) finish(dbeta, partials + (gridDim.x + blockIdx.x) * g.columns);
  }
  if constexpr (Sums) {
    auto const leave = [&](S const(&sums)[packs][n], S* to) {
      if (!to) return;
      finish(sums, to + blockIdx.x * g.columns);
      for (std::int64_t block = gridDim.x + blockIdx.x; block < sum_blocks; block += gridDim.x)
        for (int column = thread; column < columns; column += threads) to[block * g.columns + column] = S(0);
    };
    leave(residual_sums, g.residual_sums);
    leave(dx_sums, g.dx_sums);
  }
}

// ---- backward of rows that do not fit into registers ----------------------------------------------------

/// Computes dgamma and dbeta of 32 columns with a thread block of 32 x 16 threads. A thread sums every 16th
/// row of one column: it adds 64 rows to a partial sum, and adds the partial sums in order. At the end the
/// sums of the 16 threads of a column are added in order.
template <bool Centered, class T>
__global__ __launch_bounds__(512) void long_norm_scale_gradient_kernel(NormGradient<T> g,
                                                                       compute_t<T>* partials) {
  using S = compute_t<T>;
  constexpr int row_threads = 16, row_block = 64;
  __shared__ S shared[2][row_threads][32];
  std::int64_t const column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  S sums[2] = {S(0), S(0)};
  if (column < g.columns)
    for (std::int64_t block = threadIdx.y; block < g.rows; block += row_threads * row_block) {
      S parts[2] = {S(0), S(0)};
      for (std::int64_t row = block; row < min(block + row_threads * row_block, g.rows); row += row_threads) {
        std::int64_t const at = row * g.columns + column;
        S const slope = get<S>(g.dy[at]);
        S const center = Centered ? g.mean[row] : S(0);
        parts[0] += slope * ((get<S>(g.x[at]) - center) * g.rstd[row]);
        parts[1] += slope;
      }
      sums[0] += parts[0];
      sums[1] += parts[1];
    }
  for (int which = 0; which < 2; ++which) shared[which][threadIdx.y][threadIdx.x] = sums[which];
  __syncthreads();
  if (threadIdx.y >= (Centered ? 2 : 1) || column >= g.columns) return;
  S sum(0);
  for (int thread = 0; thread < row_threads; ++thread) sum += shared[threadIdx.y][thread][threadIdx.x];
  partials[threadIdx.y * g.columns + column] = sum;
}

/// Computes dx of one row per thread block. Reads the row twice.
template <bool Centered, class T>
__global__ __launch_bounds__(norm_row_threads) void long_norm_input_gradient_kernel(NormGradient<T> g) {
  using S = compute_t<T>;
  std::int64_t const at = blockIdx.x * g.columns;
  S const center = Centered ? g.mean[blockIdx.x] : S(0), scale = g.rstd[blockIdx.x];
  S sums[2] = {S(0), S(0)};
  for (std::int64_t column = threadIdx.x; column < g.columns; column += blockDim.x) {
    S const scaled = get<S>(g.dy[at + column]) * get<S>(g.gamma[column]);
    if constexpr (Centered) sums[0] += scaled;
    sums[1] += scaled * ((get<S>(g.x[at + column]) - center) * scale);
  }
  reduce_norm_sums<Centered>(sums);
  S const sum_mean = sums[0] / S(g.columns), minus_dot_mean = -sums[1] / S(g.columns);
  for (std::int64_t column = threadIdx.x; column < g.columns; column += blockDim.x) {
    S const scaled = get<S>(g.dy[at + column]) * get<S>(g.gamma[column]);
    S const normal = (get<S>(g.x[at + column]) - center) * scale;
    S value = norm_slope(scaled, normal, sum_mean, minus_dot_mean, scale);
    if (g.residual) value += get<S>(g.residual[at + column]);
    g.dx[at + column] = put<T>(value);
  }
}

/// Says how a backward pass distributes the rows: `threads` is the shape of a thread block, `rows_each` the
/// number of rows of a block, and `count` the number of blocks. Each block writes one row of partial sums.
/// For rows that are too long for registers, `count` is 1: there is one row of partial sums in total. Depends
/// only on shape and type.
template <class T>
struct NormBlocks {
  bool long_rows, warps;  ///< long_rows: too long for registers; warps: one warp per row
  dim3 threads;
  std::int64_t rows_each = 0;
  unsigned count = 1;

  NormBlocks(std::int64_t rows, std::int64_t columns)
      : long_rows(columns > std::int64_t{norm_row_threads} * norm_backward_packs<T> * pack_width<T>),
        warps(columns > 32 * norm_backward_packs<T> * pack_width<T> &&
              columns <= 32 * norm_warp_packs<T> * pack_width<T>),
        threads(warps ? norm_block_shape<T>(columns, norm_warp_packs<T>, norm_warp_threads)
                      : norm_block_shape<T>(columns, norm_backward_packs<T>, 256)) {
    if (long_rows) return;
    std::int64_t const groups = threads.y, most = groups * ops::layer_norm_partial_rows(rows);
    rows_each = std::max<std::int64_t>(1, (rows + most - 1) / most) * groups;
    count = blocks_for(rows, rows_each);
  }
};

/// Layer normalisation if `Centered`, otherwise RMS normalisation. For RMS normalisation, mean, beta and
/// dbeta are empty.
template <bool Centered>
struct RowNorm {
  /// Reads a row of up to 16384 channels in 16 bits (8192 in fp32, 4096 in fp64) once. Reads a longer row
  /// three times, or twice for RMS normalisation.
  template <class T>
  static void forward(Context<Cuda>& context, Tensor<T const, Cuda> x, Tensor<T const, Cuda> gamma,
                      Tensor<T const, Cuda> beta, double epsilon, Tensor<T, Cuda> y,
                      Tensor<compute_t<T>, Cuda> mean, Tensor<compute_t<T>, Cuda> rstd) {
    constexpr int n = pack_width<T>;
    std::int64_t const rows = x.shape().rows(), columns = x.shape().columns();
    if (rows == 0) return;
    if (columns > 1 << 30)
      return context.check(cudaErrorInvalidValue, "the forward pass of a norm of more than 2^30 channels");
    dim3 const block = norm_block_shape<T>(columns, norm_forward_packs, 128);
    bool const packed = columns % n == 0 && takes_packs<n>(x.data(), gamma.data(), beta.data(), y.data());
    auto* const kernel = packed ? &layer_norm_forward_kernel<T, true, Centered>
                                : &layer_norm_forward_kernel<T, false, Centered>;
    kernel<<<blocks_for(rows, block.y), block, 0, context.stream()>>>(
        rows, static_cast<int>(columns), x.data(), gamma.data(), beta.data(),
        static_cast<compute_t<T>>(epsilon), y.data(), mean.data(), rstd.data());
  }

  /// Reads a row of up to 8192 channels (2048 in fp64) once, and a longer row three times.
  template <class T>
  static void backward_input(Context<Cuda>& context, Tensor<T const, Cuda> dy, Tensor<T const, Cuda> x,
                             Tensor<T const, Cuda> gamma, Tensor<compute_t<T> const, Cuda> mean,
                             Tensor<compute_t<T> const, Cuda> rstd, Tensor<T const, Cuda> residual_gradient,
                             Tensor<T, Cuda> dx, Tensor<compute_t<T>, Cuda> partials,
                             ops::NormSums<compute_t<T>, Cuda> const& sums = {}) {
    NormGradient<T> const g{x.shape().rows(), x.shape().columns(),
                            dy.data(),        x.data(),
                            gamma.data(),     mean.data(),
                            rstd.data(),      residual_gradient.data(),
                            dx.data(),        sums.residual_gradient.data(),
                            sums.dx.data()};
    NormBlocks<T> const blocks(g.rows, g.columns);
    if (g.columns == 0) return;
    if constexpr (Centered)
      if ((g.residual_sums || g.dx_sums) && !blocks.long_rows && blocks.count > 0 &&
          static_cast<int>(blocks.threads.x * blocks.threads.y) <= norm_backward_threads<true>)
        return run_backward<true>(context, g, blocks, partials.data());
    std::int64_t const count = ops::layer_norm_partial_rows(g.rows);
    auto const sum = [&](T const* of, compute_t<T>* to) {
      if (to)
        run_row_block_sums(context.stream(), of, g.rows, g.columns, (g.rows + count - 1) / count, count, 0,
                           g.columns, to);
    };
    sum(g.residual, g.residual_sums);  // first, because dx and the residual gradient may be the same array
    run_backward<false>(context, g, blocks, partials.data());
    sum(g.dx, g.dx_sums);
  }

  template <bool Sums, class T>
  static void run_backward(Context<Cuda>& context, NormGradient<T> const& g, NormBlocks<T> const& blocks,
                           compute_t<T>* partials) {
    if (blocks.long_rows) {
      if (partials)
        long_norm_scale_gradient_kernel<Centered>
            <<<blocks_for(g.columns, 32), dim3(32, 16), 0, context.stream()>>>(g, partials);
      if (g.dx && g.rows > 0)
        long_norm_input_gradient_kernel<Centered>
            <<<static_cast<unsigned>(g.rows), norm_row_threads, 0, context.stream()>>>(g);
    } else if (blocks.count > 0) {
      if constexpr (norm_warp_packs<T> != norm_backward_packs<T>)
        if (blocks.warps)
          return run_blocks<norm_warp_packs<T>, norm_warp_threads, 2, Sums>(context, g, blocks, partials);
      run_blocks<norm_backward_packs<T>, norm_backward_threads<Sums>, Sums && sizeof(T) == 2 ? 2 : 1, Sums>(
          context, g, blocks, partials);
    }
  }

  template <int Packs, int Threads, int Blocks, bool Sums, class T>
  static void run_blocks(Context<Cuda>& context, NormGradient<T> const& g, NormBlocks<T> const& blocks,
                         compute_t<T>* partials) {
    constexpr int n = pack_width<T>;
    auto* kernel = &layer_norm_backward_kernel<T, Packs, Threads, Blocks, false, Centered, Sums>;
    int bytes = 0;
    if (g.columns % n == 0 && takes_packs<n>(g.dy, g.x, g.gamma, g.residual, g.dx)) {
      auto* const packed_kernel =
          &layer_norm_backward_kernel<T, Packs, Threads, Blocks, true, Centered, Sums>;
      int const packs = 2 * 3 * Packs;  // per thread: two rows of three arrays
      int const copy_bytes = 16 * packs * static_cast<int>(blocks.threads.x * blocks.threads.y);
      // The variant with copies runs only if its copies fit into shared memory. GPUs of compute capability
      // 8.0 to 8.9 have less shared memory than GPUs of 9.0. The limit is a property of the kernel, which
      // other callers also launch. So every caller sets it to the maximum.
      int device = 0, max_bytes = 0;
      cudaFuncAttributes its{};
      context.check(cudaGetDevice(&device), "cudaGetDevice");
      context.check(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                    "cudaDeviceGetAttribute");
      context.check(cudaFuncGetAttributes(&its, packed_kernel), "cudaFuncGetAttributes");
      max_bytes -= static_cast<int>(its.sharedSizeBytes);
      if (copy_bytes <= max_bytes) {
        context.check(
            cudaFuncSetAttribute(packed_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_bytes),
            "cudaFuncSetAttribute");
        kernel = packed_kernel;
        bytes = copy_bytes;
      }
    }
    kernel<<<blocks.count, blocks.threads, bytes, context.stream()>>>(
        g, blocks.rows_each, partials, static_cast<int>(ops::layer_norm_partial_rows(g.rows)));
  }

  template <class T>
  static void backward_weight(Context<Cuda>& context, Tensor<compute_t<T> const, Cuda> partials,
                              std::int64_t rows, Tensor<T, Cuda> dgamma, Tensor<T, Cuda> dbeta) {
    std::int64_t const columns = partials.shape().columns();
    std::int64_t const count = NormBlocks<T>(rows, columns).count;
    backend::RowSums<Cuda>::begin(context);
    if (dgamma) sum_partials(context, partials.data(), count, columns, dgamma.data());
    if (dbeta) sum_partials(context, partials.data() + count * columns, count, columns, dbeta.data());
    backend::RowSums<Cuda>::end(context);
  }
};

}  // namespace cuda

template <>
struct backend::LayerNorm<Cuda> : cuda::RowNorm<true> {};
template <>
struct backend::RmsNorm<Cuda> : cuda::RowNorm<false> {};

}  // namespace v0
}  // namespace tessera
