// SPDX-License-Identifier: Apache-2.0
// When steps and their phases ran, as a trace of train says it to programs that measure beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace cli {

/// What the traces that this build writes and reads say of themselves.
inline constexpr std::string_view marks_format = "tessera-trace", marks_clock = "CLOCK_MONOTONIC";
inline constexpr std::int64_t marks_version = 1;

/// The parts of a step that have marks: forward; backward, with what is computed again for it; the norm, the
/// decision on it and the update.
inline constexpr std::string_view phase_names[] = {"forward", "backward", "update"};
inline constexpr std::int64_t phase_count = 3;

/// The system's start that the clock counts from, by the kernel's name for it; empty where it gives none.
std::string boot_id();

/// A stretch of a step, in nanoseconds of CLOCK_MONOTONIC.
struct Mark {
  std::int64_t step = 0;
  int phase = -1;  ///< of phase_names; -1: the whole step
  std::int64_t begin = 0, end = 0;
};

/// Of one rank, each in order and apart.
struct Marks {
  int rank = 0, ranks = 0;
  std::vector<Mark> steps, phases;
};

/// The marks of a rank. Throws Error(data): not there, empty, damaged, foreign, of a newer version, of
/// another start of the machine, or without this rank.
Marks read_marks(std::filesystem::path const& path, int rank, std::string const& boot = boot_id());

}  // namespace cli
}  // namespace programs
