// SPDX-License-Identifier: Apache-2.0
// Provides arenas. An arena is one allocation that contains all buffers of a rank in one kind of memory. The
// plan of the run computes the size of the arena before step 1, and the arena never grows.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"
#include "tessera/detail/host_memory.hpp"

namespace tessera {
inline namespace v0 {

/// Every buffer in an arena starts at a multiple of this number of bytes.
inline constexpr std::int64_t arena_alignment = 256;
/// Disk reads and writes start at a multiple of this number of bytes, in the file and in memory. The size of
/// each read and write is also a multiple of this number.
inline constexpr std::int64_t disk_block = 4096;

/// Returns `value` rounded up to a multiple of `step`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Owns one range of memory, which is zero at first. `view` returns a part of the range at an offset of the
/// memory plan. The arena also records the end of the highest part that `view` returned, so that the plan can
/// be compared with the actual use. `Memory` is a class whose functions `map` and `unmap` allocate and free
/// the range. `map` throws Error(out_of_memory).
template <class Memory>
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::int64_t bytes) : bytes_(round_up(bytes, Memory::granularity)) {
    if (bytes_ > 0) base_ = Memory::map(bytes_);
  }
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena() {
    if (base_) Memory::unmap(base_, bytes_);
  }

  /// Returns the number of bytes that the system can give to a new arena now.
  static std::int64_t available() { return Memory::available(); }

  std::int64_t bytes() const { return bytes_; }
  /// Returns the end of the highest part that `view` has returned, rounded up to arena_alignment.
  std::int64_t high_water() const { return high_water_; }
  std::byte* base() const { return base_; }

  /// Returns the address of the part [offset, offset + bytes) of the arena. Throws Error(failed) if the part
  /// ends beyond the arena, which is a bug in the plan.
  std::byte* view(std::int64_t offset, std::int64_t bytes) {
    if (offset < 0 || bytes < 0 || round_up(offset + bytes, arena_alignment) > bytes_)
      throw_error(ErrorKind::failed, {"an arena of ", bytes_, " bytes was asked for bytes ", offset, " to ",
                                      offset + bytes, "; the memory plan is wrong"});
    high_water_ = std::max(high_water_, round_up(offset + bytes, arena_alignment));
    return base_ + offset;
  }

 private:
  void swap(Arena& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(high_water_, other.high_water_);
  }

  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t high_water_ = 0;
};

/// Allocates host memory for an arena. The kernel allocates pages on first use. Ranges of at least 4 MiB
/// request huge pages.
struct HostMemory {
  static constexpr std::int64_t granularity = 4096;

  static std::byte* map(std::int64_t bytes) {
    void* const address = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      throw_error(ErrorKind::out_of_memory,
                  {"cannot map ", bytes, " bytes of host memory: ", std::strerror(errno),
                   "; choose a smaller batch, model or array"});
    if (bytes >= (std::int64_t{4} << 20)) ::madvise(address, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(address);
  }
  static void unmap(std::byte* base, std::int64_t bytes) noexcept {
    ::munmap(base, static_cast<std::size_t>(bytes));
  }
  static std::int64_t available() { return host_memory::available_host_memory(); }
};
using HostArena = Arena<HostMemory>;

/// Reserves addresses for an arena, without memory. The planner plans a step with such an arena. The
/// addresses must not be dereferenced.
struct AddressSpace {
  static constexpr std::int64_t granularity = 4096;

  static std::byte* map(std::int64_t bytes) {
    void* const address = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      throw_error(ErrorKind::out_of_memory,
                  {"cannot reserve ", bytes, " bytes of addresses: ", std::strerror(errno),
                   "; raise the limit of this process (ulimit -v)"});
    return static_cast<std::byte*>(address);
  }
  static void unmap(std::byte* base, std::int64_t bytes) noexcept {
    ::munmap(base, static_cast<std::size_t>(bytes));
  }
};

namespace detail {
template <class Place>
struct memory_of;
template <>
struct memory_of<Cpu> {
  using device = HostMemory;
  using host = HostMemory;
};
/// Whether the device `Place` has memory other than the host's.
template <class Place>
inline constexpr bool has_own_memory = !std::is_same_v<typename memory_of<Place>::device, HostMemory>;
}  // namespace detail

/// DeviceArena is the type of an arena in the memory of a device. OffloadArena is the type of an arena in
/// host memory for the state that a run on this device offloads.
template <class Place>
using DeviceArena = Arena<typename detail::memory_of<Place>::device>;
template <class Place>
using OffloadArena = Arena<typename detail::memory_of<Place>::host>;

}  // namespace v0
}  // namespace tessera
