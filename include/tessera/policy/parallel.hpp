// SPDX-License-Identifier: Apache-2.0
// Defines the slot `parallel` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: the kinds of parallelism (data, tensor, pipeline) that divide the ranks of a run.
#pragma once

#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct parallel;
}

/// The kinds of parallelism. Along Data, ranks compute different samples. Along Tensor, each rank has a part
/// of every matrix. Along Pipeline, each rank has a group of transformer blocks.
namespace axis {
struct Data;
struct Tensor;
struct Pipeline;
}  // namespace axis

template <class... Named>
struct Parallel;

namespace detail {

template <class Axis, class... Named>
inline constexpr int times_named = (0 + ... + static_cast<int>(std::is_same_v<Axis, Named>));

template <bool HasTensor, bool HasPipeline>
struct mesh;
template <>
struct mesh<false, false> {
  using type = Parallel<axis::Data>;
  static constexpr std::string_view name = "data";
};
template <>
struct mesh<true, false> {
  using type = Parallel<axis::Data, axis::Tensor>;
  static constexpr std::string_view name = "data+tensor";
};
template <>
struct mesh<false, true> {
  using type = Parallel<axis::Data, axis::Pipeline>;
  static constexpr std::string_view name = "data+pipeline";
};
template <>
struct mesh<true, true> {
  using type = Parallel<axis::Data, axis::Tensor, axis::Pipeline>;
  static constexpr std::string_view name = "data+tensor+pipeline";
};

}  // namespace detail

/// Parallel<axis::Data, axis::Tensor, axis::Pipeline> names the kinds of parallelism of a run, in any order.
/// The number of ranks along each axis is a run-time value. A run always has the data axis, even if the type
/// does not name it. Default: Parallel<axis::Data>.
template <class... Named>
struct Parallel {
  using policy_slot = slot::parallel;
  static constexpr bool has_tensor = detail::times_named<axis::Tensor, Named...> > 0;
  static constexpr bool has_pipeline = detail::times_named<axis::Pipeline, Named...> > 0;
  using canonical = typename detail::mesh<has_tensor, has_pipeline>::type;
  static constexpr bool valid = (detail::one_of<Named, axis::Data, axis::Tensor, axis::Pipeline> && ...) &&
                                ((detail::times_named<Named, Named...> == 1) && ...);
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Parallel<...> has an unknown or repeated axis. It takes each axis of the mesh at most "
        "once, without a size. Write Parallel<axis::Data, axis::Tensor, axis::Pipeline> or fewer of "
        "them. See docs/policies/parallel.md.");
  };
  static constexpr std::string_view name = detail::mesh<has_tensor, has_pipeline>::name;
  static constexpr void describe(RecipeTable& recipe) {
    recipe.axes = {.tensor = has_tensor, .pipeline = has_pipeline};
  }
};

template <class P>
concept ParallelPolicy = PolicyOf<P, slot::parallel>;

struct slot::parallel {
  static constexpr std::string_view title = "parallel";
  static constexpr auto field = &SlotNames::parallel;
  using choices =
      detail::list<Parallel<axis::Data>, Parallel<axis::Data, axis::Tensor>,
                   Parallel<axis::Data, axis::Pipeline>, Parallel<axis::Data, axis::Tensor, axis::Pipeline>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "data"; }
};

}  // namespace v0
}  // namespace tessera
