// SPDX-License-Identifier: Apache-2.0
// Provides shared parts of the GPU tests: a context with its workspace, and device copies of arrays.
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
#include "operators/reference.hpp"

namespace test {

using namespace tessera;

/// Device memory. The destructor frees it.
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

/// A GPU context and its workspace, which is large enough for micro-batches of up to `tokens` tokens.
struct Gpu {
  explicit Gpu(std::int64_t tokens = 1 << 16, Math const& math = {})
      : workspace(Context<Cuda>::workspace_bytes(1, tokens, math.product)),
        context(1, workspace.span(), nullptr, math) {}
  /// Waits until all enqueued work has ended. Throws the first failure.
  void finish() {
    context.synchronize();
    context.raise();
  }
  DeviceBytes workspace;
  Context<Cuda> context;
};

/// A copy of a host array in device memory. The copy starts `offset` elements after an aligned address.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(reference::Array<T> const& from, std::int64_t offset = 0)
      : shape_(from.shape),
        offset_(offset),
        memory_(sizeof(T) * (from.values.size() + static_cast<std::size_t>(offset))) {
    cuda::require(
        cudaMemcpy(view().data(), from.values.data(), from.values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
    // CudaMemcpy uses the default stream, for which the tests' streams do not wait.
    cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  Tensor<T, Cuda> view() { return {reinterpret_cast<T*>(memory_.data()) + offset_, shape_}; }
  Tensor<T const, Cuda> cview() const {
    return {reinterpret_cast<T const*>(memory_.data()) + offset_, shape_};
  }
  /// Copies the present values to the host and returns them. The caller must first wait until pending work on
  /// the GPU has ended.
  reference::Array<T> back() const {
    reference::Array<T> result(shape_);
    cuda::require(cudaMemcpy(result.values.data(), cview().data(), result.values.size() * sizeof(T),
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    return result;
  }

 private:
  Shape shape_;
  std::int64_t offset_;
  DeviceBytes memory_;
};

using reference::poison;

}  // namespace test
