// SPDX-License-Identifier: Apache-2.0
// Which of the planned rows to use, and what that gives up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planning.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// What the row to use should have.
enum class Preference {
  simple,     ///< few policies: rebuilding activations costs more than sharding, offload more than both
  speed,      ///< the most tokens a second, as predicted
  memory,     ///< the fewest bytes of a rank's device; on the CPU the host's, which are the same, among them
  efficiency  ///< the most predicted tokens a second for each of these bytes
};

/// Of the best prediction, what is taken as equal to it: predictions are no better than that.
inline constexpr double equal_share = 0.1;

/// The row to use among those of one family: it fits, and has the most of what is preferred; of rows within
/// `equal_share` of the best prediction the simplest, of rows with equal bytes on the device the one that
/// takes the least elsewhere. Nothing when none fits, or no step is predicted where that matters.
Planned const* pick(std::vector<Planned> const& rows, std::string const& family, Preference preferred);

/// Same as `pick`. If no fitting row has a predicted step, decides by bytes: for speed it returns the
/// simplest row that fits, for efficiency the one with the fewest bytes.
Planned const* pick_by_what_is_known(std::vector<Planned> const& rows, std::string const& family,
                                     Preference preferred);

/// "zs2_bf16_ranks2_bs4_sl128, 23.1 MiB a rank and ..., 12,345 tok/s predicted".
std::string picked_text(Planned const& row);

/// The pick as lines for people: which published pattern it follows or what that would take, and what it
/// gives up against the picks of other preferences. Empty for Preference::simple.
std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred);

/// Predicted tokens a second of all ranks for each GiB of a rank; nothing where none are predicted.
std::optional<double> efficiency(Planned const& row);

}  // namespace planning
}  // namespace programs
