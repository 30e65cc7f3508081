// SPDX-License-Identifier: Apache-2.0
// Chooses the rows and steps of a one-minute run. This is a run of `compare` without flags that select rows
// or steps.
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
/// The number of rows of a one-minute run, and the steps of each row.
struct MinuteLength {
  std::size_t rows;
  std::int64_t warmup, steps;
  double seconds;  ///< the expected time of all rows
};

/// Returns the longest run that fits into `left_s` seconds, with at most `rows` rows. Each row needs
/// `start_s` seconds, and `step_s` seconds per step. The longest possible run has 5 warm-up steps and 20
/// timed steps per row. If this run does not fit, the function reduces first the steps, then the rows, then
/// both further.
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
/// Returns whether the command line has a flag of `row_flags` or a file of flags (@FILE). Then the run is not
/// a one-minute run.
bool says_rows(cli::CommandLine const& line, int argc, char const* const* argv);

/// Returns the rows of `points` that a one-minute run should measure, the most important first. They use all
/// ranks.
std::vector<Point> minute_of(std::vector<Point> points, Settings const& settings);
/// Returns the settings with 1 warm-up step and 2 timed steps. Such a short run shows how long a row needs.
Settings probe_of(Settings settings);
/// Shortens `points` and the steps in `settings` until the run fits into the minute. `began_s` is the number
/// of seconds of the minute that have passed. `first` is the first row, measured with the settings of
/// `probe_of`. Returns the expected seconds of the run.
double choose_minute(std::vector<Point>& points, Settings& settings, Measured const& first, double began_s);

/// Returns a message for the end of a one-minute run: the rows and steps that did not fit, and the number of
/// recipes that no one-minute run contains. `requested` are the rows before choose_minute, `ran` is the
/// number of rows that ran, and `all` is the number of all recipes.
std::string left_out_text(Settings const& settings, std::vector<Point> const& requested, std::size_t ran,
                          std::size_t all, cli::Terminal const& terminal);
/// Returns a text with shell commands that a user may run after a one-minute run. `report` is the path of the
/// run's HTML page; empty if there is none. `program` and `given` are the name and the flags of the run, and
/// `all` is the number of all recipes.
std::string next_text(Settings const& settings, std::filesystem::path const& report,
                      std::string const& program, std::string const& given,
                      std::vector<Measured> const& measured, std::size_t all);

}  // namespace compare
}  // namespace programs
