// SPDX-License-Identifier: Apache-2.0
// Defines a reduction policy as a user would: sums have a fixed order, and micro-batch gradients are sent in
// the format T. The policy declares the formats that are valid, and the error message for all others.
#pragma once

#include "tessera/policy/reduction.hpp"

template <class T>
struct WideWire {
  using policy_slot = tessera::slot::reduction;
  static constexpr bool valid = std::is_same_v<T, float> || std::is_same_v<T, double>;
  template <bool Ok>
  struct refusal {
    static_assert(Ok,
                  "WideWire<T> carries micro-batch gradients in T, which must not be narrower than fp32. "
                  "Write WideWire<float> "
                  "or WideWire<double>.");
  };
  static constexpr std::string_view name = std::is_same_v<T, double> ? "wide64" : "wide32";
  static constexpr void describe(tessera::RecipeTable& recipe) {
    recipe.reduction = tessera::ReductionKind::ordered;
    recipe.types.wire = tessera::dtype_of<T>;
  }
};
