// SPDX-License-Identifier: Apache-2.0
// Defines the slot `recompute` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: which activations the backward pass recomputes instead of keeping them.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct recompute;
}

struct Gelu;
struct Block;
struct Every;

/// Recompute<None> keeps all activations. <Gelu> drops the output of the activation function, which is cheap
/// to recompute. <Block> keeps only the input of each transformer block. It needs about a third more
/// computation. <Every> keeps only the input of every K-th block; K is a run-time value. A recomputed
/// activation equals the dropped activation bit for bit. Default: Recompute<None>.
template <class What>
struct Recompute {
  using policy_slot = slot::recompute;
  static constexpr bool valid = detail::one_of<What, None, Gelu, Block, Every>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Recompute<What> does not know this part. The backward pass can compute the activation "
        "function, each block, or every K-th group of blocks again. Write Recompute<None>, <Gelu>, <Block> "
        "or <Every>. See docs/policies/recompute.md.");
  };
  static constexpr RecomputeKind kind = std::is_same_v<What, Gelu>    ? RecomputeKind::gelu
                                        : std::is_same_v<What, Block> ? RecomputeKind::block
                                        : std::is_same_v<What, Every> ? RecomputeKind::every
                                                                      : RecomputeKind::none;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.recompute = kind; }
};

template <class P>
concept RecomputePolicy = PolicyOf<P, slot::recompute>;

struct slot::recompute {
  static constexpr std::string_view title = "recompute";
  static constexpr auto field = &SlotNames::recompute;
  using choices = detail::list<Recompute<None>, Recompute<Gelu>, Recompute<Block>, Recompute<Every>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "none"; }
};

}  // namespace v0
}  // namespace tessera
