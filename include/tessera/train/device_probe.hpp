// SPDX-License-Identifier: Apache-2.0
// Measures a GPU's product rate and the memory that this process holds there, for reports. Compiled in
// tessera::recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Measures the rate of one large matrix product on the first GPU, in FLOP/s, with the library's own product
/// in the recipe's precision. Takes the best of five runs after two warm-up runs, on random values. The first
/// call takes some milliseconds and up to 700 MB of the GPU; later calls return the same result. Any thread
/// may call it. Returns nullopt on the CPU or if the measurement failed.
std::optional<double> product_rate(RecipeTable const& recipe);

/// Bytes of a GPU that the arenas of this process hold now; nullopt if this library lacks the device.
std::optional<std::int64_t> allocated_bytes(Device device, int index);

}  // namespace v0
}  // namespace tessera
