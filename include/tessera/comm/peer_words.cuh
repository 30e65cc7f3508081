// SPDX-License-Identifier: Apache-2.0
// Provides PeerWords: words in host memory by which the streams of the ranks of one host signal each other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "tessera/backend/cuda/runtime/stream_memory.cuh"
#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/core/descriptor.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// The words with which the streams of the ranks of one host signal each other. Each rank owns a block of
/// words, in host memory that all ranks of the host map. Streams of other ranks write 1 to a word of the
/// block. A stream of the owner waits until the word is 1, and then writes 0. A word has one writer and one
/// reader. The writer may write again only after the reader has written 0. It knows this from another signal
/// of the reader, so between two equal signals of a rank there must be a different one. All collectives of a
/// communicator that use these words must be on one stream.
class PeerWords {
 public:
  static constexpr int max_ranks = 16;
  /// `ready`: others may write to the memory of the writer. `summands`: the writer has sent its summands to
  /// the other ranks. `done`: the writer has sent its pieces to the receive buffers.
  enum Signal { ready, summands, done };

  /// Maps the words of all ranks of the world, which must be on one host. All ranks must call it together.
  /// Returns null on every rank if one of them cannot use stream-memory operations or cannot map the words.
  static std::shared_ptr<PeerWords> open(Transport& transport) {
    auto words = std::make_shared<PeerWords>();
    return transport.world() <= max_ranks && words->map_all(transport) ? words : nullptr;
  }
  PeerWords() = default;
  PeerWords(PeerWords const&) = delete;
  PeerWords& operator=(PeerWords const&) = delete;

  /// Enqueues on `stream`: signals all other ranks of the group, and waits for the same signal of each of
  /// them. Each write becomes visible after all earlier work of the stream.
  CUresult meet(ProcessGroup const& group, int rank, Signal signal, cudaStream_t stream) const {
    std::array<CUstreamBatchMemOpParams, 3 * max_ranks> operations{};
    unsigned count = 0;
    int const own = group.index_of(rank);
    auto const write = [&](std::uint64_t to, std::uint64_t value) {
      auto& operation = operations[count++].writeValue;
      operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      operation.address = to;
      operation.value64 = value;
      operation.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    };
    for (int index = 0; index < group.count; ++index)
      if (index != own) write(address(group.rank(index), group.communicator, own, signal), 1);
    for (int index = 0; index < group.count; ++index)
      if (index != own) {
        auto& operation = operations[count++].waitValue;
        operation.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        operation.address = address(rank, group.communicator, index, signal);
        operation.value64 = 1;
        operation.flags = CU_STREAM_WAIT_VALUE_EQ;
      }
    for (int index = 0; index < group.count; ++index)
      if (index != own) write(address(rank, group.communicator, index, signal), 0);
    return batch_memory_(stream, count, operations.data(), 0);
  }

  /// Ends the waits of this rank's streams that are running now. After the loss of a rank, the caller repeats
  /// this until all streams are idle, because a stream can have several waits. The streams then work on wrong
  /// values and signal other ranks, so `are_released` returns true on all ranks before.
  void release() const noexcept {
    if (!own_) return;
    for (Mapping const& block : blocks_)
      if (block.memory) static_cast<Block*>(block.memory.get())->released.store(1);
    for (auto& of_communicator : own_->words)
      for (auto& of_rank : of_communicator)
        for (auto& word : of_rank) word.store(1, std::memory_order_release);
  }
  /// Returns whether a rank has called `release`. If so, the results of collectives can be wrong.
  bool are_released() const noexcept { return own_->released.load() != 0; }

  /// Tells all other ranks that this rank, whose number is `rank`, has ended its access to their memory.
  void close(int rank) const noexcept {
    for (Mapping const& block : blocks_) static_cast<Block*>(block.memory.get())->closed[rank].store(1);
  }
  /// Returns whether the rank `rank` has called `close`.
  bool closed_by(int rank) const noexcept { return own_->closed[rank].load() != 0; }

 private:
  /// The words of one rank, indexed by communicator, by the writer's index in the group, and by signal.
  struct Block {
    std::uint64_t secret;                          ///< a random number, to recognize the block
    std::atomic<std::uint64_t> released;           ///< 1 if a rank has called `release`, otherwise 0
    std::atomic<std::uint64_t> closed[max_ranks];  ///< 1 for each rank that has called `close`, otherwise 0
    std::atomic<std::uint64_t> words[max_communicators][max_ranks][3];
  };
  static constexpr std::size_t bytes = (sizeof(Block) + 4095) / 4096 * 4096;

  /// Unmaps memory, which the GPU can access if `registered` is true.
  struct Unmap {
    Unmap() noexcept : registered(false) {}
    void operator()(void* memory) const {
      if (registered) cudaHostUnregister(memory);
      ::munmap(memory, bytes);
    }
    bool registered;
  };
  struct Mapping {
    std::unique_ptr<void, Unmap> memory;
    std::uint64_t on_device{};  // the address of the memory for the GPU
  };
  /// The process and the file that contain a rank's block.
  struct Place {
    std::int64_t process = 0, file = -1;
    std::uint64_t secret = 0;
  };

  /// Maps the words of all ranks. Returns whether all ranks have done so.
  bool map_all(Transport& transport) {
    std::size_t const world = static_cast<std::size_t>(transport.world());
    batch_memory_ = cuda::batch_memory_operation();
    blocks_.resize(world);
    files::Descriptor const file(::memfd_create("tessera", MFD_CLOEXEC));
    Mapping& own = blocks_[static_cast<std::size_t>(transport.rank())];
    Place place{::getpid(), file ? file.get() : -1, std::random_device()() + (std::uint64_t{1} << 32)};
    if (!batch_memory_ || !file || ::ftruncate(file.get(), bytes) != 0 || !map(own, file.get()))
      place.file = -1;
    if (place.file >= 0) {
      own_ = new (own.memory.get()) Block{};
      own_->secret = place.secret;
    }
    std::vector<Place> places(world);
    transport.all_gather(&place, places.data(), sizeof place, {"compare", "words of ranks"});
    bool able = place.file >= 0;
    for (std::size_t rank = 0; rank < world && able; ++rank)
      able = &blocks_[rank] == &own || map(blocks_[rank], places[rank]);
    // The other ranks open `file` before this rank closes it.
    return unanimous(transport, able, {"compare", "words of ranks"});
  }
  static bool map(Mapping& mapping, Place const& place) {
    if (place.file < 0) return false;
    std::string const path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
    files::Descriptor const file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0 || about.st_size != static_cast<off_t>(bytes)) return false;
    return map(mapping, file.get()) && static_cast<Block*>(mapping.memory.get())->secret == place.secret;
  }
  static bool map(Mapping& mapping, int file) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return false;
    mapping.memory.reset(memory);
    void* seen = nullptr;
    mapping.memory.get_deleter().registered =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess;
    if (!mapping.memory.get_deleter().registered ||
        cudaHostGetDevicePointer(&seen, memory, 0) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    mapping.on_device = reinterpret_cast<std::uintptr_t>(seen);
    return true;
  }

  /// Returns the address, for the GPU, of a word in the block of `rank`.
  std::uint64_t address(int rank, int communicator, int writer, Signal signal) const {
    Mapping const& block = blocks_[static_cast<std::size_t>(rank)];
    auto const* const words = static_cast<Block*>(block.memory.get());
    return block.on_device + static_cast<std::uint64_t>(reinterpret_cast<std::byte const*>(
                                                            &words->words[communicator][writer][signal]) -
                                                        reinterpret_cast<std::byte const*>(words));
  }

  decltype(&cuStreamBatchMemOp) batch_memory_ = nullptr;
  std::vector<Mapping> blocks_;  // indexed by rank
  Block* own_ = nullptr;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
