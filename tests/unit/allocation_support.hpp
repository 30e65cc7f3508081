// SPDX-License-Identifier: Apache-2.0
// Counts memory allocations in the whole test program. allocation_test.cpp replaces the allocation functions.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Returns the number of allocations so far on all threads: every call of malloc and related functions. With
/// a sanitizer, which needs malloc for itself, counts only calls of operator new.
std::int64_t count();

}  // namespace allocation_support
