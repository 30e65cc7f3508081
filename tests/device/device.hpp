// SPDX-License-Identifier: Apache-2.0
// Provides shared parts of the GPU tests: a context with its workspace, device copies of arrays, and
// skipping.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <limits>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/runtime/context.cuh"

#include "device/skip.hpp"
#include "unit/reference.hpp"

namespace test {

using namespace tessera;

/// Device memory that is freed at the end of its scope.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    cuda::require(cudaMalloc(&data_, bytes ? bytes : 1), "cudaMalloc");
  }
  DeviceBytes(DeviceBytes const&) = delete;
  DeviceBytes& operator=(DeviceBytes const&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::span<std::byte> span() const { return {data(), bytes_}; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

/// A GPU context for micro-batches of up to `tokens` tokens, with its workspace.
struct Gpu {
  explicit Gpu(std::int64_t tokens = 1 << 16, Math const& math = {})
      : workspace(Context<Cuda>::workspace_bytes(1, tokens, math.product)),
        context(1, workspace.span(), nullptr, math) {}
  /// Waits for everything enqueued; throws the first failure.
  void finish() {
    context.synchronize();
    context.raise();
  }
  DeviceBytes workspace;
  Context<Cuda> context;
};

/// A device copy of an array.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(reference::Array<T> const& from)
      : shape_(from.shape), memory_(from.values.size() * sizeof(T)) {
    cuda::require(cudaMemcpy(memory_.data(), from.values.data(), from.values.size() * sizeof(T),
                             cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // lanes ignore the default stream
  }
  Tensor<T, Cuda> view() { return {reinterpret_cast<T*>(memory_.data()), shape_}; }
  Tensor<T const, Cuda> cview() const { return {reinterpret_cast<T const*>(memory_.data()), shape_}; }
  /// The current values. Wait for pending work first.
  reference::Array<T> back() const {
    reference::Array<T> result(shape_);
    cuda::require(cudaMemcpy(result.values.data(), memory_.data(), result.values.size() * sizeof(T),
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    return result;
  }

 private:
  Shape shape_;
  DeviceBytes memory_;
};

/// The largest |got - want| / (floor + |want|); infinite if a result is not finite.
template <class T, class U>
double distance(reference::Array<T> const& got, std::vector<U> const& want, double floor) {
  double worst = got.values.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < want.size(); ++i) {
    double const w = static_cast<double>(want[i]);
    double const difference = std::fabs(static_cast<double>(got.values[i]) - w) / (floor + std::fabs(w));
    worst = std::isfinite(difference) ? std::max(worst, difference) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

/// Tells whether the rows of `partials` (blocks, N) add up to the column sums of `of` (..., N), within the
/// rounding of sums in S.
template <class S, class T>
bool adds_up(reference::Array<S> const& partials, reference::Array<T> const& of) {
  auto const columns = static_cast<std::size_t>(of.shape.columns());
  std::vector<double> sums(columns, 0.0), sizes(columns, 0.0);
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    double const value = of[static_cast<std::int64_t>(i)];
    sums[i % columns] += value;
    sizes[i % columns] += std::fabs(value);
  }
  for (std::size_t i = 0; i < partials.values.size(); ++i)
    sums[i % columns] -= static_cast<double>(partials.values[i]);
  double const most = 16 * static_cast<double>(std::numeric_limits<S>::epsilon());
  for (std::size_t i = 0; i < columns; ++i)
    if (!(std::fabs(sums[i]) <= most * (1 + sizes[i]))) return false;
  return true;
}

/// The value that results hold before they are written.
template <class T>
reference::Array<T> poison(Shape const& shape) {
  return reference::Array<T>(shape, T(std::numeric_limits<float>::quiet_NaN()));
}

/// A device copy that starts `offset` elements after an aligned address.
template <class T>
class Shifted {
 public:
  Shifted(reference::Array<T> const& values, std::int64_t offset)
      : shape_(values.shape), offset_(offset), memory_(padded(values, offset)) {}
  Tensor<T, Cuda> view() { return {memory_.view().data() + offset_, shape_}; }
  reference::Array<T> back() const {
    reference::Array<T> const all = memory_.back();
    reference::Array<T> result(shape_);
    result.values.assign(all.values.begin() + offset_, all.values.end());
    return result;
  }

 private:
  static reference::Array<T> padded(reference::Array<T> const& values, std::int64_t offset) {
    reference::Array<T> all({values.shape.elements() + offset});
    std::copy(values.values.begin(), values.values.end(), all.values.begin() + offset);
    return all;
  }
  Shape shape_;
  std::int64_t offset_;
  OnGpu<T> memory_;
};

}  // namespace test
