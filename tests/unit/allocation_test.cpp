// SPDX-License-Identifier: Apache-2.0
// Replaces malloc, operator new and related functions in the whole test program with functions that count
// their calls. The functions are in a separate file, so that the compiler cannot inline operator new without
// operator delete, or operator delete without operator new.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <doctest/doctest.h>

#include "support/sanitizers.hpp"
#include "unit/allocation_support.hpp"

namespace {

std::atomic<std::int64_t> allocations{0};

void seen() { allocations.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::int64_t allocation_support::count() { return allocations.load(std::memory_order_relaxed); }

#if defined(__GLIBC__) && !TESSERA_TEST_ADDRESS_SANITIZER && !TESSERA_TEST_THREAD_SANITIZER
// Replaces malloc and the related functions of the C library, so that the allocations of Eigen and of the C++
// library are counted too.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t bytes) {
  seen();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  seen();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  seen();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  seen();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  seen();
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;  // ENOMEM
}
}
#else
namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  seen();
  std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded ? rounded : alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// std::stable_sort uses the nothrow forms, so this code replaces them too. It also replaces operator delete,
// because a sanitizer reports an error if a program replaces only operator new.
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  try {
    return allocate(bytes, alignof(std::max_align_t));
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}
void operator delete(void* memory, std::nothrow_t const&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

TEST_CASE("allocations are counted") {
  std::int64_t const before = allocation_support::count();
  ::operator delete(::operator new(10));
  CHECK(allocation_support::count() > before);
}
