// SPDX-License-Identifier: Apache-2.0
// A list of sums over rows that one kernel launch forms.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

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

/// The sums of one launch, all of the types that `run` launches. It is a kernel's argument as it is.
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
