// SPDX-License-Identifier: Apache-2.0
// Defines Place, the device on which this build tests operators, and test helpers for it. Place is a GPU if
// nvcc compiles the test, otherwise the CPU. All tests of this folder are compiled for both devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#ifdef __CUDACC__
#include "tessera/backend/cuda/attention/attention.cuh"
#include "tessera/backend/cuda/kernels/cross_entropy.cuh"
#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/embedding.cuh"
#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/kernels/rotary.cuh"
#include "tessera/backend/cuda/kernels/swiglu.cuh"
#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/optim/adamw.cuh"

#include "device/device.hpp"
#endif

#include "operators/reference.hpp"

namespace test {

using namespace tessera;

#ifdef __CUDACC__
using Place = Cuda;
using Machine = Gpu;
template <class T>
using OnPlace = OnGpu<T>;

/// Calls work(machine) three times on one GPU. Returns whether all three results have the same bits. A result
/// is an array or a struct of arrays.
template <class F>
bool same_bits_every_time(F const& work) {
  Machine machine;
  auto const first = work(machine);
  return first == work(machine) && first == work(machine);
}
#else
using Place = Cpu;

/// A CPU context and the workspace memory that the context uses. Tests call finish() before they read
/// results.
struct Machine : reference::Machine {
  explicit Machine(int threads = 2) : reference::Machine(threads) {}
  void finish() {}  // does nothing, because an operation on the CPU has ended when its function returns
};

/// A copy of an array in the memory of the tested device. The copy starts `offset` elements after an aligned
/// address. back() returns the present values of the copy as an array on the host.
template <class T>
class OnPlace {
 public:
  explicit OnPlace(reference::Array<T> const& from, std::int64_t offset = 0)
      : shape_(from.shape), offset_(offset), memory_(from.values) {
    memory_.insert(memory_.begin(), static_cast<std::size_t>(offset), T());
  }
  Tensor<T> view() { return {memory_.data() + offset_, shape_}; }
  Tensor<T const> cview() const { return {memory_.data() + offset_, shape_}; }
  reference::Array<T> back() const {
    reference::Array<T> result(shape_);
    std::copy(memory_.begin() + offset_, memory_.end(), result.values.begin());
    return result;
  }

 private:
  Shape shape_;
  std::int64_t offset_;
  std::vector<T> memory_;
};

/// Calls work(machine) with a machine of 1 thread, of 2 threads and of 3 threads. Returns whether all three
/// results have the same bits. A result is an array or a struct of arrays.
template <class F>
bool same_bits_every_time(F const& work) {
  Machine one(1), two(2), three(3);
  auto const first = work(one);
  return first == work(two) && first == work(three) && first == work(three);
}
#endif

/// Whether this build tests a GPU. Some tests then add sizes for which the GPU kernels have separate code.
inline constexpr bool on_gpu = std::is_same_v<Place, Cuda>;

/// The lengths of one-dimensional arrays in tests: lengths near the size of a SIMD vector, lengths near
/// multiples of 4096 (the size of a block), and a length that is more than one GPU thread block handles.
inline constexpr std::int64_t lengths[] = {0, 1, 3, 15, 16, 17, 255, 2047, 4095, 4096, 4097, 13001, 100003};

/// Returns `count` elements of the tensor `of`, from index `begin` on. If `begin` is odd, the result is not
/// aligned for vector accesses.
template <class T>
Tensor<T, Place> part(Tensor<T, Place> of, std::int64_t begin, std::int64_t count) {
  return {of.data() + begin, {count}};
}

}  // namespace test

/// Must be the first statement of each test case. If the machine does not have the tested device, it ends the
/// test case.
#ifdef __CUDACC__
#define TESSERA_NEEDS_PLACE() TESSERA_NEEDS_GPU()
#else
#define TESSERA_NEEDS_PLACE() static_cast<void>(0)
#endif

/// The number formats of tests, as arguments for TEST_CASE_TEMPLATE. `half` is qualified, because CUDA
/// defines another type with the name `half`.
#define TESSERA_DTYPES float, double, tessera::half, tessera::bfloat16
