// SPDX-License-Identifier: Apache-2.0
// Lists what an optimizer keeps from step to step. Buffers, clearing and reports follow the list.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {

/// One value of an optimizer for each element of a trained flat group, or for each block of elements, such as
/// the scale of quantized values. It is stored where the recipe's row `moments` says, in a buffer with the
/// state's index in the list, and starts at zero.
struct OptimizerState {
  std::string_view name{};  ///< PyTorch's name for it
  DType type{};
  std::int64_t block = 1;  ///< elements that share a value; a shard holds whole blocks
};

/// AdamW's states: the running means of the gradient and of its square, in the type in which AdamW computes.
constexpr std::array<OptimizerState, 2> adamw_states(DType computes) {
  return {{{"exp_avg", computes}, {"exp_avg_sq", computes}}};
}

}  // namespace v0
}  // namespace tessera
