// SPDX-License-Identifier: Apache-2.0
// Provides device memory, and the pinned host memory that a GPU reads and writes during steps.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>
#include <sys/mman.h>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/backend/cuda/runtime/device.cuh"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/pages.hpp"
#include "tessera/core/place.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Allocates memory of the current GPU for an arena, which is one allocation for all buffers of a rank
/// (tensor/arena.hpp). `map` returns zeroed memory. `map` waits for the GPU, and throws Error(out_of_memory)
/// if the allocation fails. `granularity` is the unit of the allocated size: 2 MiB.
struct DeviceMemory {
  static constexpr std::int64_t granularity = std::int64_t{2} << 20;

  static std::byte* map(std::int64_t bytes) {
    void* address = nullptr;
    cudaError_t const status = cudaMalloc(&address, static_cast<std::size_t>(bytes));
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorKind::out_of_memory, "cannot allocate " + std::to_string(bytes) +
                                                " bytes on the GPU: " + text_of(status) +
                                                "; choose a smaller batch, model or array");
    }
    try {
      require(cudaMemset(address, 0, static_cast<std::size_t>(bytes)), "cudaMemset");
      require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    } catch (...) {
      cudaFree(address);
      throw;
    }
    count(address, bytes);
    return static_cast<std::byte*>(address);
  }
  static void unmap(std::byte* base, std::int64_t bytes) noexcept {
    count(base, -bytes);
    cudaFree(base);
  }
  /// Returns the number of bytes that this process has mapped now on the GPU `device`.
  static std::int64_t held(int device) noexcept {
    return device < 0 || device >= max_devices ? 0 : held_[static_cast<std::size_t>(device)].load();
  }

  /// Returns the number of bytes of the current GPU that an arena can use: the free bytes minus
  /// library_bytes. The CUDA libraries allocate library_bytes after the arena.
  static std::int64_t available() {
    std::size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(free) - library_bytes);
  }

 private:
  static constexpr int max_devices = 64;

  static void count(void const* base, std::int64_t bytes) noexcept {
    cudaPointerAttributes about{};
    if (cudaPointerGetAttributes(&about, base) == cudaSuccess && about.device >= 0 &&
        about.device < max_devices)
      held_[static_cast<std::size_t>(about.device)].fetch_add(bytes);
  }

  static inline std::array<std::atomic<std::int64_t>, max_devices> held_{};
};

/// Allocates pinned host memory for an arena. The GPU reads and writes it at the same addresses as the host.
/// The memory begins at a multiple of `granularity`, because file I/O that bypasses the kernel's page cache
/// requires this. `map` returns zeroed memory with huge pages if the system has them. It does not use
/// cudaMallocHost, which allocates small pages in one thread: several threads allocate the pages, and CUDA
/// then pins them. No copy may use the memory when `unmap` is called.
struct PinnedMemory {
  static constexpr std::int64_t granularity = disk_block;

  static std::byte* map(std::int64_t bytes) {
    std::int64_t const available = HostMemory::available();
    if (bytes > available)
      throw Error(ErrorKind::out_of_memory,
                  "cannot pin " + std::to_string(bytes) + " bytes of host memory, because only " +
                      std::to_string(available) +
                      " bytes are available; choose a smaller batch, model or array");
    std::byte* const base = HostMemory::map(bytes);
    try {
      auto const size = static_cast<std::size_t>(bytes);
      // Otherwise fork() would copy all pinned pages, and a core file would have them.
      ::madvise(base, size, MADV_DONTFORK);
      ::madvise(base, size, MADV_DONTDUMP);
      int device = 0;
      require(cudaGetDevice(&device), "cudaGetDevice");
      allocate_pages(base, bytes,
                     bytes > part_of_pages ? cores_for_pages(numa_node(device)) : affinity::Cores{});
      pin(base, size);
    } catch (...) {
      HostMemory::unmap(base, bytes);
      throw;
    }
    return base;
  }
  static void unmap(std::byte* base, std::int64_t bytes) noexcept {
    cudaError_t const status = cudaHostUnregister(base);
    if (status != cudaSuccess) cudaGetLastError();
    // If the memory is still pinned, its addresses must not be used for other memory.
    if (status == cudaSuccess || status == cudaErrorCudartUnloading) HostMemory::unmap(base, bytes);
  }

 private:
  static void pin(std::byte* base, std::size_t bytes) {
    cudaError_t const status = cudaHostRegister(base, bytes, cudaHostRegisterDefault);
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw Error(status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::failed,
                  "cannot pin " + std::to_string(bytes) + " bytes of host memory: " + text_of(status) +
                      "; choose a smaller model, or raise the limit of locked memory");
    }
    void* seen = nullptr;
    cudaError_t const found = cudaHostGetDevicePointer(&seen, base, 0);
    if (found == cudaSuccess && seen == base) return;
    cudaGetLastError();
    cudaHostUnregister(base);
    require(found, "cudaHostGetDevicePointer");
    throw Error(ErrorKind::failed,
                "a GPU cannot read pinned memory at the addresses of the host; hide this GPU with "
                "CUDA_VISIBLE_DEVICES");
  }
};

}  // namespace cuda

namespace detail {
template <>
struct memory_of<Cuda> {
  using device = cuda::DeviceMemory;
  using host = cuda::PinnedMemory;
};
}  // namespace detail

}  // namespace v0
}  // namespace tessera
