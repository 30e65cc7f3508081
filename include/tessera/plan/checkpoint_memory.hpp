// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of the host memory that a plan reserves for checkpoints.
#pragma once

#include <cstdint>

#include "tessera/plan/layout.hpp"

namespace tessera {
inline namespace v0 {

/// The host memory that a plan reserves for checkpoints. SaveStaging describes the staging buffer.
enum class CheckpointMemory : std::uint8_t {
  none,     ///< a save allocates its staging buffer outside the plan
  staging,  ///< the plan has the staging buffer; saves allocate nothing
  snapshot  ///< as `staging`, plus a copy of all state that the rank saves, so steps can run during a save
};

/// Saving and loading a checkpoint process a group of parameters in chunks of this many elements.
inline constexpr std::int64_t checkpoint_chunk = 16 * shard_alignment;

/// The layout of the staging buffer of a save. The buffer has three parts, which begin at the byte offsets
/// `elements`, `values` and `summed`. The part at `elements` holds a chunk in the format that it has in
/// memory. The part at `values` holds this chunk in fp32. The part at `summed` holds a piece of a file whose
/// checksum is computed. `bytes` is the size of the whole buffer.
struct SaveStaging {
  static constexpr std::int64_t elements = 0;
  static constexpr std::int64_t values = elements + 8 * checkpoint_chunk;
  static constexpr std::int64_t summed = values + 4 * checkpoint_chunk;
  static constexpr std::int64_t summed_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t bytes = summed + summed_bytes;
};

}  // namespace v0
}  // namespace tessera
