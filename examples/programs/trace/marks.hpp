// SPDX-License-Identifier: Apache-2.0
// Reads the times of training steps and of their phases from a trace that the program `train` wrote. With
// these times, the program `monitor` finds the step and the phase of each of its samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace cli {

/// The format, the clock and the version of the traces that this build writes and reads.
inline constexpr std::string_view marks_format = "tessera-trace", marks_clock = "CLOCK_MONOTONIC";
inline constexpr std::int64_t marks_version = 1;

/// The phases of a step. The phase backward includes recomputation. The phase update includes the gradient
/// norm and the decision whether to skip the update.
inline constexpr std::string_view phase_names[] = {"forward", "backward", "update"};
inline constexpr std::int64_t phase_count = 3;

/// Returns the kernel's id of the current boot, or "" if there is none. Times of CLOCK_MONOTONIC can be
/// compared only within one boot.
std::string boot_id();

/// The time in which one step, or one phase of a step, ran. Times are nanoseconds of CLOCK_MONOTONIC.
struct Mark {
  std::int64_t step = 0;
  int phase = -1;  ///< index into phase_names; -1: the whole step
  std::int64_t begin = 0, end = 0;
};

/// The times in which the steps and phases of one rank ran. Both lists are sorted and have no overlaps.
struct Marks {
  int rank = 0, ranks = 0;
  std::vector<Mark> steps, phases;
};

/// Returns the times of rank `rank` in a trace file. Throws Error(data) if the file is missing, empty,
/// damaged, from another program, of a newer version, or from another boot than `boot`, or if it has no times
/// of this rank.
Marks read_marks(std::filesystem::path const& path, int rank, std::string const& boot = boot_id());

}  // namespace cli
}  // namespace programs
