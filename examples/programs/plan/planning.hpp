// SPDX-License-Identifier: Apache-2.0
// Plans one row (a recipe with a model, batch and sequence): its bytes by memory tier and category, whether
// it fits, and the largest batch and sequence that would fit.
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
  Footprint footprint;       ///< sum over all ranks
  Largest largest_batch;     ///< largest that fits with the same recipe and sequence
  Largest longest_sequence;  ///< longest that fits with the same recipe and batch
  std::string schedule_hash;
  std::string same_program_as;  ///< experiment with the same program, whose row is used; empty: none
  cli::Prediction predicted;

  bool fits() const { return status == "fits"; }
  /// Returns whether the row has memory figures. A row that was refused or failed has none.
  bool is_planned() const { return fits() || status == "oom"; }
  /// Returns the bytes of rank 0 on a tier; for `host`, the sum over all tiers in host memory.
  std::int64_t on(Tier tier) const {
    std::int64_t bytes = 0;
    for (std::size_t at = 0; at < tier_count; ++at)
      if (Tier const other{static_cast<std::uint8_t>(at)};
          other == tier || (tier == Tier::host && in_host_memory(other)))
        bytes += memory.total[at];
    return bytes;
  }
};

/// Plans one row. Also searches for the largest batch and the longest sequence, for up to `search_time`
/// seconds each; 0 skips both. Allocates no memory for the model. A row that cannot be planned gets the
/// status failed and a reason.
Planned plan_point(Point const& point, TrainerOptions const& options, MemoryLimit const& limit,
                   double search_time);

/// Returns the training step of a planned row, entry by entry, as rank 0 runs it.
std::string schedule_text(Point const& point, TrainerOptions const& options);

/// Returns a sort key for what a row gives up to save memory: first whether it offloads, then how much it
/// recomputes, then how far it shards. A smaller key gives up less.
inline auto given_up(Planned const& row) {
  RecipeTable const& recipe = row.point.recipe;
  int const stage = recipe.stage < 0 ? 4 : recipe.stage;  // dp: only the root updates, which is slowest
  return std::tuple{recipe.names.offload != "none", static_cast<int>(recipe.recompute), stage};
}

/// Returns the model, precision and shape of a row as text. Rows with equal text form a family, and `pick`
/// chooses one row of a family.
std::string family(Point const& point);

}  // namespace planning
}  // namespace programs
