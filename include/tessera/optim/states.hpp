// SPDX-License-Identifier: Apache-2.0
// Lists the kinds of state that an optimizer keeps between steps, such as AdamW's moments. The planner makes
// a buffer for each kind of state in the list and each group of parameters.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {

/// One kind of optimizer state: a value for each trained element, or for each block of elements (such as the
/// scale of quantized values). The values start at zero. PlacementTable::moments says where the state is
/// stored.
struct OptimizerState {
  std::string_view name{};  ///< PyTorch's name for this state
  DType type{};
  std::int64_t block = 1;  ///< number of elements that share a value; shards contain only whole blocks
};

/// Returns AdamW's states: the running means of the gradient and of its square, in the format in which AdamW
/// computes.
constexpr std::array<OptimizerState, 2> adamw_states(DType computes) {
  return {{{"exp_avg", computes}, {"exp_avg_sq", computes}}};
}

}  // namespace v0
}  // namespace tessera
