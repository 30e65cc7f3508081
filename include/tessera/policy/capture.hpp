// SPDX-License-Identifier: Apache-2.0
// Defines the slot `capture` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: whether a step is launched operation by operation or as one CUDA graph.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct capture;
}

struct Eager;
struct Graph;

/// Capture<Graph> records the whole step, including host tasks and collectives, as a CUDA graph. It runs each
/// later step with one launch of this graph. Capture<Eager> enqueues each operation of every step. The
/// results of Graph and Eager are equal bit for bit. Default: Graph on CUDA, Eager on the CPU.
template <class How>
struct Capture {
  using policy_slot = slot::capture;
  static constexpr bool valid = detail::one_of<How, Eager, Graph>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Capture<How> does not support this mode. A step is enqueued operation by operation or "
        "replayed as one CUDA graph. Write Capture<Eager> or Capture<Graph>. See docs/policies/capture.md.");
  };
  static constexpr CaptureKind kind = std::is_same_v<How, Graph> ? CaptureKind::graph : CaptureKind::eager;
  static constexpr std::string_view name = name_of(kind);
  static constexpr void describe(RecipeTable& recipe) { recipe.capture = kind; }
};

template <class P>
concept CapturePolicy = PolicyOf<P, slot::capture>;

struct slot::capture {
  static constexpr std::string_view title = "capture";
  static constexpr auto field = &SlotNames::capture;
  using choices = detail::list<Capture<Eager>, Capture<Graph>>;
  static constexpr std::string_view standard(RecipeTable const& above) {
    return info_of(above.device).graphs ? "graph" : "eager";
  }
};

}  // namespace v0
}  // namespace tessera
