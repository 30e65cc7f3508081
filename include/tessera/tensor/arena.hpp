// SPDX-License-Identifier: Apache-2.0
// One mapping of host memory per place and rank, sized by the plan before step 1 and never grown.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"

namespace tessera::inline v0 {

/// Every buffer of an arena starts at a multiple of this, in bytes.
inline constexpr std::int64_t arena_alignment = 256;
/// Arenas are rounded up to this many bytes.
inline constexpr std::int64_t arena_granularity = 4096;

/// `value` rounded up to a multiple of `step`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Owns `bytes` of zeroed host memory; pages are touched on first use, in huge pages where the system offers
/// them. `view` hands out parts at planned offsets and remembers the highest byte handed out, so that a plan
/// can be held against what was really used. Throws Error(out_of_memory) when the mapping is refused.
class HostArena {
 public:
  HostArena() = default;
  explicit HostArena(std::int64_t bytes) : bytes_(round_up(bytes, arena_granularity)) {
    if (bytes_ == 0) return;
    void* const address = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      throw Error(ErrorKind::out_of_memory, "cannot map an arena of " + std::to_string(bytes_) + " bytes: " +
                                                std::strerror(errno) + "; choose a smaller batch or model");
    base_ = static_cast<std::byte*>(address);
    if (bytes_ >= (std::int64_t{4} << 20)) ::madvise(base_, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE);
  }
  HostArena(HostArena&& other) noexcept { swap(other); }
  HostArena& operator=(HostArena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostArena() {
    if (base_) ::munmap(base_, static_cast<std::size_t>(bytes_));
  }

  std::int64_t bytes() const { return bytes_; }
  /// The end of the highest part handed out so far, as the plan counts it.
  std::int64_t high_water() const { return high_water_; }
  std::byte* base() const { return base_; }

  /// The part [offset, offset + bytes). Asking beyond the end is a defect of the plan and throws.
  std::byte* view(std::int64_t offset, std::int64_t bytes) {
    if (offset < 0 || bytes < 0 || round_up(offset + bytes, arena_alignment) > bytes_)
      throw Error(ErrorKind::failed, "an arena of " + std::to_string(bytes_) + " bytes was asked for bytes " +
                                         std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                                         "; the memory plan is wrong");
    high_water_ = std::max(high_water_, round_up(offset + bytes, arena_alignment));
    return base_ + offset;
  }

 private:
  void swap(HostArena& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(high_water_, other.high_water_);
  }

  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t high_water_ = 0;
};

namespace detail {
template <class Place>
struct arena_of;
template <>
struct arena_of<Cpu> {
  using type = HostArena;
};
}  // namespace detail

/// The arena of the device's own memory.
template <class Place>
using DeviceArena = typename detail::arena_of<Place>::type;

}  // namespace tessera::inline v0
