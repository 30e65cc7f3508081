// SPDX-License-Identifier: Apache-2.0
// Makes a program one process of a launch: it gets its number of ranks from the launcher, meets the other
// processes, and only rank 0 prints.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/comm/launch.hpp"

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

struct LaunchFlags {
  std::filesystem::path log_ranks;  ///< the folder for what each rank prints; empty: only rank 0 prints
};

/// Declares the flags of programs that a launcher can start. The launcher's number of ranks becomes the
/// default of --ranks. `line` must have this flag. Throws Error(config) if the launcher's variables
/// contradict each other.
void add_launch_flags(CommandLine& line, LaunchFlags& flags);

/// Meets the other processes of the launch, if there is a launcher. On the other ranks, standard output then
/// goes to a file or is dropped. Throws Error(config) if the processes do not meet, or if --ranks contradicts
/// the launcher.
void join_launch(CommandLine const& line, LaunchFlags const& flags);

/// Returns the launch that this program has joined, or null.
std::shared_ptr<comm::Launch> const& joined_launch();
/// Returns whether this process prints and writes files: it runs rank 0, or all ranks.
bool is_first_process();
/// Returns how many of the ranks this process runs.
int ranks_here(int ranks);

/// Returns the decision of rank 0, which all processes of a launch call for together, between runs.
bool decided_by_first_process(bool own);

/// Tells the other ranks that this one has failed. Returns whether this process should print the text: no
/// lower rank prints the same one.
bool prints_failure(std::string_view text);
/// Writes the text where the launcher looks for it (torchrun: TORCHELASTIC_ERROR_FILE).
void tell_launcher(std::string_view text);

}  // namespace cli
}  // namespace programs
