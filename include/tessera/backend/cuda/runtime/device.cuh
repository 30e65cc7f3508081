// SPDX-License-Identifier: Apache-2.0
// Selects the GPU of the calling thread, checks whether the program can use it, and finds out whether the
// program has loaded code with Hopper's instructions.
#pragma once

#include <cstdlib>
#include <cuda_runtime.h>
#include <optional>
#include <string>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/usable.hpp"
#include "tessera/detail/host_memory.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// A kernel that is never launched. It uses shared memory only if it is compiled for sm_90a. The host reads
/// the size of this memory from the kernel's attributes. So the host learns whether the loaded code has
/// warpgroup products (Hopper's wgmma instructions).
static __global__ void mark_of_code(int* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ int mark[32];
  mark[threadIdx.x] = to[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = mark[31 - threadIdx.x];
#endif
}
/// Returns whether the loaded code has warpgroup products. Costs one runtime query, no synchronisation.
inline bool has_warpgroups() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, mark_of_code) == cudaSuccess && attributes.sharedSizeBytes > 0;
}

/// Makes the GPU `device` current for this thread if possible. Returns the facts from which why_unusable
/// finds out whether the program can use the GPU.
inline DeviceAnswers query_device(int device) {
  DeviceAnswers all;
  all.device = device;
  if (cudaRuntimeGetVersion(&all.runtime) != cudaSuccess) all.runtime = CUDART_VERSION;
  if (cudaDriverGetVersion(&all.driver) != cudaSuccess) all.driver = 0;
  if (char const* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) all.visible = visible;
  cudaError_t const counted = cudaGetDeviceCount(&all.count);
  if (counted != cudaSuccess) all.count = 0;
  if (counted != cudaSuccess && counted != cudaErrorNoDevice) all.failure = text_of(counted);
  cudaGetLastError();  // clears the error; otherwise a later call of this thread would report it
  if (device >= all.count) return all;
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, mark_of_code);
  all.has_code = status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction &&
                 status != cudaErrorUnsupportedPtxVersion;
  if (all.has_code) {
    require(status, "selecting a GPU");
    return all;
  }
  cudaGetLastError();
  cudaDeviceProp about{};
  require(cudaGetDeviceProperties(&about, device), "cudaGetDeviceProperties");
  all.name = about.name;
  all.capability = about.major * 10 + about.minor;
  for (int const architecture : {__CUDA_ARCH_LIST__}) all.compiled.push_back(architecture / 10);
  return all;
}

/// Makes the GPU `device` current for this thread. Throws Error(unsupported) if the program cannot use it.
inline void select_device(int device) {
  cudaFuncAttributes attributes{};
  if (cudaSetDevice(device) == cudaSuccess && cudaFuncGetAttributes(&attributes, mark_of_code) == cudaSuccess)
    return;
  if (std::optional<std::string> const reason = why_unusable(query_device(device)))
    throw Error(ErrorKind::unsupported, *reason);
}

/// Returns the NUMA node next to the GPU `device`, from the system's files about PCI devices. Returns -1 if
/// the system does not report it, as on a machine with one node.
inline int numa_node(int device) {
  char address[32] = {};
  if (cudaDeviceGetPCIBusId(address, sizeof address, device) != cudaSuccess) {
    cudaGetLastError();  // clears the error; otherwise a later call of this thread would report it
    return -1;
  }
  for (char& c : address) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  return static_cast<int>(
      host_memory::number_in("/sys/bus/pci/devices/" + std::string(address) + "/numa_node"));
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
