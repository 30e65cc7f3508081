// SPDX-License-Identifier: Apache-2.0
// Connects a program to the launcher that started it (torchrun, deepspeed, srun or mpirun). A launch is the
// set of processes that one launcher started, one for each rank. The program gets the number of ranks from
// the launcher and connects to the other processes. Only rank 0 prints.
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
  /// the folder for the files with the output of each rank; empty: only rank 0 prints
  std::filesystem::path log_ranks;
};

/// Makes `line` refuse the flags of launchers, such as --num_gpus, with a message that says where they
/// belong. `instead` is the advice for a user without a launcher.
void advise_on_launcher_flags(CommandLine& line, std::string const& instead);

/// Adds the flags --log-ranks and --local_rank to `line`. The values are stored in `flags`. Refuses flags of
/// the launcher. If a launcher started this program, the number of processes that it started becomes the
/// default of the flag --ranks. `line` must already have the flag --ranks. Throws Error(config) if
/// environment variables of the launcher contradict each other.
void add_launch_flags(CommandLine& line, LaunchFlags& flags);

/// Connects to the other processes of the launch. Does nothing if no launcher started the program. Afterwards
/// only rank 0 writes to the standard output. With --log-ranks, each rank instead writes its output and its
/// errors to a file. Throws Error(config) if the processes cannot connect, if --ranks contradicts the
/// launcher, or if ranks were started with different flags. Flags that each rank may choose, such as
/// --threads, can differ.
void join_launch(CommandLine const& line, LaunchFlags const& flags);

/// Returns the launch that this program has joined, or null.
std::shared_ptr<comm::Launch> const& joined_launch();
/// Returns whether this process prints and writes files: this is true for the process with rank 0, and for a
/// process that runs all ranks.
bool is_first_process();
/// Returns how many of the `ranks` ranks of the world run in this process: 1 in a launch, otherwise all.
int ranks_here(int ranks);

/// Returns how many ranks of the launch run on this host, or 0 if no launcher started the program.
int ranks_on_host();

/// Returns the value that `own` has on rank 0. All processes of the launch must call this function together,
/// and must not call it from inside `run_ranks`. Without a launch it returns `own`.
bool decided_by_first_process(bool own);

/// Tells the other ranks that this rank has failed with the message `text`. Returns whether this process
/// should print the message. The result is false if a lower rank fails with the same message and prints it. A
/// rank that did not find rank 0 always prints. If the ranks have not joined and another rank prints the
/// message, waits a second before it returns. Otherwise mpirun, which kills all ranks when one of them ends,
/// could kill the other rank before it has printed.
bool prints_failure(std::string_view text);
/// Writes the error message `text` to the file that torchrun names in TORCHELASTIC_ERROR_FILE. Does nothing
/// if this variable is not set.
void tell_launcher(std::string_view text);

}  // namespace cli
}  // namespace programs
