// SPDX-License-Identifier: Apache-2.0
// Writes and waits of a stream on words in memory: the driver's, reached without linking against it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <string>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// A function of the driver as it was in CUDA 12.0, or null.
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

/// cuStreamBatchMemOp, where the current GPU can use it on words of 64 bits, or null.
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

constexpr bool succeeded(CUresult status) { return status == CUDA_SUCCESS; }
inline std::string text_of(CUresult status) {
  return "error " + std::to_string(static_cast<int>(status)) + " of the driver";
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
