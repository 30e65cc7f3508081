// SPDX-License-Identifier: Apache-2.0
// Provides device memory, and the pinned host memory that a GPU reads and writes during steps.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <string>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/backend/cuda/runtime/error.cuh"
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
/// requires this. CUDA aligns small blocks to only 512 bytes. So `map` allocates a larger block, returns an
/// aligned address in it, and stores the address of the block right before the returned address.
struct PinnedMemory {
  static constexpr std::int64_t granularity = disk_block;

  static std::byte* map(std::int64_t bytes) {
    void* block = nullptr;
    cudaError_t const status = cudaMallocHost(&block, static_cast<std::size_t>(bytes + granularity));
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorKind::out_of_memory,
                  "cannot pin " + std::to_string(bytes) + " bytes of host memory: " + text_of(status) +
                      "; choose a smaller model, or raise the limit of locked memory");
    }
    auto const first = reinterpret_cast<std::uintptr_t>(block);
    std::byte* const base = static_cast<std::byte*>(block) + (granularity - first % granularity);
    std::memcpy(base - sizeof block, &block, sizeof block);
    std::memset(base, 0, static_cast<std::size_t>(bytes));
    return base;
  }
  static void unmap(std::byte* base, std::int64_t) noexcept {
    void* block = nullptr;
    std::memcpy(&block, base - sizeof block, sizeof block);
    cudaFreeHost(block);
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
