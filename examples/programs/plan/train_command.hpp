// SPDX-License-Identifier: Apache-2.0
// Writes the commands that train a row of the program `plan`.
#pragma once

#include <string>

#include "plan/planning.hpp"
#include "plan/settings.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// Returns the command that trains with the recipe, the model and the shape of `row`, and on the data of the
/// settings. This training needs the planned bytes. If the settings have data, samples or epochs, the command
/// trains the epochs that `plan` times, and one epoch if the settings have no number of them. In this case
/// the command has YOUR_TEXT as its data if the settings have none. If the ranks are on several hosts, the
/// command starts `train` with torchrun, and must run on each host, with the number of the host for I and the
/// name of host 0 for HOST.
std::string train_command(Planned const& row, Settings const& settings);

/// Returns the command that starts the training of `train_command` on all hosts of a SLURM cluster. It runs
/// in the folder of the repository.
std::string slurm_command(Planned const& row, Settings const& settings);

/// Returns a line that says what the user must replace in these commands; "" if they are complete.
std::string placeholders_text(Settings const& settings);

}  // namespace planning
}  // namespace programs
