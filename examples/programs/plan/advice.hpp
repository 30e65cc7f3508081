// SPDX-License-Identifier: Apache-2.0
// Picks the planned row to use and describes what it gives up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planning.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// The preferred property of the row to use.
enum class Preference {
  simple,     ///< simplest policies: recomputing activations costs more than sharding, offload more than both
  speed,      ///< most predicted tokens per second
  memory,     ///< fewest bytes per rank on the device, or on the CPU in host memory, which is the same
  efficiency  ///< most predicted tokens per second for each of these bytes
};

/// Rows within this fraction of the best prediction count as equal, because predictions are no more accurate.
inline constexpr double equal_share = 0.1;

/// Picks the row to use within one family: the row that fits and best meets the preference. Rows within
/// `equal_share` of the best prediction tie; the simplest one wins. Rows with equal bytes on the device tie;
/// the one that takes the least elsewhere wins. Returns null if no row fits, or if a prediction is needed and
/// no row has one.
Planned const* pick(std::vector<Planned> const& rows, std::string const& family, Preference preferred);

/// Same as `pick`. If no fitting row has a predicted step, decides by bytes: for speed it returns the
/// simplest row that fits, for efficiency the one with the fewest bytes.
Planned const* pick_by_what_is_known(std::vector<Planned> const& rows, std::string const& family,
                                     Preference preferred);

/// Formats a pick: "zs2_bf16_ranks2_bs4_sl128, 23.1 MiB a rank and ..., 12,345 tok/s predicted".
std::string picked_text(Planned const& row);

/// Explains the pick: the published pattern that it follows or what that would take, and what it gives up
/// against the picks of other preferences. Empty for Preference::simple.
std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred);

/// Returns predicted tokens per second over all ranks for each GiB of a rank; nothing without a prediction.
std::optional<double> efficiency(Planned const& row);

}  // namespace planning
}  // namespace programs
