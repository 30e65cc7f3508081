// SPDX-License-Identifier: Apache-2.0
// The host memory that checkpoints take, as a plan has it.
#pragma once

#include <cstdint>

#include "tessera/plan/layout.hpp"

namespace tessera {
inline namespace v0 {

/// What a plan has room for.
enum class CheckpointMemory : std::uint8_t {
  none,     ///< a save takes its staging beside the plan
  staging,  ///< saves take no memory beyond the plan
  snapshot  ///< and can go on beside steps, from a copy of all that the rank writes
};

/// Elements of a flat group that are on their way between a rank and a file at one time.
inline constexpr std::int64_t checkpoint_chunk = 16 * shard_alignment;

/// The staging of a save, one after another: elements as the host reads them, the same in fp32, and what is
/// summed of a file.
struct SaveStaging {
  static constexpr std::int64_t elements = 0;
  static constexpr std::int64_t values = elements + 8 * checkpoint_chunk;
  static constexpr std::int64_t summed = values + 4 * checkpoint_chunk;
  static constexpr std::int64_t summed_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t bytes = summed + summed_bytes;
};

}  // namespace v0
}  // namespace tessera
