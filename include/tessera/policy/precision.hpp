// SPDX-License-Identifier: Apache-2.0
// Defines the slot `precision` and its policies. A slot is one decision about a run, and a policy makes it.
// This slot decides: the number formats of parameters, activations, gradients, transfers between ranks, sums
// and master weights.
#pragma once

#include "tessera/core/dtype.hpp"
#include "tessera/policy/slot.hpp"

namespace tessera {
inline namespace v0 {

namespace slot {
struct precision;
}

/// Precision<T> sets six number formats. With float, all six are fp32. With half and bfloat16, parameters,
/// activations, micro-batch gradients and transfers between ranks have 16 bits, and sums and master weights
/// are fp32. With tf32, bf16x6 and bf16x3, values are stored as fp32 and multiplied on tensor cores (CUDA
/// only). With double, all six are fp64, for gradient checks. Default: Precision<float>.
template <class T>
struct Precision {
  using policy_slot = slot::precision;
  using type = T;
  static constexpr bool valid = detail::one_of<T, float, tf32, bf16x6, bf16x3, half, bfloat16, double>;
  template <bool Ok>
  struct refusal {
    static_assert(
        Ok,
        "tessera: Precision<T> does not know this type. Models compute in one of seven formats. Write "
        "float, tessera::tf32, tessera::bf16x6, tessera::bf16x3, tessera::half, tessera::bfloat16 or "
        "double. See docs/policies/precision.md.");
  };
  static constexpr std::string_view name = name_of(dtype_of<T>);
  static constexpr void describe(RecipeTable& recipe) {
    constexpr DType stored = dtype_of<storage_t<T>>;
    constexpr DType summed = stored == DType::f64 ? DType::f64 : DType::f32;
    recipe.precision = dtype_of<T>;
    recipe.types = {.parameter = stored,
                    .activation = stored,
                    .micro_gradient = stored,
                    .wire = stored,
                    .accumulator = summed,
                    .master = summed};
  }
};

template <class P>
concept PrecisionPolicy = PolicyOf<P, slot::precision>;

struct slot::precision {
  static constexpr std::string_view title = "precision";
  static constexpr auto field = &SlotNames::precision;
  using choices = detail::list<Precision<float>, Precision<tf32>, Precision<bf16x6>, Precision<bf16x3>,
                               Precision<half>, Precision<bfloat16>, Precision<double>>;
  static constexpr std::string_view standard(RecipeTable const&) { return "fp32"; }
};

}  // namespace v0
}  // namespace tessera
