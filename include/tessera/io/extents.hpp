// SPDX-License-Identifier: Apache-2.0
// Converts a Shape, which has up to four dims, to a list of extents. Files store shapes as such lists.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/shape.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the extents of a shape, outermost first.
inline std::vector<std::int64_t> extents_of(Shape const& shape) {
  std::vector<std::int64_t> extents;
  for (int dim = 0; dim < shape.dims(); ++dim) extents.push_back(shape[dim]);
  return extents;
}

}  // namespace v0
}  // namespace tessera
