// SPDX-License-Identifier: Apache-2.0
// Defines Math, the arithmetic that a recipe selects, and MathChannel. Through MathChannel, operations learn
// which arithmetic to use, and report which implementation of attention ran.
#pragma once

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The arithmetic of the operations. `product` is the format in which matrix products are computed. This
/// format may differ from the type of the tensors: tf32, bf16x6 and bf16x3 multiply fp32 tensors.
/// `attention` is the requested implementation of attention.
struct Math {
  DType product = DType::f32;
  AttentionKind attention = AttentionKind::automatic;

  static constexpr Math of(RecipeTable const& recipe) { return {recipe.precision, recipe.attention}; }
  friend constexpr bool operator==(Math const&, Math const&) = default;
};

/// Base class of Context<Place>, which every operation receives. It tells the operations which arithmetic to
/// use, and stores which implementation of attention ran last.
class MathChannel {
 public:
  explicit MathChannel(Math const& math) : math_(math) {}

  Math const& math() const noexcept { return math_; }
  /// Returns the attention implementation that ran last, or `automatic` if none has run.
  AttentionKind attention_ran() const noexcept { return attention_ran_; }
  void ran(AttentionKind attention) noexcept { attention_ran_ = attention; }

 private:
  Math math_;
  AttentionKind attention_ran_ = AttentionKind::automatic;
};

}  // namespace v0
}  // namespace tessera
