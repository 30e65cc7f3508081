// SPDX-License-Identifier: Apache-2.0
// Times collectives between the ranks of one host, for `info --measure`.
#pragma once

#include <vector>

#include "tessera/policy/table.hpp"

#include "prediction/collective_times.hpp"

namespace programs {
using namespace tessera;
namespace info {

/// Times each kind of collective in several sizes between `ranks` ranks on the device of `recipe`, and adds
/// the times to `times`. Nothing else runs on the devices. Adds nothing for one rank, and nothing on GPUs
/// that lack the memory for the largest size. Only the process of rank 0 gets times. Takes about a second
/// after the ranks have connected. Throws the errors of run_ranks.
void time_collectives(RecipeTable const& recipe, int ranks, cli::CollectiveTimes& times);

}  // namespace info
}  // namespace programs
