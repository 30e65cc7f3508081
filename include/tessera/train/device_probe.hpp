// SPDX-License-Identifier: Apache-2.0
// Measures a GPU's matrix-product rate and the GPU memory that this process holds, for reports. Compiled in
// tessera::recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the rate of one large matrix product on the first GPU, in FLOP/s. Measures this library's own
/// matrix product in the recipe's precision, with random values. The rate is the best of five runs after two
/// warm-up runs. The first call needs some milliseconds and up to 700 MB of GPU memory; later calls return
/// the result of the first call. Any thread may call it. Returns nullopt for a recipe on the CPU or if the
/// measurement failed.
std::optional<double> product_rate(RecipeTable const& recipe);

/// Returns how many bytes of GPU number `index` this process holds now in its arenas (one allocation per
/// trainer). Returns nullopt if `device` is the CPU or this library was built without CUDA.
std::optional<std::int64_t> allocated_bytes(Device device, int index);

}  // namespace v0
}  // namespace tessera
