// SPDX-License-Identifier: Apache-2.0
// Describes the host memory that a plan reserves for checkpoints.
#pragma once

#include <cstdint>

#include "tessera/plan/layout.hpp"

namespace tessera {
inline namespace v0 {

/// The checkpoint memory of a plan.
enum class CheckpointMemory : std::uint8_t {
  none,     ///< a save allocates its staging buffer outside the plan
  staging,  ///< the plan has the staging buffer; saves allocate nothing
  snapshot  ///< also a copy of all that the rank writes, so that a save can go on while steps run
};

/// The elements of a flat group that move between a rank and a file at one time.
inline constexpr std::int64_t checkpoint_chunk = 16 * shard_alignment;

/// Byte offsets in the staging buffer of a save: `elements` holds a chunk as the host reads it, `values`
/// holds the same chunk in fp32, and `summed` holds bytes of a file for its checksum.
struct SaveStaging {
  static constexpr std::int64_t elements = 0;
  static constexpr std::int64_t values = elements + 8 * checkpoint_chunk;
  static constexpr std::int64_t summed = values + 4 * checkpoint_chunk;
  static constexpr std::int64_t summed_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t bytes = summed + summed_bytes;
};

}  // namespace v0
}  // namespace tessera
