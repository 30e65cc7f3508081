// SPDX-License-Identifier: Apache-2.0
// Provides handles that own CUDA objects: streams, events, graphs and cuBLASLt's handle.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <utility>

#include "tessera/backend/cuda/runtime/error.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Owns a CUDA object. The destructor of the handle calls `Destroy` with the object.
template <class Handle, auto Destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) Destroy(handle_);
  }
  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

/// Makes a device current for the calling thread. The destructor makes the previous one current again.
class DeviceScope {
 public:
  explicit DeviceScope(int device) noexcept : before_(device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  DeviceScope(DeviceScope const&) = delete;
  DeviceScope& operator=(DeviceScope const&) = delete;
  ~DeviceScope() { cudaSetDevice(before_); }

 private:
  int before_;
};

using Stream = Owned<cudaStream_t, &cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, &cudaEventDestroy>;
using Graph = Owned<cudaGraphExec_t, &cudaGraphExecDestroy>;
using Blas = Owned<cublasLtHandle_t, &cublasLtDestroy>;

/// Returns a new stream that does not synchronise with the default stream. The GPU prefers kernels of streams
/// with a lower `priority` number.
inline Stream make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
  return Stream(stream);
}
inline Event make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return Event(event);
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
