// SPDX-License-Identifier: Apache-2.0
// Defines a list of sums over rows that one kernel launch computes.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// One sum: `to` (columns) = the sum of the rows of `from` (count, columns).
struct RowSum {
  void const* from;
  std::int64_t count, columns;
  void* to;
};

/// A list of at most 8 sums that one kernel launch computes. The kernel receives the list by value. `run`
/// launches the kernel, which handles one result type, so all results of a list have the same type.
struct RowSums {
  using Run = void (*)(cudaStream_t stream, RowSums const& all);
  static constexpr int most = 8;

  RowSum each[most] = {};
  int size = 0;
  Run run = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
