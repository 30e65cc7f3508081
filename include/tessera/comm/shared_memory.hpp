// SPDX-License-Identifier: Apache-2.0
// Provides SharedMemory, which moves bytes between the processes of one host through shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/launch.hpp"
#include "tessera/comm/messages.hpp"
#include "tessera/comm/socket.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// The header of a ring buffer in which one process sends bytes to another. `written` and `read` count all
/// bytes that the two processes have written and read since the start. The bytes of the ring follow this
/// header in memory.
struct alignas(64) Ring {
  std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share these words");

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const { ::munmap(memory, bytes); }
};

/// Moves bytes between the processes of one host. Each process creates a block of shared memory. The block
/// has one ring for each other process, through which it sends bytes to that process. The block has no name
/// in a file system, so no file remains if a process is killed.
class SharedMemory final : public Messages {
 public:
  /// Connects all ranks of the launch, which must share memory. All ranks must call it together.
  explicit SharedMemory(Launch& launch)
      : world_(launch.world()),
        rank_(launch.rank()),
        size_(static_cast<std::size_t>(std::clamp(total / world_, 64 << 10, 1 << 20)) / 4096 * 4096),
        segments_(static_cast<std::size_t>(world_)),
        peers_(static_cast<std::size_t>(world_)) {
    std::size_t const bytes = stride() * static_cast<std::size_t>(world_);
    Descriptor const own(::memfd_create("tessera", MFD_CLOEXEC));
    if (!own || ::ftruncate(own.get(), static_cast<off_t>(bytes)) != 0) refuse("create", rank_);
    map(rank_, own.get(), bytes);
    for (int peer = 0; peer < world_; ++peer) new (&ring(rank_, peer)) Ring;
    auto const files = launch.all_gather(std::to_string(own.get()), "connect through shared memory");
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      std::string const path = sentence({"/proc/", launch.members()[static_cast<std::size_t>(peer)].process,
                                         "/fd/", files[static_cast<std::size_t>(peer)]});
      Descriptor const other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!other) refuse("open", peer);
      map(peer, other.get(), bytes);
    }
    (void)launch.all_gather("", "keep shared memory");  // other ranks open `own` before this
  }

  std::string_view name() const noexcept override { return "shared memory"; }
  void send(int to, void const* data, std::int64_t bytes) override {
    if (bytes > 0)
      peers_[static_cast<std::size_t>(to)].sends.push_back(
          {static_cast<std::byte*>(const_cast<void*>(data)), static_cast<std::size_t>(bytes)});
  }
  void receive(int from, void* data, std::int64_t bytes) override {
    if (bytes > 0)
      peers_[static_cast<std::size_t>(from)].receives.push_back(
          {static_cast<std::byte*>(data), static_cast<std::size_t>(bytes)});
  }
  bool progress() override {
    bool done = true;
    for (int peer = 0; peer < world_; ++peer) {
      Peer& with = peers_[static_cast<std::size_t>(peer)];
      if (!with.sends.empty()) write(ring(rank_, peer), with.sends);
      if (!with.receives.empty()) read(ring(peer, rank_), with.receives);
      done = done && with.sends.empty() && with.receives.empty();
    }
    return done;
  }

 private:
  static constexpr int total = 8 << 20;  // bytes for all rings of a process; each has 64 KiB to 1 MiB

  /// The part of a message that was not moved yet: its address and its size in bytes.
  struct Part {
    std::byte* at;
    std::size_t left;
  };
  /// A queue of messages. It keeps its capacity, so that a step allocates nothing.
  class Queue {
   public:
    bool empty() const { return first_ == parts_.size(); }
    Part& front() { return parts_[first_]; }
    void push_back(Part part) { parts_.push_back(part); }
    void pop_front() {
      if (++first_ < parts_.size()) return;
      parts_.clear();
      first_ = 0;
    }

   private:
    std::vector<Part> parts_;
    std::size_t first_ = 0;
  };
  struct Peer {
    Queue sends;
    Queue receives;
  };
  std::size_t stride() const { return sizeof(Ring) + size_; }
  Ring& ring(int from, int to) const {
    return *std::launder(reinterpret_cast<Ring*>(segments_[static_cast<std::size_t>(from)].get() +
                                                 stride() * static_cast<std::size_t>(to)));
  }

  void map(int rank, int file, std::size_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) refuse("map", rank);
    segments_[static_cast<std::size_t>(rank)] = {static_cast<std::byte*>(memory), Unmap{bytes}};
  }
  [[noreturn]] void refuse(char const* what, int rank) const {
    throw_error(ErrorKind::failed,
                {"cannot ", what, " the shared memory of rank ", rank, ": ", std::strerror(errno),
                 "; ranks on one host must belong to one user and one container"},
                rank_);
  }

  void write(Ring& to, Queue& parts) {
    auto* const bytes = reinterpret_cast<std::byte*>(&to) + sizeof(Ring);
    std::uint64_t written = to.written.load(std::memory_order_relaxed);
    std::uint64_t const read = to.read.load(std::memory_order_acquire);
    while (!parts.empty() && written - read < size_)
      move(parts, written, size_ - (written - read),
           [&](Part const& part, std::size_t at, std::size_t count) {
             std::memcpy(bytes + at, part.at, count);
           });
    to.written.store(written, std::memory_order_release);
  }
  void read(Ring& from, Queue& parts) {
    auto const* const bytes = reinterpret_cast<std::byte const*>(&from) + sizeof(Ring);
    std::uint64_t read = from.read.load(std::memory_order_relaxed);
    std::uint64_t const written = from.written.load(std::memory_order_acquire);
    while (!parts.empty() && read < written)
      move(parts, read, written - read, [&](Part const& part, std::size_t at, std::size_t count) {
        std::memcpy(part.at, bytes + at, count);
      });
    from.read.store(read, std::memory_order_release);
  }
  /// Moves the next bytes of the first message in `parts`: at most `limit` bytes, and not beyond the end of
  /// the ring. copy(part, at, count) copies `count` bytes at the offset `at` of the ring. Adds the number of
  /// bytes to `position`, which counts all bytes of this ring since the start.
  template <class Copy>
  void move(Queue& parts, std::uint64_t& position, std::uint64_t limit, Copy const& copy) {
    Part& part = parts.front();
    std::size_t const at = position % size_;
    std::size_t const count = std::min({part.left, static_cast<std::size_t>(limit), size_ - at});
    copy(part, at, count);
    position += count;
    part.at += count;
    part.left -= count;
    if (part.left == 0) parts.pop_front();
  }

  int const world_;
  int const rank_;
  std::size_t const size_;  // bytes of a ring
  std::vector<std::unique_ptr<std::byte, Unmap>> segments_;
  std::vector<Peer> peers_;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
