// SPDX-License-Identifier: Apache-2.0
// Counts allocations in the whole test program; allocation_test.cpp replaces the functions that allocate.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Allocations so far, on all threads: every call of malloc and its kin, or, under a sanitizer, which keeps
/// malloc for itself, of operator new.
std::int64_t count();

}  // namespace allocation_support
