// SPDX-License-Identifier: Apache-2.0
// Declares count(), the number of memory allocations of the test program so far. allocation_test.cpp defines
// it. That file replaces malloc, operator new and related functions with functions that count their calls.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Returns the number of allocations so far on all threads: every call of malloc and related functions. In a
/// build with a sanitizer, only calls of operator new are counted, because the sanitizer replaces malloc
/// itself.
std::int64_t count();

}  // namespace allocation_support
