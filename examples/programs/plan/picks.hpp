// SPDX-License-Identifier: Apache-2.0
// Writes the recommendations of the program `plan`: one for each family of rows.
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/report.hpp"

#include "plan/advice.hpp"
#include "plan/planning.hpp"
#include "plan/settings.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// Returns for each family of rows the row that `plan` recommends, with reasons, the time of an epoch and a
/// hint how the training would fit without offload. If no row of a family fits, the text names the row
/// nearest to the limits, and the largest batch and sequence that fit.
std::string picks_text(std::vector<Planned> const& rows, MemoryLimit const& limit, Settings const& settings,
                       Preference preferred);

}  // namespace planning
}  // namespace programs
