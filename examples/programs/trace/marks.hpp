// SPDX-License-Identifier: Apache-2.0
// Reads from a trace of train when steps and their phases ran, for programs that measure at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace cli {

/// The format, clock and version of the traces that this build writes and reads.
inline constexpr std::string_view marks_format = "tessera-trace", marks_clock = "CLOCK_MONOTONIC";
inline constexpr std::int64_t marks_version = 1;

/// The phases of a step. Backward includes recomputation. Update includes the gradient norm and the decision
/// whether to skip the update.
inline constexpr std::string_view phase_names[] = {"forward", "backward", "update"};
inline constexpr std::int64_t phase_count = 3;

/// Returns the kernel's id of the current boot, or "" if it is unavailable. Times of the monotonic clock are
/// comparable only within one boot.
std::string boot_id();

/// The span of time in which one step, or one phase of it, ran: nanoseconds of CLOCK_MONOTONIC.
struct Mark {
  std::int64_t step = 0;
  int phase = -1;  ///< index into phase_names; -1: the whole step
  std::int64_t begin = 0, end = 0;
};

/// The spans of time in which the steps and phases of one rank ran, sorted and without overlaps.
struct Marks {
  int rank = 0, ranks = 0;
  std::vector<Mark> steps, phases;
};

/// Reads the times of one rank from a trace file. Throws Error(data) if the file is missing, empty, damaged,
/// from another program, of a newer version, or from another boot, or if it lacks this rank.
Marks read_marks(std::filesystem::path const& path, int rank, std::string const& boot = boot_id());

}  // namespace cli
}  // namespace programs
