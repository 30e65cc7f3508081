// SPDX-License-Identifier: Apache-2.0
// Tests that all pages of a range of memory are allocated before the first use, and are zero.
#include "tessera/backend/cuda/runtime/pages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/tensor/arena.hpp"

using namespace tessera;

namespace {

/// Returns how many pages of [base, base + bytes) are in memory.
std::int64_t resident_pages(std::byte* base, std::int64_t bytes) {
  std::int64_t const page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<std::size_t>((bytes + page - 1) / page));
  REQUIRE(::mincore(base, static_cast<std::size_t>(bytes), pages.data()) == 0);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char one) { return (one & 1) != 0; });
}

/// Returns how many pages this process has allocated without reading a file.
long page_faults() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

}  // namespace

TEST_CASE("allocate_pages allocates every page, including the last page of each part") {
  std::int64_t const page = ::sysconf(_SC_PAGESIZE), part = cuda::part_of_pages;
  for (bool const huge : {false, true})
    for (std::int64_t const bytes : {page, part, 3 * part + 5 * page})
      for (affinity::Cores const& cores : {affinity::Cores{}, affinity::allowed_cores()}) {
        CAPTURE(huge);
        CAPTURE(bytes);
        CAPTURE(cores.size());
        HostArena arena(bytes);
        auto const size = static_cast<std::size_t>(bytes);
        ::madvise(arena.base(), size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        cuda::allocate_pages(arena.base(), bytes, cores);
        CHECK(resident_pages(arena.base(), bytes) == bytes / page);
        CHECK(std::all_of(arena.base(), arena.base() + bytes,
                          [](std::byte value) { return value == std::byte{0}; }));
        // A write allocates no more pages. It would if the pages had only been read before. The process may
        // have a few page faults for other memory.
        long const before = page_faults();
        std::fill_n(arena.base(), bytes, std::byte{1});
        CHECK(page_faults() - before <= 8 + bytes / page / 8);
      }
}

TEST_CASE("allocate_pages stays within its range") {
  std::int64_t const bytes = 1 << 20, page = ::sysconf(_SC_PAGESIZE);
  HostArena arena(2 * bytes);
  ::madvise(arena.base(), 2 * bytes, MADV_NOHUGEPAGE);
  cuda::allocate_pages(arena.base() + bytes, bytes, {});
  CHECK(resident_pages(arena.base(), bytes) == 0);
  CHECK(resident_pages(arena.base() + bytes, bytes) == bytes / page);
  cuda::allocate_pages(arena.base(), 0, {});
  CHECK(resident_pages(arena.base(), bytes) == 0);
}

TEST_CASE("pages are allocated on the cores of the rank, or of the node of its GPU") {
  affinity::Cores const allowed = affinity::allowed_cores();
  CHECK(cuda::cores_for_pages(-1) == allowed);
  CHECK(cuda::cores_for_pages(12345) == allowed);
  for (auto const& [node, cores] : affinity::nodes_of(allowed))
    if (node >= 0) CHECK(cuda::cores_for_pages(node) == cores);
  affinity::BoundThread const bound({allowed.front()});
  CHECK(cuda::cores_for_pages(-1) == affinity::Cores{allowed.front()});
}
