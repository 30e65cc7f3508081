// SPDX-License-Identifier: Apache-2.0
// Provides the common parts of kernels: early launches, conversions of values, packs (groups of values in 16
// bytes), reductions in a fixed order, and elementwise kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <limits>
#include <type_traits>

#include "tessera/backend/cuda/kernels/pairs.cuh"
#include "tessera/backend/lane_sum.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/core/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The bytes of shared memory that a thread block may use on every GPU of compute capability 8.0 or newer.
/// GPUs of 8.6, 8.9 and 12.0 have exactly 99 KiB, other GPUs have more.
inline constexpr std::size_t min_shared_bytes = 99 << 10;

// ---- kernels that begin before the previous one ends ----------------------------------------------------

/// Waits until the previous kernel of the stream has ended and its writes are visible.
__device__ __forceinline__ void await_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel of the stream begin early, if it was launched with launch_early. Its blocks can begin
/// once all blocks of this kernel have called this function.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Launches a kernel that can begin before the previous kernel of the stream ends. The launched kernel must
/// call await_kernel_before before it accesses memory.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, std::size_t shared_bytes,
                  cudaStream_t stream, Arguments const&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  (void)cudaLaunchKernelEx(&config, kernel, arguments...);  // cudaGetLastError reports a failure
}

// ---- conversions ----------------------------------------------------------------------------------------

/// Returns a stored value converted to S, the type of the computation (float or double).
template <class S, class T>
__device__ __forceinline__ S get(T value) {
  if constexpr (std::is_same_v<T, half>)
    return static_cast<S>(__half2float(__ushort_as_half(value.bits)));
  else if constexpr (std::is_same_v<T, bfloat16>)
    return static_cast<S>(__uint_as_float(static_cast<unsigned>(value.bits) << 16));
  else
    return static_cast<S>(value);
}

/// Returns a computed value converted to T, the type in which it is stored. Rounds to nearest even; NaN stays
/// NaN. A double is first converted to float if T has 16 bits, as on the CPU.
template <class T, class S>
__device__ __forceinline__ T put(S value) {
  if constexpr (std::is_same_v<T, half>) {
    half result;
    result.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return result;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 result;
    result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    return result;
  } else {
    return static_cast<T>(value);
  }
}

// ---- packs ----------------------------------------------------------------------------------------------

/// A pack: N values that one instruction loads or stores if their address is aligned.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T value[N];
};

/// Whether read_pack and make_pack convert two values at a time between the storage type T and the type S of
/// the computation.
template <class T, class S, int N>
inline constexpr bool in_pairs = N % 2 == 0 && sizeof(T) == 2 && std::is_same_v<S, float>;

/// Writes the values of `pack` to `to`, converted with `get`.
template <class S, class T, int N>
__device__ __forceinline__ void read_pack(Pack<T, N> const& pack, S (&to)[N]) {
  if constexpr (in_pairs<T, S, N>) {
    unsigned const* const pairs = reinterpret_cast<unsigned const*>(pack.value);
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      float2 const two = unpack<T>(pairs[k / 2]);
      to[k] = two.x;
      to[k + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = get<S>(pack.value[k]);
  }
}

/// Returns a pack of `values`, converted with `put`.
template <class T, int N, class S>
__device__ __forceinline__ Pack<T, N> make_pack(S const (&values)[N]) {
  Pack<T, N> result;
  if constexpr (in_pairs<T, S, N>) {
    unsigned* const pairs = reinterpret_cast<unsigned*>(result.value);
#pragma unroll
    for (int k = 0; k < N; k += 2) pairs[k / 2] = pack<T>(values[k], values[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) result.value[k] = put<T>(values[k]);
  }
  return result;
}

/// The number of values in 16 bytes, for the widest of the types.
template <class... T>
inline constexpr int pack_width = static_cast<int>(16 / std::max({sizeof(T)...}));

/// Whether all pointers are aligned so that packs of N values can be loaded and stored there.
template <int N, class... T>
__host__ __device__ __forceinline__ bool takes_packs(T const*... from) {
  return ((reinterpret_cast<std::uintptr_t>(from) % (N * sizeof(T)) == 0) && ...);
}

/// An unsigned type of `Bytes` bytes (2, 4, 8 or 16), which one instruction loads or stores.
template <std::size_t Bytes>
using Word = std::conditional_t<
    Bytes == 16, uint4,
    std::conditional_t<Bytes == 8, uint2, std::conditional_t<Bytes == 4, unsigned, unsigned short>>>;

/// Stores `word` to global memory with one instruction. An assignment is not enough: the compiler would
/// sometimes split it.
__device__ __forceinline__ void store_word(uint4* to, uint4 word) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x), "r"(word.y), "r"(word.z),
               "r"(word.w)
               : "memory");
}
__device__ __forceinline__ void store_word(uint2* to, uint2 word) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(word.x), "r"(word.y) : "memory");
}
__device__ __forceinline__ void store_word(unsigned* to, unsigned word) { *to = word; }
__device__ __forceinline__ void store_word(unsigned short* to, unsigned short word) { *to = word; }

/// Returns the N values at `from`. With `Full`, all N values exist and the address is aligned (takes_packs).
/// Otherwise only the first `count` values are loaded, one by one, and the rest are zero.
template <int N, bool Full, class T>
__device__ __forceinline__ Pack<T, N> load(T const* from, std::int64_t count) {
  if constexpr (Full) {
    return *reinterpret_cast<Pack<T, N> const*>(from);
  } else {
    Pack<T, N> pack{};
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < count) pack.value[k] = from[k];
    return pack;
  }
}

/// Stores a pack at `to`. With `Full`, all N values are stored and the address is aligned. Otherwise only the
/// first `count` values are stored, one by one.
template <int N, bool Full, class T>
__device__ __forceinline__ void store(T* to, Pack<T, N> const& pack, std::int64_t count) {
  if constexpr (Full) {
    Word<sizeof(pack)> word;
    memcpy(&word, &pack, sizeof(pack));
    store_word(reinterpret_cast<Word<sizeof(pack)>*>(to), word);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < count) to[k] = pack.value[k];
  }
}

// ---- reductions -----------------------------------------------------------------------------------------

/// Adds the sums of the lanes pairwise, and leaves the total in lanes[0] for thread 0. All sum_lanes threads
/// of a thread block call it, each with the sum of its own lane. `lanes` is shared memory.
__device__ __forceinline__ void add_lanes_of_block(double own, double (&lanes)[v0::detail::sum_lanes]) {
  int const lane = static_cast<int>(threadIdx.x);
  lanes[lane] = own;
  for (int half = v0::detail::sum_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] += lanes[lane + half];
  }
}

struct Sum {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    return a + b;
  }
  template <class S>
  static constexpr S identity = S(0);
};

/// Returns the larger value. If one value is NaN, returns the other one.
struct Maximum {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
  template <class S>
  static constexpr S identity = -std::numeric_limits<S>::infinity();
};

/// Combines each of the K values over the 32 lanes of a warp, pairwise, and leaves the results in `values`.
/// Every lane gets the same bits.
template <class Combine, int K, class S>
__device__ __forceinline__ void reduce_warp(S (&values)[K]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int k = 0; k < K; ++k)
      values[k] = Combine{}(values[k], __shfl_xor_sync(0xffffffffu, values[k], distance));
}

/// Combines each of the K values over a row of threads, and leaves the results in `values`. A row is the
/// threads of a block with the same threadIdx.y. All threads of a row get the same bits. The order of the
/// combination depends only on blockDim.x, which must be a multiple of 32. All threads of the block must call
/// this function.
template <class Combine, int K, class S>
__device__ __forceinline__ void reduce_row(S (&values)[K]) {
  __shared__ S parts[K][32];
  reduce_warp<Combine>(values);
  int const warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return;
  int const first = static_cast<int>(threadIdx.y) * warps, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();  // all threads have read the parts of the previous reduction
  if (lane == 0)
    for (int k = 0; k < K; ++k) parts[k][first + static_cast<int>(threadIdx.x) / 32] = values[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k)
    values[k] = lane < warps ? parts[k][first + lane] : Combine::template identity<S>;
  reduce_warp<Combine>(values);
}

template <class Combine, class S>
__device__ __forceinline__ S reduce_row(S value) {
  S values[1] = {value};
  reduce_row<Combine>(values);
  return values[0];
}

// ---- elementwise kernels --------------------------------------------------------------------------------

/// Returns the number of blocks of `each` elements that cover `elements` elements.
constexpr unsigned blocks_for(std::int64_t elements, std::int64_t each) {
  return static_cast<unsigned>((elements + each - 1) / each);
}

inline constexpr int elementwise_threads = 256;

/// The values of an array that one thread processes: `Groups` groups of N adjacent values. The groups of a
/// thread are N * blockDim.x elements apart.
template <class T, int N, int Groups>
struct Batch {
  Pack<T, N> pack[Groups];
};

/// Returns the index of the first element in the thread's group number `group`.
template <int N, int Groups>
__device__ __forceinline__ std::int64_t start_of_group(int group) {
  return ((static_cast<std::int64_t>(blockIdx.x) * Groups + group) * blockDim.x + threadIdx.x) * N;
}

template <int N, int Groups, bool Full, class T>
__device__ __forceinline__ Batch<T, N, Groups> load_batch(T const* from, std::int64_t elements) {
  Batch<T, N, Groups> batch;
#pragma unroll
  for (int group = 0; group < Groups; ++group) {
    std::int64_t const i = start_of_group<N, Groups>(group);
    batch.pack[group] = load<N, Full>(from + i, elements - i);
  }
  return batch;
}

template <int N, int Groups, bool Full, class T>
__device__ __forceinline__ void store_batch(T* to, Batch<T, N, Groups> const& batch, std::int64_t elements) {
#pragma unroll
  for (int group = 0; group < Groups; ++group) {
    std::int64_t const i = start_of_group<N, Groups>(group);
    store<N, Full>(to + i, batch.pack[group], elements - i);
  }
}

template <class S, int N, int Groups, bool Full, class F, class... T>
__device__ __forceinline__ void transform_groups(std::int64_t elements, F const& functor, T*... arrays) {
  auto const work = [&](auto... batches) {
#pragma unroll
    for (int group = 0; group < Groups; ++group)
#pragma unroll
      for (int k = 0; k < N; ++k) {
        auto const apply = [&](auto... values) {
          functor(values...);
          auto const keep = [](auto& stored, S value) {
            stored = put<std::remove_reference_t<decltype(stored)>>(value);
          };
          (keep(batches.pack[group].value[k], values), ...);
        };
        apply(get<S>(batches.pack[group].value[k])...);
      }
    auto const finish = [&](auto* to, auto const& batch) {
      if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(to)>>)
        store_batch<N, Groups, Full>(to, batch, elements);
    };
    (finish(arrays, batches), ...);
  };
  work(load_batch<N, Groups, Full>(static_cast<T const*>(arrays), elements)...);
}

/// Does the work of one thread in an elementwise kernel. Calls functor(S&...) with one element of each array,
/// converted to S. Then rounds and stores the elements of the arrays that are not const. The compiler drops
/// the loads of arrays that the functor only writes. All loads come before the stores, so several arguments
/// may be the same array. `packed` means that all arrays are aligned for packs of N values.
template <class S, int N, int Groups, class F, class... T>
__device__ __forceinline__ void transform_batch(std::int64_t elements, bool packed, F const& functor,
                                                T*... arrays) {
  if (packed && start_of_group<N, Groups>(Groups - 1) + N <= elements)
    transform_groups<S, N, Groups, true>(elements, functor, arrays...);
  else
    transform_groups<S, N, Groups, false>(elements, functor, arrays...);
}

template <class S, int N, int Groups, class F, class... T>
__global__ __launch_bounds__(elementwise_threads) void transform_kernel(std::int64_t elements, bool packed,
                                                                        F functor, T*... arrays) {
  transform_batch<S, N, Groups>(elements, packed, functor, arrays...);
}

/// Enqueues a kernel that calls functor(S&...) for each index, with the elements of all arrays at this index.
/// Two arrays may be the same but must not overlap partially. The kernel reads and writes each array at most
/// once.
template <class S, int Groups = 2, class F, class... T>
void run_transform(cudaStream_t stream, std::int64_t elements, F const& functor, T*... arrays) {
  constexpr int n = pack_width<T...>;
  if (elements == 0) return;
  transform_kernel<S, n, Groups>
      <<<blocks_for(elements, std::int64_t{elementwise_threads} * n * Groups), elementwise_threads, 0,
         stream>>>(elements, takes_packs<n>(arrays...), functor, arrays...);
}

// ---- operations over several rows -----------------------------------------------------------------------

/// Returns the index of the row that contains block number `block`. A row is one of several arrays
/// (ops::Rows), and its elements are divided into blocks. The result is the last row that begins at or before
/// the block. All threads of a thread block search together. Each round compares as many rows as there are
/// threads.
template <class Row>
__device__ __forceinline__ int find_row(ops::Rows<Row> const& rows, std::int64_t block) {
  int first = 0, end = rows.count;
  while (end - first > 1) {
    int const threads = static_cast<int>(blockDim.x), step = (end - first + threads - 1) / threads;
    int const probe = first + static_cast<int>(threadIdx.x) * step;
    int const before = __syncthreads_count(probe < end && rows.first[probe].block <= block);
    first += (before - 1) * step;
    end = min(end, first + step);
  }
  return first;
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
