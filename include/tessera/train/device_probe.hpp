// SPDX-License-Identifier: Apache-2.0
// What a GPU reaches and what this process holds there, measured, for reports. Compiled in tessera::recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// FLOP/s of one large product on the first GPU, by the library's own product in a recipe's precision: the
/// best of five after two to warm up, on random values. Measured when it is first asked for, in some
/// milliseconds and up to 700 MB of the GPU, and remembered; any thread may ask. Nothing on the CPU, and
/// where it failed.
std::optional<double> product_rate(RecipeTable const& recipe);

/// Bytes of a GPU that the arenas of this process hold now; nothing in a library without that device.
std::optional<std::int64_t> allocated_bytes(Device device, int index);

}  // namespace v0
}  // namespace tessera
