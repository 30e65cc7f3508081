// SPDX-License-Identifier: Apache-2.0
// Defines how a recipe tells the operations which arithmetic to use, and how they report which attention ran.
#pragma once

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The arithmetic of the operations. `product` is the format of matrix products (tf32, bf16x6 and bf16x3
/// specify more than the type of the values).
struct Math {
  DType product = DType::f32;
  AttentionKind attention = AttentionKind::automatic;

  static constexpr Math of(RecipeTable const& recipe) { return {recipe.precision, recipe.attention}; }
  friend constexpr bool operator==(Math const&, Math const&) = default;
};

/// The part of a context that carries the arithmetic to the operations.
class MathChannel {
 public:
  explicit MathChannel(Math const& math) : math_(math) {}

  Math const& math() const noexcept { return math_; }
  /// The attention that ran; `automatic` if none has.
  AttentionKind attention_ran() const noexcept { return attention_ran_; }
  void ran(AttentionKind attention) noexcept { attention_ran_ = attention; }

 private:
  Math math_;
  AttentionKind attention_ran_ = AttentionKind::automatic;
};

}  // namespace v0
}  // namespace tessera
