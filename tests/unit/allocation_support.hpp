// SPDX-License-Identifier: Apache-2.0
// Counts allocations in the whole test program. allocation_test.cpp replaces the allocation functions.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Allocations so far, on all threads: every call of malloc and related functions. Sanitizers reserve malloc
/// for themselves; there, only calls of operator new are counted.
std::int64_t count();

}  // namespace allocation_support
