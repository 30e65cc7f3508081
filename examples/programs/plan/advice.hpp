// SPDX-License-Identifier: Apache-2.0
// Recommends one of the planned rows and describes what it gives up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planning.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// The criterion for the recommended row.
enum class Preference {
  simple,     ///< simplest policies: recomputing activations costs more than sharding, offload more than both
  speed,      ///< most predicted tokens per second
  memory,     ///< fewest bytes per rank on the device, or on the CPU in host memory, which is the same
  efficiency  ///< most predicted tokens per second for each of these bytes
};

/// Predictions that differ from the best one by less than this fraction count as equal, because they are no
/// more accurate.
inline constexpr double equal_share = 0.1;

/// Returns the row of one family that fits and best meets the preference. If several are within `equal_share`
/// of the best prediction, returns the simplest of them. If several use equal bytes on the device, returns
/// the one with the fewest bytes elsewhere. Returns null if no row fits, or if a prediction is needed and no
/// row has one.
Planned const* pick(std::vector<Planned> const& rows, std::string const& family, Preference preferred);

/// Same as `pick`, but works without predictions. If no fitting row has a predicted step, it returns the
/// simplest row that fits for speed, and the one with the fewest bytes for efficiency.
Planned const* pick_by_what_is_known(std::vector<Planned> const& rows, std::string const& family,
                                     Preference preferred);

/// Formats a recommended row: "zs2_bf16_ranks2_bs4_sl128, 23.1 MiB a rank and ..., 12,345 tok/s predicted".
std::string picked_text(Planned const& row);

/// Explains why a row is recommended. Compares it with the row that a published rule of thumb would choose,
/// and with the rows that other preferences would choose. Returns "" for Preference::simple.
std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred);

/// Returns the predicted tokens per second over all ranks, divided by the GiB that one rank uses. Returns
/// nullopt without a prediction.
std::optional<double> efficiency(Planned const& row);

}  // namespace planning
}  // namespace programs
