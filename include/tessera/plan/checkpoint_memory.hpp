// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of the host memory that a plan reserves for checkpoints.
#pragma once

#include <cstdint>

#include "tessera/plan/layout.hpp"

namespace tessera {
inline namespace v0 {

/// The host memory that a plan reserves for checkpoints.
enum class CheckpointMemory : std::uint8_t {
  none,     ///< a save allocates its staging buffer outside the plan
  staging,  ///< the plan has the staging buffer; saves allocate nothing
  snapshot  ///< also a copy of all state that the rank writes, so that steps can run during a save
};

/// Saving and loading a checkpoint process a group of parameters in chunks of this many elements.
inline constexpr std::int64_t checkpoint_chunk = 16 * shard_alignment;

/// Byte offsets in the staging buffer of a save: `elements` holds a chunk as it is stored in memory, `values`
/// holds the same chunk in fp32, and `summed` holds the part of a file whose checksum is computed.
struct SaveStaging {
  static constexpr std::int64_t elements = 0;
  static constexpr std::int64_t values = elements + 8 * checkpoint_chunk;
  static constexpr std::int64_t summed = values + 4 * checkpoint_chunk;
  static constexpr std::int64_t summed_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t bytes = summed + summed_bytes;
};

}  // namespace v0
}  // namespace tessera
