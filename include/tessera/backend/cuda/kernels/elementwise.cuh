// SPDX-License-Identifier: Apache-2.0
// Implements operations on flat arrays on the GPU: accumulate (sums of several arrays), axpy, sums, norms,
// conversion, activations, and the search for non-finite values. The contracts are in the ops headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/kernels/activation.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/tensor_cores.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/lane_sum.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

// Functors for run_transform.
struct Assign {
  template <class S>
  __device__ __forceinline__ void operator()(S from, S& to) const {
    to = from;
  }
};
template <class S>
struct Constant {
  S value;
  __device__ __forceinline__ void operator()(S& to) const { to = value; }
};
template <class T>
struct AssignGelu {
  template <class S>
  __device__ __forceinline__ void operator()(S before, S& after) const {
    after = gelu<T>(before);
  }
};
/// Computes sum = a * value + sum, and rounds once.
template <class S>
struct AddScaled {
  S a;
  __device__ __forceinline__ void operator()(S value, S& sum) const {
    sum = detail::multiply_add(a, value, sum);
  }
};
struct AssignRelu {
  template <class S>
  __device__ __forceinline__ void operator()(S before, S& after) const {
    after = before < S(0) ? S(0) : before;  // NaN stays NaN
  }
};

template <class T>
void run_fill(cudaStream_t stream, std::int64_t elements, T* to, compute_t<T> value) {
  run_transform<compute_t<T>>(stream, elements, Constant<compute_t<T>>{value}, to);
}

/// Enqueues to = from, converted to the format D. If S or D is double, the conversion is in double and does
/// not round to float.
template <class S, class D>
void run_convert(cudaStream_t stream, std::int64_t elements, S const* from, D* to) {
  using C = std::conditional_t<std::is_same_v<S, double> || std::is_same_v<D, double>, double, float>;
  run_transform<C>(stream, elements, Assign{}, from, to);
}

// ---- sums of several arrays ------------------------------------------------------------------------------

/// The initial value of a sum of several arrays ("pieces"): zero, the old values of the target (the array
/// that receives the sum), or the first array.
enum class AccumulateStart { zero, target, first_piece };

template <class S, int N, int Groups, bool Full, class T, class D>
__device__ __forceinline__ void accumulate_groups(std::int64_t elements, T const* pieces, std::int64_t count,
                                                  std::int64_t stride, AccumulateStart start, D* to) {
  Batch<S, N, Groups> sums{};
  auto const each = [&](auto const& work) {
#pragma unroll
    for (int group = 0; group < Groups; ++group)
#pragma unroll
      for (int k = 0; k < N; ++k) work(group, k);
  };
  auto const start_with = [&](auto const& batch) {
    each([&](int group, int k) { sums.pack[group].value[k] = get<S>(batch.pack[group].value[k]); });
  };
  if (start == AccumulateStart::target)
    start_with(load_batch<N, Groups, Full>(static_cast<D const*>(to), elements));
  else if (start == AccumulateStart::first_piece)
    start_with(load_batch<N, Groups, Full>(pieces, elements));
#pragma unroll 4
  for (std::int64_t piece = start == AccumulateStart::first_piece ? 1 : 0; piece < count; ++piece) {
    auto const more = load_batch<N, Groups, Full>(pieces + piece * stride, elements);
    each([&](int group, int k) { sums.pack[group].value[k] += get<S>(more.pack[group].value[k]); });
  }
  Batch<D, N, Groups> result;
  each([&](int group, int k) { result.pack[group].value[k] = put<D>(sums.pack[group].value[k]); });
  store_batch<N, Groups, Full>(to, result, elements);
}

template <class S, int N, int Groups, class T, class D>
__global__ __launch_bounds__(elementwise_threads) void accumulate_kernel(std::int64_t elements, bool packed,
                                                                         T const* pieces, std::int64_t count,
                                                                         std::int64_t stride,
                                                                         AccumulateStart start, D* to) {
  if (packed && start_of_group<N, Groups>(Groups - 1) + N <= elements)
    accumulate_groups<S, N, Groups, true>(elements, pieces, count, stride, start, to);
  else
    accumulate_groups<S, N, Groups, false>(elements, pieces, count, stride, start, to);
}

/// Enqueues the computation of `to`, the sum of `count` arrays ("pieces") that are `stride` elements apart.
/// `start` selects the initial value of the sum. The arrays are added in order, in the type S, and the sum is
/// rounded once. If T and D are the same type, `to` may be the first array.
template <class S, class T, class D>
void run_accumulate(cudaStream_t stream, std::int64_t elements, T const* pieces, std::int64_t count,
                    std::int64_t stride, AccumulateStart start, D* to) {
  constexpr int n = pack_width<T, D>, groups = 2;
  if (elements == 0) return;
  bool const packed = takes_packs<n>(pieces, to) && (count < 2 || stride % n == 0);
  accumulate_kernel<S, n, groups>
      <<<blocks_for(elements, elementwise_threads * n * groups), elementwise_threads, 0, stream>>>(
          elements, packed, pieces, count, stride, start, to);
}

// ---- norms ----------------------------------------------------------------------------------------------

inline constexpr int norm_lanes = 16;
inline constexpr int norm_block = static_cast<int>(ops::row_block);
template <class T>
inline constexpr int norm_sums = sizeof(T) == 2 ? 4 : 2;  // the number of sums that a thread block computes

/// Whether the 4096 values of a sum are first copied to shared memory, so that all loads are in flight at
/// once.
template <class T>
inline constexpr bool norm_copies = sizeof(T) <= 4;
template <class T>
inline constexpr int norm_shared_bytes = norm_copies<T> ? norm_block * sizeof(T) + 64
                                                        : 0;  // the 64 bytes avoid bank conflicts

/// Records in *note.bad the first non-finite value among the `count` values of a block, or the block's first
/// value if all are finite. One thread calls it when the block's sum of squares is not finite. `begin` is the
/// index of the block's first value in the array. If *note.bad already names a later unit, or a smaller index
/// of this unit, it is not changed. note.bad->unit also serves as the lock between thread blocks.
template <class T>
__device__ __noinline__ void note_bad(T const* values, std::int64_t count, std::int64_t begin,
                                      ops::BadNote note) {
  std::int64_t index = 0;
  while (index < count && isfinite(get<compute_t<T>>(values[index]))) ++index;
  std::int64_t const element = note.begin + begin + (index < count ? index : 0);
  constexpr unsigned long long locked = 1ull << 63;
  auto* const lock = reinterpret_cast<unsigned long long*>(&note.bad->unit);
  auto* const first = reinterpret_cast<std::int64_t volatile*>(&note.bad->element);
  unsigned long long held;
  while ((held = atomicExch(lock, locked)) == locked) {
  }
  __threadfence();
  std::int64_t const unit = static_cast<std::int64_t>(held);
  if (note.unit > unit || (note.unit == unit && element < *first)) {
    *first = element;
    held = static_cast<unsigned long long>(note.unit);
  }
  __threadfence();
  atomicExch(lock, held);
}

// The terms of a sum over a block: the squares of the values (added with one fma each), or the values.
struct AddSquare {
  template <class S>
  __device__ __forceinline__ S operator()(S value, S sum) const {
    return detail::multiply_add(value, value, sum);
  }
};
struct AddValue {
  template <class S>
  __device__ __forceinline__ S operator()(S value, S sum) const {
    return sum + value;
  }
};

/// Computes sums over 4096 elements each, with 16 lanes per sum. Lane l adds the terms of elements l, l + 16,
/// l + 32 and so on in order. Then the sums of the lanes are added pairwise, as on the CPU. Each row of
/// `rows` describes one array. If rows.first is null, `one` is the only array.
template <class T, class Q, class Add>
__global__ __launch_bounds__(norm_sums<T>* norm_lanes) void norm_partials_kernel(ops::Rows<ops::NormRow> rows,
                                                                                 ops::NormRow one) {
  using S = compute_t<T>;
  constexpr int steps = norm_block / norm_lanes;
  int const lane = static_cast<int>(threadIdx.x) % norm_lanes,
            own = static_cast<int>(threadIdx.x) / norm_lanes;
  std::int64_t const first = std::int64_t{blockIdx.x} * norm_sums<T>, block = first + own;
  ops::NormRow row = one;
  if (rows.first) {
    int number = find_row(rows, first);
    while (number + 1 < rows.count && rows.first[number + 1].block <= block) ++number;
    row = rows.first[number];
  }
  T const* const values = static_cast<T const*>(row.values);
  bool const packed = takes_packs<16 / sizeof(T)>(values);
  std::int64_t const index = block - row.block, left = row.elements - index * norm_block;
  T const* const from = values + index * norm_block;
  S sum(0);
  Add const add_term;
  auto const add = [&](T const* terms) {
#pragma unroll 32
    for (int step = 0; step < steps; ++step) {
      sum = add_term(get<S>(terms[lane + step * norm_lanes]), sum);
    }
  };
  if (left < norm_block) {
    for (std::int64_t i = lane; i < left; i += norm_lanes) sum = add_term(get<S>(from[i]), sum);
  } else if (norm_copies<T> && packed) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const copied = reinterpret_cast<T*>(shared + own * norm_shared_bytes<T>);
    constexpr int n = 16 / sizeof(T);
#pragma unroll 16
    for (int at = lane * n; at < norm_block; at += norm_lanes * n)
      copy_16_bytes(copied + at, from + at, true);
    commit_copies();
    wait_for_copies<0>();
    __syncwarp(0xffffu << (threadIdx.x & 16));
    add(copied);
  } else {
    add(from);
  }
#pragma unroll
  for (int distance = norm_lanes / 2; distance > 0; distance /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, distance, norm_lanes);
  if (lane == 0 && left > 0) {
    Q const partial = put<Q>(sum);
    static_cast<Q*>(row.partials)[index] = partial;
    // tests the sum as stored, which can overflow although all values are finite
    if (row.note.bad && !isfinite(get<S>(partial)))
      note_bad(from, left < norm_block ? left : norm_block, index * norm_block, row.note);
  }
}

template <class T, class Q, class Add = AddSquare>
void run_norm_partials(cudaStream_t stream, ops::Rows<ops::NormRow> const& rows, ops::NormRow const& one) {
  constexpr int sums = norm_sums<T>, bytes = sums * norm_shared_bytes<T>;
  static_assert(bytes <= 48 << 10);
  if (rows.blocks == 0) return;
  norm_partials_kernel<T, Q, Add>
      <<<blocks_for(rows.blocks, sums), sums * norm_lanes, bytes, stream>>>(rows, one);
}

/// Adds sums of blocks in double, in one thread block, in the order of the CPU (backend/lane_sum.hpp).
template <class Q>
__global__ __launch_bounds__(v0::detail::sum_lanes) void add_partials_kernel(Q const* partials,
                                                                             std::int64_t count, bool root,
                                                                             double* result) {
  __shared__ double lanes[v0::detail::sum_lanes];
  int const lane = static_cast<int>(threadIdx.x);
  add_lanes_of_block(v0::detail::add_lane(0.0, partials, count, lane), lanes);
  if (lane == 0) *result = root ? sqrt(lanes[0]) : lanes[0];
}

// ---- inspection -----------------------------------------------------------------------------------------

template <class T, int N, bool Full>
__device__ __forceinline__ void find_non_finite(T const* values, std::int64_t elements,
                                                unsigned long long* index) {
  constexpr int groups = 4;
  auto const batch = load_batch<N, groups, Full>(values, elements);
  unsigned long long found = ~0ull;
#pragma unroll
  for (int group = groups - 1; group >= 0; --group)
#pragma unroll
    for (int k = N - 1; k >= 0; --k)
      if (!isfinite(get<compute_t<T>>(batch.pack[group].value[k])))
        found = static_cast<unsigned long long>(start_of_group<N, groups>(group) + k);
  if (found < *static_cast<unsigned long long volatile*>(index)) atomicMin(index, found);
}

/// Writes the smallest index of a non-finite value to *index. Before the kernel runs, *index must be -1 (all
/// ones). If all values are finite, *index stays -1.
template <class T>
__global__ __launch_bounds__(elementwise_threads) void find_non_finite_kernel(T const* values,
                                                                              std::int64_t elements,
                                                                              bool packed,
                                                                              unsigned long long* index) {
  constexpr int n = pack_width<T>;
  if (packed && start_of_group<n, 4>(3) + n <= elements)
    find_non_finite<T, n, true>(values, elements, index);
  else
    find_non_finite<T, n, false>(values, elements, index);
}

struct Elementwise {
  template <class S, class D>
  static void convert(Context<Cuda>& context, Tensor<S const, Cuda> from, Tensor<D, Cuda> to) {
    run_convert(context.stream(), to.elements(), from.data(), to.data());
  }

  template <class T>
  static void fill(Context<Cuda>& context, Tensor<T, Cuda> to, compute_t<T> value) {
    run_fill(context.stream(), to.elements(), to.data(), value);
  }

  /// Copies `from` to `to`. Each of them is in device memory or in pinned host memory.
  template <class T>
  static void copy(Context<Cuda>& context, Tensor<T const, Cuda> from, Tensor<T, Cuda> to) {
    if (to.elements() == 0 || from.data() == to.data()) return;
    context.check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(to.bytes()),
                                  cudaMemcpyDefault, context.stream()),
                  "cudaMemcpyAsync");
  }

  /// Adds `count` arrays ("pieces") to the accumulator or, if `first` is true, sets the accumulator to the
  /// sum of the arrays. If `partials` is given, writes the accumulator's sums of squares to it. The bits of
  /// the results are those of the CPU. Reads every array once.
  template <class T>
  static void accumulate(Context<Cuda>& context, Tensor<compute_t<T>, Cuda> accumulator, T const* pieces,
                         int count, std::int64_t stride, bool first, Tensor<float, Cuda> partials,
                         ops::BadNote const& note) {
    run_accumulate<compute_t<T>>(context.stream(), accumulator.elements(), pieces, count, stride,
                                 first ? AccumulateStart::first_piece : AccumulateStart::target,
                                 accumulator.data());
    if (partials.data())
      norm_partials(context, Tensor<compute_t<T> const, Cuda>{accumulator.data(), accumulator.shape()},
                    partials, note);
  }

  template <class T>
  static void activate(Context<Cuda>& context, Activation activation, Tensor<T const, Cuda> pre,
                       Tensor<T, Cuda> y) {
    using S = compute_t<T>;
    switch (activation) {
      case Activation::gelu:
        return run_transform<S>(context.stream(), y.elements(), AssignGelu<T>{}, pre.data(), y.data());
      case Activation::relu:
        return run_transform<S>(context.stream(), y.elements(), AssignRelu{}, pre.data(), y.data());
      case Activation::none:
        return;
    }
  }

  /// Computes the sums of squares of the blocks of one array. Gives the same bits as on the CPU.
  template <class T, class Q>
  static void norm_partials(Context<Cuda>& context, Tensor<T const, Cuda> values, Tensor<Q, Cuda> partials,
                            ops::BadNote const& note) {
    ops::NormRow one{values.data(), partials.data(), values.elements(), 0, note};
    auto const rows = ops::number_rows<ops::NormRow>({&one, 1}, nullptr);
    run_norm_partials<T, Q>(context.stream(), rows, one);
  }
  /// Computes the sums of squares of all arrays in one launch.
  template <class T, class Q>
  static void norm_partials(Context<Cuda>& context, ops::Rows<ops::NormRow> const& rows) {
    run_norm_partials<T, Q>(context.stream(), rows, {});
  }

  template <class T>
  static void axpy(Context<Cuda>& context, compute_t<T> a, Tensor<T const, Cuda> x, Tensor<T, Cuda> y) {
    run_transform<compute_t<T>>(context.stream(), y.elements(), AddScaled<compute_t<T>>{a}, x.data(),
                                y.data());
  }
  /// Computes the sum of each block of 4096 values. Gives the same bits as on the CPU.
  template <class T, class Q>
  static void sum_partials(Context<Cuda>& context, Tensor<T const, Cuda> values, Tensor<Q, Cuda> partials) {
    ops::NormRow one{values.data(), partials.data(), values.elements(), 0, {}};
    auto const rows = ops::number_rows<ops::NormRow>({&one, 1}, nullptr);
    run_norm_partials<T, Q, AddValue>(context.stream(), rows, one);
  }
  /// Adds the sums of blocks in double, and stores the total or, if `root` is true, its square root.
  template <class Q>
  static void add_partials(Context<Cuda>& context, Tensor<Q const, Cuda> partials,
                           Tensor<double, Cuda> result, bool root) {
    add_partials_kernel<<<1, v0::detail::sum_lanes, 0, context.stream()>>>(
        partials.data(), partials.elements(), root, result.data());
  }

  /// Writes the smallest index of a non-finite value to *index, which is in device memory. Writes -1 if all
  /// values are finite.
  template <class T>
  static void first_non_finite(Context<Cuda>& context, Tensor<T const, Cuda> values, std::int64_t* index) {
    constexpr int n = pack_width<T>;
    context.check(cudaMemsetAsync(index, 0xff, sizeof *index, context.stream()), "cudaMemsetAsync");
    if (values.elements() == 0) return;
    find_non_finite_kernel<<<blocks_for(values.elements(), elementwise_threads * n * 4), elementwise_threads,
                             0, context.stream()>>>(values.data(), values.elements(),
                                                    takes_packs<n>(values.data()),
                                                    reinterpret_cast<unsigned long long*>(index));
  }
};

}  // namespace cuda

template <>
struct backend::Elementwise<Cuda> : cuda::Elementwise {};

}  // namespace v0
}  // namespace tessera
