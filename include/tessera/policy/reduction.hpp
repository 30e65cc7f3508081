// SPDX-License-Identifier: Apache-2.0
// Defines the slot `reduction` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: whether every floating-point sum of the step has a fixed order.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct reduction;
}

struct Fast;
struct Ordered;

/// Reduction<Ordered> computes every sum of the step in a fixed order. So weights, moments, losses and loss
/// scales do not depend, in any bit, on the ZeRO stage, the number of ranks, accumulation, bucket size,
/// overlap, capture, offload or the number of threads. The cost is an exchange of gradients for every
/// micro-batch. Reduction<Fast> lets libraries sum in any order. Default: Ordered on the CPU, Fast on CUDA.
template <class How>
struct Reduction {
  using policy_slot = slot::reduction;
  static constexpr bool valid = detail::one_of<How, Fast, Ordered>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Reduction<How> does not support this mode. The order of sums is either free or fixed to "
        "the bit. Write Reduction<Fast> or Reduction<Ordered>. See docs/policies/reduction.md.");
  };
  static constexpr ReductionKind kind =
      std::is_same_v<How, Ordered> ? ReductionKind::ordered : ReductionKind::fast;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.reduction = kind; }
};

template <class P>
concept ReductionPolicy = PolicyOf<P, slot::reduction>;

struct slot::reduction {
  static constexpr std::string_view title = "reduction";
  static constexpr auto field = &SlotNames::reduction;
  using choices = detail::list<Reduction<Fast>, Reduction<Ordered>>;
  static constexpr std::string_view standard(RecipeTable const& above) {
    return above.device == Device::cuda ? "fast" : "ordered";
  }
};

}  // namespace v0
}  // namespace tessera
