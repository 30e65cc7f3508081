// SPDX-License-Identifier: Apache-2.0
// The channel from a recipe to the operations: what it asks of their arithmetic, and what they then did.
#pragma once

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// How operations compute. `product` is the format in which matrices are multiplied (tf32, bf16x6 and bf16x3
/// say more than the type of the values does).
struct Math {
  DType product = DType::f32;
  AttentionKind attention = AttentionKind::automatic;

  static constexpr Math of(RecipeTable const& recipe) { return {recipe.precision, recipe.attention}; }
  friend constexpr bool operator==(Math const&, Math const&) = default;
};

/// The part of a context that operations read it from.
class MathChannel {
 public:
  explicit MathChannel(Math const& math) : math_(math) {}

  Math const& math() const noexcept { return math_; }
  /// The attention that ran; `automatic` where none has.
  AttentionKind attention_ran() const noexcept { return attention_ran_; }
  void ran(AttentionKind attention) noexcept { attention_ran_ = attention; }

 private:
  Math math_;
  AttentionKind attention_ran_ = AttentionKind::automatic;
};

}  // namespace v0
}  // namespace tessera
