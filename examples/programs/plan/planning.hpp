// SPDX-License-Identifier: Apache-2.0
// The plan of one row: bytes by place and category, whether it fits, and what else would.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/plan/report.hpp"
#include "tessera/train/options.hpp"

#include "prediction/predict.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace planning {

using cli::Point;

/// A planned row.
struct Planned {
  Point point;
  std::string status;  ///< fits, oom, refused or failed
  std::string reason;
  std::int64_t params = 0, trainable = 0;
  MemoryReport memory;       ///< of rank 0, which holds the most
  Footprint footprint;       ///< of all ranks
  Largest largest_batch;     ///< that fits with the same recipe and sequence
  Largest longest_sequence;  ///< that fits with the same recipe and batch
  std::string schedule_hash;
  std::string same_program_as;  ///< the experiment with the same program, whose row is used; empty: none
  cli::Prediction predicted;

  bool fits() const { return status == "fits"; }
  /// Has bytes.
  bool is_planned() const { return fits() || status == "oom"; }
  /// Bytes of rank 0 on a tier; on `host`, of all tiers in host memory.
  std::int64_t on(Tier tier) const {
    std::int64_t bytes = 0;
    for (std::size_t at = 0; at < tier_count; ++at)
      if (Tier const other{static_cast<std::uint8_t>(at)};
          other == tier || (tier == Tier::host && in_host_memory(other)))
        bytes += memory.total[at];
    return bytes;
  }
};

/// Plans one row. Looks for the largest batch and the longest sequence too, for up to `search_time` seconds
/// each; 0 leaves both out. Allocates no memory of the model. A row that cannot be planned has failed, with
/// its reason.
Planned plan_point(Point const& point, TrainerOptions const& options, MemoryLimit const& limit,
                   double search_time);

/// The training step of a row that was planned, entry by entry, as rank 0 runs it.
std::string schedule_text(Point const& point, TrainerOptions const& options);

/// What a row costs beside memory, to be compared: offload costs the most, rebuilding activations less,
/// sharding the least.
inline auto given_up(Planned const& row) {
  RecipeTable const& recipe = row.point.recipe;
  int const stage = recipe.stage < 0 ? 4 : recipe.stage;  // dp: the root updates alone, the slowest
  return std::tuple{recipe.names.offload != "none", static_cast<int>(recipe.recompute), stage};
}

/// Model, precision and shape: what a pick is made within.
std::string family(Point const& point);

}  // namespace planning
}  // namespace programs
