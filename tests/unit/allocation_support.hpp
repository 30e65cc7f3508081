// SPDX-License-Identifier: Apache-2.0
// Counts the memory allocations of the whole test program. allocation_test.cpp replaces the functions malloc,
// operator new and their relatives with functions that count.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Returns the number of allocations so far on all threads: every call of malloc and related functions. In a
/// build with a sanitizer, only calls of operator new are counted, because the sanitizer replaces malloc
/// itself.
std::int64_t count();

}  // namespace allocation_support
