// SPDX-License-Identifier: Apache-2.0
// Sums that wait for others of their kind, to be one launch.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// to (columns) = the sums of from (count, columns) over rows.
struct RowSum {
  void const* from;
  std::int64_t count, columns;
  void* to;
};

/// Some of them, of the type that `run` launches; goes to a kernel as it is.
struct RowSums {
  static constexpr int most = 8;
  RowSum each[most] = {};
  int size = 0;
  void (*run)(cudaStream_t stream, RowSums const& sums) = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
