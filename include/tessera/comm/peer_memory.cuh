// SPDX-License-Identifier: Apache-2.0
// Provides PeerMemory: device memory of all ranks of one host, to which each of them can write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/comm/communicator.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// A range of device memory of each rank, which the other ranks can write to. A buffer has the same offset in
/// the ranges of all ranks. An object owns the memory of its rank and the access to the memory of the others.
class PeerMemory {
 public:
  /// Gives all other ranks access to `bytes` bytes of device memory from `base` on, which exist as long as
  /// `owner`. All ranks must call it together. Returns null on every rank if the ranges have different sizes
  /// or values of `layout`, or if two of the GPUs are not connected by NVLink. The memory must be one
  /// allocation of cudaMalloc.
  static std::unique_ptr<PeerMemory> open(Transport& transport, int device, std::shared_ptr<void> owner,
                                          std::byte* base, std::int64_t bytes, std::uint64_t layout) {
    std::unique_ptr<PeerMemory> memory(new PeerMemory(device, std::move(owner), base, bytes));
    Range own{process_number(), reinterpret_cast<std::uintptr_t>(base), bytes, layout, 0, {}, {}};
    own.able = base && bytes > 0 && cudaIpcGetMemHandle(&own.handle, base) == cudaSuccess &&
               cudaDeviceGetPCIBusId(own.bus, sizeof own.bus, device) == cudaSuccess;
    if (!own.able) cudaGetLastError();
    std::vector<Range> ranges(static_cast<std::size_t>(transport.world()));
    transport.all_gather(&own, ranges.data(), sizeof own, {"compare", "memory of GPUs"});
    bool able = true;
    memory->bases_.resize(ranges.size());
    for (std::size_t rank = 0; rank < ranges.size() && able; ++rank) {
      Range const& range = ranges[rank];
      able = range.able && range.bytes == bytes && range.layout == layout &&
             memory->map(rank, range, static_cast<int>(rank) == transport.rank());
    }
    return unanimous(transport, able, {"compare", "memory of GPUs"}) ? std::move(memory) : nullptr;
  }
  PeerMemory(PeerMemory const&) = delete;
  PeerMemory& operator=(PeerMemory const&) = delete;
  ~PeerMemory() { close(); }

  /// Ends the access of this rank to the memory of other processes. Nothing may use it afterwards.
  void close() noexcept {
    cuda::DeviceScope const scope(device_);
    for (void* const memory : opened_) cudaIpcCloseMemHandle(memory);
    opened_.clear();
  }
  std::byte* base() const noexcept { return base_; }
  bool contains(void const* first, std::int64_t bytes) const {
    auto const* const at = static_cast<std::byte const*>(first);
    return at >= base_ && at + bytes <= base_ + bytes_;
  }
  /// Returns the address at which this rank writes to the memory of `rank`. `at` is the address of the same
  /// buffer in the memory of this rank.
  std::byte* of(int rank, void const* at) const {
    return bases_[static_cast<std::size_t>(rank)] + (static_cast<std::byte const*>(at) - base_);
  }

 private:
  /// A rank's range, as the rank describes it to the others. `base` is an address in the process of the rank,
  /// and `bus` names its GPU.
  struct Range {
    std::uint64_t process;
    std::uint64_t base;
    std::int64_t bytes;
    std::uint64_t layout;
    int able;
    char bus[32];
    cudaIpcMemHandle_t handle;
  };

  /// Returns a random number that all threads of this process share. The id of a process would not be enough,
  /// because processes in different containers can have the same one.
  static std::uint64_t process_number() {
    static std::uint64_t const number =
        (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
    return number;
  }

  PeerMemory(int device, std::shared_ptr<void> owner, std::byte* base, std::int64_t bytes)
      : device_(device), owner_(std::move(owner)), base_(base), bytes_(bytes) {}

  bool map(std::size_t rank, Range const& range, bool is_own) {
    bases_[rank] = base_;
    if (is_own) return true;
    int peer = 0, nvlink = 0;
    if (cudaDeviceGetByPCIBusId(&peer, range.bus) != cudaSuccess ||
        cudaDeviceGetP2PAttribute(&nvlink, cudaDevP2PAttrNativeAtomicSupported, device_, peer) !=
            cudaSuccess ||
        !nvlink)
      return refused();
    if (range.process == process_number()) {  // the ranks are threads
      cudaError_t const status = cudaDeviceEnablePeerAccess(peer, 0);
      if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled) return refused();
      cudaGetLastError();
      bases_[rank] = reinterpret_cast<std::byte*>(range.base);
      return true;
    }
    void* memory = nullptr;
    if (cudaIpcOpenMemHandle(&memory, range.handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
      return refused();
    opened_.push_back(memory);
    bases_[rank] = static_cast<std::byte*>(memory);
    return true;
  }
  static bool refused() {
    cudaGetLastError();
    return false;
  }

  int const device_;
  std::shared_ptr<void> owner_;  // of the memory of this rank
  std::byte* const base_;
  std::int64_t const bytes_;
  std::vector<std::byte*> bases_;  // of all ranks, as this rank sees them
  std::vector<void*> opened_;      // memory of other processes
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
