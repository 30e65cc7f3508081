// SPDX-License-Identifier: Apache-2.0
// Makes the system allocate the pages of a large range of host memory before the first use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "tessera/detail/affinity.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Returns the cores that allocate the pages of a rank: the cores of the rank if Tessera has bound its
/// thread, otherwise the allowed cores of the NUMA node `node`. If the node has none, returns all allowed
/// cores. Linux puts a page on the node of the core that writes to it first.
inline affinity::Cores cores_for_pages(int node) {
  affinity::Cores share = affinity::helper_cores();
  if (!share.empty()) return share;
  affinity::Cores const allowed = affinity::allowed_cores();
  for (auto const& [number, cores] : affinity::nodes_of(allowed))
    if (number == node && node >= 0) return cores;
  return allowed;
}

/// The number of bytes that a thread of `allocate_pages` allocates at a time.
inline constexpr std::int64_t part_of_pages = std::int64_t{32} << 20;

/// Makes the system allocate the pages of the `bytes` bytes at `base` now, so that pinning finds them. `base`
/// is the start of fresh memory from mmap, which is zero. At most 16 threads on `cores` write to the pages.
/// If `cores` is empty, the calling thread does so. Returns when all pages are allocated.
inline void allocate_pages(std::byte* base, std::int64_t bytes, affinity::Cores const& cores) {
  constexpr std::int64_t page = 4096, part = part_of_pages;
  std::atomic<std::int64_t> next{0};
  auto const work = [&] {
    for (std::int64_t from; (from = next.fetch_add(part)) < bytes;)
      for (std::int64_t at = from; at < std::min(from + part, bytes); at += page)
        *static_cast<std::byte volatile*>(base + at) = std::byte{0};
  };
  std::int64_t const parts = (bytes + part - 1) / part;
  std::vector<std::thread> threads;
  try {
    std::int64_t const most = std::min<std::int64_t>({parts, static_cast<std::int64_t>(cores.size()), 16});
    threads.reserve(static_cast<std::size_t>(most));
    for (std::int64_t i = 0; i < most; ++i)
      threads.emplace_back([&] {
        (void)affinity::bind_thread(cores);
        work();
      });
  } catch (std::exception const&) {
    // The system has no more threads or memory for them. The existing threads do the work.
  }
  if (threads.empty()) work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
