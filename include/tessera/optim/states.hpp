// SPDX-License-Identifier: Apache-2.0
// What an optimizer keeps from step to step, as a list: buffers, clearing and reports go by it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {

/// One value of an optimizer for each element of a trained flat group, or for each block of them, as the
/// scale of quantized values is. It lies where the recipe's row `moments` says, in a buffer whose index is
/// the state's place in the list, and starts at zero.
struct OptimizerState {
  std::string_view name{};  ///< PyTorch's name for it
  DType type{};
  std::int64_t block = 1;  ///< elements that share a value; a shard holds whole blocks
};

/// Those of AdamW: the running means of the gradient and of its square, in the type in which it computes.
constexpr std::array<OptimizerState, 2> adamw_states(DType computes) {
  return {{{"exp_avg", computes}, {"exp_avg_sq", computes}}};
}

}  // namespace v0
}  // namespace tessera
