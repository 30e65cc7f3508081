// SPDX-License-Identifier: Apache-2.0
// Counts calls of operator new in the whole test program; allocation_test.cpp replaces the operator.
#pragma once

#include <cstdint>

namespace allocation_support {

/// Calls of operator new so far, on all threads.
std::int64_t count();

}  // namespace allocation_support
