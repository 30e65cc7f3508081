// SPDX-License-Identifier: Apache-2.0
// Implements the classifier's loss and gradient on the GPU. The contract is in ops/cross_entropy.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns 2^x. In fp32, results below the smallest normal number are 0.
__device__ __forceinline__ float power_of_two(float x) { return exponential_of_2(x); }
__device__ __forceinline__ double power_of_two(double x) { return exp2(x); }

/// Sums e^x over many x in one pass. The sum is total * 2^top. `top` is the largest x log2(e) so far, so no
/// term overflows. The term of x is 2^(x log2(e) - top). Every term subtracts the same top, so a rounding
/// error of top cancels. The largest terms have exponents near 0, and such exponents have small rounding
/// errors.
template <class S>
struct SumOfExponentials {
  static constexpr S log2_e = S(1.4426950408889634073599246810018921);
  static constexpr S ln_2 = S(0.69314718055994530941723212145817657);
  S top = std::numeric_limits<S>::lowest(), total = S(0);

  __device__ __forceinline__ S exponent(S x) const { return detail::multiply_add(x, log2_e, -top); }
  template <int N>
  __device__ __forceinline__ void add(S const (&x)[N]) {
    S largest = x[0];
#pragma unroll
    for (int k = 1; k < N; ++k) largest = Maximum{}(largest, x[k]);
    raise(Maximum{}(top, largest * log2_e));
#pragma unroll
    for (int k = 0; k < N; ++k) total += power_of_two(exponent(x[k]));
  }
  __device__ __forceinline__ void raise(S next) {
    total *= power_of_two(top - next);
    top = next;
  }
  /// Combines the sums of all threads of the block. Every thread gets the same result.
  __device__ __forceinline__ void combine() {
    raise(reduce_row<Maximum>(top));
    total = reduce_row<Sum>(total);
  }
};

/// Computes the loss of one row per thread block and, if `gradient`, overwrites the row's logits with their
/// gradient. A row with a negative target has loss and gradient 0. `pitch` is the distance between rows in
/// elements. Most logits are read as packs of n values. The values of a row before its first aligned pack and
/// after its last pack, at most n - 1 each, are read singly, one per thread. The gradient needs a second pass
/// over the logits. For this pass the first `cached` packs stay in shared memory, and the other packs are
/// read again. `Full` means that `logits` is aligned for packs.
template <class T, bool Full>
__global__ __launch_bounds__(1024) void cross_entropy_kernel(std::int64_t columns, std::int64_t pitch,
                                                             T* logits, std::int32_t const* targets,
                                                             compute_t<T>* losses, bool gradient,
                                                             compute_t<T> const* gradient_scale, int cached) {
  using S = compute_t<T>;
  constexpr int n = pack_width<T>, at_once = 4;
  extern __shared__ uint4 shared_packs[];
  Pack<T, n>* const shared = reinterpret_cast<Pack<T, n>*>(shared_packs);
  std::int64_t const row = blockIdx.x;
  T* const values = logits + row * pitch;
  std::int32_t const target = targets[row];
  // The row consists of `head` single values, then `packs` packs, then `tail` single values.
  int const thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int const head = static_cast<int>(min((n - row * pitch % n) % n, columns));
  int const packs = static_cast<int>((columns - head) / n), tail = static_cast<int>((columns - head) % n);
  bool const single = thread < head + tail;
  T* const alone = values + (thread < head ? thread : columns - tail + (thread - head));
  T* const body = values + head;
  if (gradient)
    for (std::int64_t padding = columns + thread; padding < pitch; padding += threads)
      values[padding] = put<T>(S(0));

  if (target < 0) {
    if (thread == 0) losses[row] = S(0);
    if (!gradient) return;
    for (int p = thread; p < packs; p += threads) store<n, Full>(body + std::int64_t{p} * n, Pack<T, n>{}, n);
    if (single) *alone = put<T>(S(0));
    return;
  }

  S const chosen = get<S>(values[target]);
  SumOfExponentials<S> sum;
  for (int first = thread; first < packs; first += at_once * threads) {
    Pack<T, n> loaded[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (int const p = first + i * threads; p < packs)
        loaded[i] = load<n, Full>(body + std::int64_t{p} * n, n);
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (int const p = first + i * threads; p < packs) {
        if (p < cached) shared[p] = loaded[i];
        S x[n];
        read_pack(loaded[i], x);
        sum.add(x);
      }
  }
  S const tail_value[1] = {single ? get<S>(*alone) : S(0)};
  if (single) sum.add(tail_value);
  sum.combine();
  S const chosen_exponent = sum.exponent(chosen);
  if (thread == 0) losses[row] = log(sum.total) - chosen_exponent * sum.ln_2;
  if (!gradient) return;

  __syncthreads();  // all threads have read values[target], which is overwritten below
  S const scale = *gradient_scale, factor = scale / sum.total;
  auto const softmax = [&](S x) { return power_of_two(sum.exponent(x)) * factor; };
  auto const finish = [&](int p, Pack<T, n> const& pack) {
    S x[n];
    read_pack(pack, x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = softmax(x[k]);
    store<n, Full>(body + std::int64_t{p} * n, make_pack<T>(x), n);
  };
  int p = thread;
#pragma unroll 4
  for (; p < min(cached, packs); p += threads) finish(p, shared[p]);
#pragma unroll 4
  for (; p < packs; p += threads) finish(p, load<n, Full>(body + std::int64_t{p} * n, n));
  if (single) *alone = put<T>(softmax(tail_value[0]));
  // The gradient of the target's logit is (softmax - 1) * scale. The thread that stored the target's softmax
  // now overwrites it with this gradient.
  int const writer = target < head             ? target
                     : target < columns - tail ? (target - head) / n % threads
                                               : static_cast<int>(head + target - (columns - tail));
  if (thread == writer) values[target] = put<T>((power_of_two(chosen_exponent) / sum.total - S(1)) * scale);
}

/// Returns the number of threads for a row. It depends only on the shape, because it determines the order of
/// the sum.
template <class T>
int cross_entropy_threads(std::int64_t columns) {
  // If two rows fit into a multiprocessor's shared memory, blocks have at most 512 threads, so that two
  // blocks run at once.
  constexpr std::int64_t half_of_shared = 112 << 10;
  std::int64_t const bytes = columns * static_cast<std::int64_t>(sizeof(T));
  std::int64_t const thread_count = (bytes + 4 * 16 * 32 - 1) / (4 * 16 * 32) * 32;  // four packs per thread
  return static_cast<int>(std::clamp<std::int64_t>(thread_count, 32, bytes <= half_of_shared ? 512 : 1024));
}

template <class T>
void run_cross_entropy(Context<Cuda>& context, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                       T* logits, std::int32_t const* targets, compute_t<T>* losses, bool gradient,
                       compute_t<T> const* gradient_scale) {
  auto* const kernel =
      takes_packs<pack_width<T>>(logits) ? &cross_entropy_kernel<T, true> : &cross_entropy_kernel<T, false>;
  int cached = 0;
  if (gradient) {
    int device = 0, max_bytes = 0;
    context.check(cudaGetDevice(&device), "cudaGetDevice");
    context.check(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                  "cudaDeviceGetAttribute");
    max_bytes -= 1024;  // the shared memory that the reductions use
    cached = static_cast<int>(std::min<std::int64_t>(columns / pack_width<T>, max_bytes / 16));
    context.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_bytes),
                  "cudaFuncSetAttribute");
  }
  kernel<<<static_cast<unsigned>(rows), cross_entropy_threads<T>(columns), 16 * std::size_t(cached),
           context.stream()>>>(columns, pitch, logits, targets, losses, gradient, gradient_scale, cached);
}

/// Sums the losses of all rows to *loss, and counts the rows with a target in *valid_tokens. Uses one thread
/// block. Each thread adds every 1024th row in order; then the sums of the threads are added pairwise.
template <class S>
__global__ __launch_bounds__(1024) void sum_losses_kernel(std::int64_t rows, S const* losses,
                                                          std::int32_t const* targets, double* loss,
                                                          std::int64_t* valid_tokens) {
  double sum = 0;
  long long count = 0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    sum += static_cast<double>(losses[row]);
    count += targets[row] >= 0;
  }
  sum = reduce_row<Sum>(sum);
  count = reduce_row<Sum>(count);
  if (threadIdx.x != 0) return;
  *loss = sum;
  *valid_tokens = count;
}

struct CrossEntropy {
  /// Reads and writes a row's logits in memory once if the row fits into the shared memory of a block (226
  /// KiB on Hopper). The part of a longer row that does not fit is read twice.
  template <class T>
  static void forward(Context<Cuda>& context, Tensor<T, Cuda> logits, std::int64_t vocabulary,
                      Tensor<std::int32_t const, Cuda> targets, Tensor<compute_t<T>, Cuda> losses,
                      bool gradient, compute_t<T> const* gradient_scale) {
    std::int64_t const rows = logits.shape().rows(), pitch = logits.shape().columns();
    if (rows > 0)
      run_cross_entropy(context, rows, vocabulary, pitch, logits.data(), targets.data(), losses.data(),
                        gradient, gradient_scale);
  }

  /// Sums the losses in double, in a fixed order that depends only on the number of rows. The order is not
  /// from the first to the last row, so the bits differ from the CPU's.
  template <class S>
  static void sum_losses(Context<Cuda>& context, Tensor<S const, Cuda> losses,
                         Tensor<std::int32_t const, Cuda> targets, double* loss, std::int64_t* valid_tokens) {
    sum_losses_kernel<<<1, 1024, 0, context.stream()>>>(losses.elements(), losses.data(), targets.data(),
                                                        loss, valid_tokens);
  }
};

}  // namespace cuda

template <>
struct backend::CrossEntropy<Cuda> : cuda::CrossEntropy {};

}  // namespace v0
}  // namespace tessera
