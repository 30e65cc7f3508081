// SPDX-License-Identifier: Apache-2.0
// Plans the memory of one row of the result table of the program `plan`. A row is a recipe with a model, a
// batch and a sequence. The memory plan says how many bytes the row needs in each memory tier and category,
// whether it fits, and the largest batch and sequence that would fit.
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

/// A row (`point`: a recipe with a model, a batch and a sequence) and the result of its planning.
struct Planned {
  Point point;
  std::string status;  ///< fits, oom, refused or failed
  std::string reason;
  std::int64_t params = 0, trainable = 0;
  MemoryReport memory;       ///< the memory of rank 0, which needs the most
  Footprint footprint;       ///< the bytes of all ranks together
  Largest largest_batch;     ///< the largest batch that fits with the same recipe and sequence
  Largest longest_sequence;  ///< the longest sequence that fits with the same recipe and batch
  std::string schedule_hash;
  /// name of another row that has the same program (schedule and buffers) and whose memory plan this row
  /// copies; empty: none
  std::string same_program_as;
  cli::Prediction predicted;
  /// the predicted time of the step divided by the smallest one in the family of the row; nullopt without a
  /// prediction
  std::optional<double> slower;
  std::int64_t epoch_samples = 0;  ///< the number of samples in an epoch; 0: unknown

  bool fits() const { return status == "fits"; }
  /// Returns whether the row has memory figures. A row that was refused or that failed has none.
  bool is_planned() const { return fits() || status == "oom"; }
  /// Returns the policies that a flag asked for and that the name of the experiment lacks: " with recompute
  /// block"; "" if there are none.
  std::string unnamed() const;
  /// Returns the bytes of rank 0 in a memory tier. For the tier `host`, returns the sum over all tiers in
  /// host memory.
  std::int64_t on(Tier tier) const { return bytes_on(tier, memory.total); }
};

/// Plans one row, without the searches of `search_largest`. Allocates no memory for the model. If the row
/// cannot be planned, its status is "failed", with a reason.
Planned plan_point(Point const& point, TrainerOptions const& options, MemoryLimit const& limit);

/// Searches for the largest batch and the longest sequence of a row that is planned, and stores them in the
/// row. Each search runs for up to `search_time` seconds. Does nothing for a row that is not planned.
void search_largest(Planned& row, TrainerOptions const& options, MemoryLimit const& limit,
                    double search_time);

/// Returns the training step of a planned row as text, one line for each entry (a computation or a data
/// movement) that rank 0 runs.
std::string schedule_text(Point const& point, TrainerOptions const& options);

/// The numbers by which rows are sorted. Smaller numbers are better.
struct Sacrifices {
  int on_nvme = 0;     ///< kinds of state on NVMe
  int off_device = 0;  ///< kinds of state outside the device, on the host or on NVMe
  int copied = 0;      ///< kinds of state outside the device of which each of several ranks has a whole copy
  int recompute = 0;   ///< the kind of recomputation
  int stage = 0;       ///< the ZeRO stage; dp counts as 4, since only rank 0 updates, which is slowest
};
inline Sacrifices sacrifices_of(Planned const& row) {
  RecipeTable const& recipe = row.point.recipe;
  PlacementTable const& state = recipe.placement;
  Sacrifices of{.recompute = static_cast<int>(recipe.recompute),
                .stage = recipe.stage < 0 ? 4 : recipe.stage};
  for (Placement const& place : {state.parameters, state.gradients, state.master, state.moments}) {
    bool const off_device = place.tier != Tier::device;
    of.on_nvme += place.tier == Tier::nvme ? 1 : 0;
    of.off_device += off_device ? 1 : 0;
    of.copied += off_device && place.over == Sharding::replicated && row.point.world() > 1 ? 1 : 0;
  }
  return of;
}

/// Returns a key that sorts rows by their simplicity. A simpler row has a smaller key. The key compares first
/// how much state the row offloads, in the order none, cpu_optimizer, cpu_full and last the offloads to NVMe.
/// Next it compares how much the row recomputes, and last how far it shards.
inline auto simplicity(Planned const& row) {
  Sacrifices const of = sacrifices_of(row);
  return std::tuple{of.on_nvme, of.off_device, of.recompute, of.stage};
}

/// Returns the key by which a row is picked among rows that are equally good. It is the key of `simplicity`
/// with one more comparison after the offload: how many kinds of offloaded state each rank keeps as a whole
/// copy. With n ranks on a host, such state needs n times the memory of the host, and each rank updates all
/// of it. So among rows with the same offload, a row that shards this state comes before a row that does not.
inline auto given_up(Planned const& row) {
  Sacrifices const of = sacrifices_of(row);
  return std::tuple{of.on_nvme, of.off_device, of.copied, of.recompute, of.stage};
}

/// Returns the model, precision, adapters, ranks, batch and sequence of a row as text. Rows with equal texts
/// are a family; `pick` chooses one row of a family.
std::string family(Point const& point);

}  // namespace planning
}  // namespace programs
