// SPDX-License-Identifier: Apache-2.0
// Provides the driver's stream-memory operations: a stream writes a word in memory, or waits until the word
// has a given value. The program does not link the driver's library. It looks the functions up at run time.
#pragma once

#include <array>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>

#include "tessera/backend/cuda/runtime/host_worker.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns the driver function `name` in its version of CUDA 12.0, or null if the driver lacks it.
template <class Function>
Function* driver_function(char const* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return status == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(found) : nullptr;
}

/// Returns cuStreamBatchMemOp if the current GPU supports it for 64-bit words, otherwise null.
inline decltype(&cuStreamBatchMemOp) batch_memory_operation() {
  auto* const current = driver_function<decltype(cuCtxGetDevice)>("cuCtxGetDevice");
  auto* const attribute = driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  CUdevice device = 0;
  int able = 0;
  if (!current || !attribute || current(&device) != CUDA_SUCCESS ||
      attribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) != CUDA_SUCCESS || !able)
    return nullptr;
  return driver_function<decltype(cuStreamBatchMemOp)>("cuStreamBatchMemOp");
}

/// Enqueues the operations with which a lane (a stream) passes a host task to its worker thread. The stream
/// writes 0 to signal.done, writes the task's address to signal.go, and waits until signal.done is 1.
/// HostSignal in host_worker.hpp describes the whole protocol. In a graph the three operations are one node.
/// Each write becomes visible after all earlier work of the lane.
inline CUresult hand_over(decltype(&cuStreamBatchMemOp) batch_memory, cudaStream_t lane, HostTask const& task,
                          HostSignal& signal) noexcept {
  auto const address = [](void const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  std::array<CUstreamBatchMemOpParams, 3> operations{};
  auto const write = [&](CUstreamBatchMemOpParams& operation, void const* to, std::uint64_t value) {
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.writeValue.address = address(to);
    operation.writeValue.value64 = value;
    operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  };
  write(operations[0], &signal.done, 0);
  write(operations[1], &signal.go, address(&task));
  operations[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  operations[2].waitValue.address = address(&signal.done);
  operations[2].waitValue.value64 = 1;
  operations[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return batch_memory(lane, static_cast<unsigned>(operations.size()), operations.data(), 0);
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
