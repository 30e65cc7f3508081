// SPDX-License-Identifier: Apache-2.0
// Converts errors of the CUDA libraries to text and exceptions.
#pragma once

#include <cstdint>
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <string>
#include <type_traits>

#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

inline std::string text_of(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}
inline std::string text_of(cublasStatus_t status) {
  return std::string(cublasLtGetStatusName(status)) + " (" + cublasLtGetStatusString(status) + ")";
}

constexpr bool succeeded(CUresult status) { return status == CUDA_SUCCESS; }
inline std::string text_of(CUresult status) {
  return "driver error " + std::to_string(static_cast<int>(status));
}
constexpr bool succeeded(cudaError_t status) { return status == cudaSuccess; }
constexpr bool succeeded(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

/// If `status` is an error of the call `what`, throws Error(out_of_memory) for a failed allocation and
/// Error(failed) for any other failure. Use it outside steps. Within steps, Context<Cuda>::check keeps the
/// first failure, and Context<Cuda>::raise throws it later.
template <class Status>
void require(Status status, char const* what) {
  if (succeeded(status)) return;
  ErrorKind kind = ErrorKind::failed;
  if constexpr (std::is_same_v<Status, cudaError_t>) {
    cudaGetLastError();  // clears the error; otherwise a later call of this thread would report it again
    if (status == cudaErrorMemoryAllocation) kind = ErrorKind::out_of_memory;
  }
  throw Error(kind, std::string("CUDA: ") + what + " failed: " + text_of(status));
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
