// SPDX-License-Identifier: Apache-2.0
// Chooses the recipes and steps of `compare` without flags so that the program ends within a minute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "compare/measure.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// The time limit of the whole program, in seconds.
inline constexpr double minute_s = 60.0;
/// The number of rows, and the steps of each row.
struct MinuteLength {
  std::size_t rows;
  std::int64_t warmup, steps;
  double seconds;  ///< the expected time
};

/// Returns the longest run that fits into `left_s` seconds, with at most `rows` rows. Each row needs
/// `start_s` seconds plus `step_s` per step. Starts with 5 warm-up steps and 20 timed steps per row. Reduces
/// the steps first, then the rows, then both further.
inline MinuteLength minute_length(std::size_t rows, double start_s, double step_s, double left_s) {
  MinuteLength length{rows, 5, 20, 0.0};
  auto const fits = [&] {
    length.seconds = static_cast<double>(length.rows) *
                     (start_s + static_cast<double>(length.warmup + length.steps) * step_s);
    return length.seconds <= left_s;
  };
  auto const lower = [&](auto& value, auto least) {
    while (!fits() && value > least) --value;
  };
  constexpr std::size_t few = 6;
  constexpr std::int64_t five = 5, two = 2;
  lower(length.steps, std::int64_t{10});
  lower(length.warmup, two);
  lower(length.steps, five);
  lower(length.rows, std::min(rows, few));
  lower(length.warmup, std::int64_t{1});
  lower(length.steps, two);
  lower(length.rows, std::size_t{2});
  return length;
}

/// Returns the flags that select rows or set the number of their steps.
cli::Names row_flags();
/// Returns whether the command line has a flag of `row_flags` or names a file of flags.
bool says_rows(cli::CommandLine const& line, int argc, char const* const* argv);

/// Returns the candidate rows of a one-minute run on all ranks, the most important first.
std::vector<Point> minute_of(std::vector<Point> points, Settings const& settings);
/// Returns settings for a short run of one row, which shows how long a row takes.
Settings probe_of(Settings settings);
/// Removes rows and steps that would not fit into the minute. `began_s` seconds of it have passed. `first` is
/// the first row, measured with the settings of `probe_of`. Returns the seconds that the remaining run is
/// expected to take.
double choose_minute(std::vector<Point>& points, Settings& settings, Measured const& first, double began_s);

/// Returns a message that names the rows and steps that did not fit into the minute, and the number of other
/// recipes.
std::string left_out_text(Settings const& settings, std::vector<Point> const& requested, std::size_t ran,
                          std::size_t all, cli::Terminal const& terminal);
/// Returns shell commands that a user may try after a one-minute run. `report` is the path of the run's HTML
/// page, or empty. `given` holds the flags of the run.
std::string next_text(Settings const& settings, std::filesystem::path const& report,
                      std::string const& program, std::string const& given,
                      std::vector<Measured> const& measured, std::size_t all);

}  // namespace compare
}  // namespace programs
