// SPDX-License-Identifier: Apache-2.0
// Defines the slot `attention` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: the implementation that computes softmax(QK^T)V.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct attention;
}

struct Auto;
struct Reference;
struct Fused;
struct Cudnn;

/// Attention<Reference> is the plain algorithm, which runs everywhere and uses no tensor cores. <Fused> is
/// this library's own kernel. It never stores the T*T scores and is deterministic. On the CPU, Reference and
/// Fused are one kernel. <Cudnn> calls cuDNN, for 16-bit formats on CUDA only. <Auto> chooses the best
/// implementation that the other policies, the build and the device allow. The results of a run name the
/// implementation that was used. Default: Attention<Auto>.
template <class How>
struct Attention {
  using policy_slot = slot::attention;
  static constexpr bool valid = detail::one_of<How, Auto, Reference, Fused, Cudnn>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Attention<How> does not know this implementation. There are three, and Auto picks among "
        "them. Write Attention<Auto>, <Reference>, <Fused> or <Cudnn>. See docs/policies/attention.md.");
  };
  static constexpr AttentionKind kind = std::is_same_v<How, Reference> ? AttentionKind::reference
                                        : std::is_same_v<How, Fused>   ? AttentionKind::fused
                                        : std::is_same_v<How, Cudnn>   ? AttentionKind::cudnn
                                                                       : AttentionKind::automatic;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.attention = kind; }
};

template <class P>
concept AttentionPolicy = PolicyOf<P, slot::attention>;

struct slot::attention {
  static constexpr std::string_view title = "attention";
  static constexpr auto field = &SlotNames::attention;
  using choices = detail::list<Attention<Auto>, Attention<Reference>, Attention<Fused>, Attention<Cudnn>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "auto"; }
};

}  // namespace v0
}  // namespace tessera
