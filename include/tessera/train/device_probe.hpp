// SPDX-License-Identifier: Apache-2.0
// Measures a GPU's matrix-product rate, the times of collectives between GPUs and the GPU memory that this
// process holds, for reports. Compiled in tessera::recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the rate of one large matrix product on the first GPU, in FLOP/s. Measures this library's own
/// matrix product in the recipe's precision, with random values. The rate is the best of five runs after two
/// warm-up runs. The first call needs some milliseconds and up to 700 MB of GPU memory; later calls return
/// the result of the first call. Any thread may call it. Returns nullopt for a recipe on the CPU or if the
/// measurement failed.
std::optional<double> product_rate(RecipeTable const& recipe);

/// Returns the seconds of each collective between the GPUs of all ranks, with nothing else on the GPUs: the
/// median of seven rounds, each the mean of four calls. Only `move`, `bytes` (of one piece, see
/// comm::Transport::run), `root` and `dtype` of a request are used. All ranks must call this function
/// together, with equal requests. It waits for the GPUs, and allocates two buffers on each GPU that hold a
/// piece of each rank. Returns an empty list if a rank has too little memory, or if this library was built
/// without CUDA. Throws PeerLost if another rank is lost.
std::vector<double> device_collective_seconds(comm::Comm const& comm,
                                              std::span<comm::Request const> requests);

/// Returns how many bytes of GPU number `index` this process holds now in its arenas (one allocation per
/// trainer). Returns nullopt if `device` is the CPU or this library was built without CUDA.
std::optional<std::int64_t> allocated_bytes(Device device, int index);

}  // namespace v0
}  // namespace tessera
