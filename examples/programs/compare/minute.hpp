// SPDX-License-Identifier: Apache-2.0
// Chooses the rows and steps of a one-minute run. If a user starts the program `compare` without flags that
// select rows or steps, it trains only as many rows and steps as fit into 60 seconds. A row is one model and
// recipe with one batch, sequence and number of ranks.
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

/// The time limit of a one-minute run, in seconds.
inline constexpr double minute_s = 60.0;
/// The length of a one-minute run (a `compare` without flags that select rows or steps): the number of its
/// rows, and the steps of each row.
struct MinuteLength {
  std::size_t rows;
  std::int64_t warmup, steps;
  double seconds;  ///< the expected time of all rows
};

/// Returns the longest one-minute run that fits into `left_s` seconds, with at most `rows` rows. Each row
/// needs `start_s` seconds, and `step_s` seconds per step. The longest possible run has 5 warm-up steps and
/// 20 timed steps per row. If it does not fit, the function lowers its length until it fits: first the steps
/// of each row, down to 2 warm-up steps and 5 timed steps; next the number of rows, down to 6; next the
/// steps, down to 1 and 2; at last the number of rows, down to 2.
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

/// Returns the names of the flags that select rows or set the number of steps of each row.
cli::Names row_flags();
/// Returns whether the command line has a flag of `row_flags` or a file of flags (@FILE). If it has one,
/// `compare` does not limit itself to one minute.
bool says_rows(cli::CommandLine const& line, int argc, char const* const* argv);

/// Returns the rows of `points` that `compare` should train if it has only one minute, the most important
/// first. If --ranks gives several numbers of ranks, only rows with the largest number are returned.
std::vector<Point> minute_of(std::vector<Point> points, Settings const& settings);
/// Returns `settings` with 1 warm-up step and 2 timed steps. A training of this length shows how long a row
/// needs.
Settings probe_of(Settings settings);
/// Removes the last rows of `points` and reduces the steps in `settings`, until the trainings fit into one
/// minute. `began_s` is the number of seconds of this minute that have passed. `first` is the result of the
/// first row, trained with the settings of `probe_of`. Returns the expected seconds of all trainings.
double choose_minute(std::vector<Point>& points, Settings& settings, Measured const& first, double began_s);

/// Returns the message that `compare` prints at the end of a one-minute run. It names the rows and steps that
/// did not fit into the minute, and the number of recipes that no one-minute run contains. `requested` are
/// the rows before choose_minute removed some, `ran` is the number of rows that ran, and `all` is the number
/// of all recipes.
std::string left_out_text(Settings const& settings, std::vector<Point> const& requested, std::size_t ran,
                          std::size_t all, cli::Terminal const& terminal);
/// Returns a text with shell commands that a user may run next, after a one-minute run of `compare`. `report`
/// is the path of the HTML page of the run; empty if there is none. `program` and `given` are the name and
/// the flags with which the user started `compare`. `all` is the number of all recipes.
std::string next_text(Settings const& settings, std::filesystem::path const& report,
                      std::string const& program, std::string const& given,
                      std::vector<Measured> const& measured, std::size_t all);

}  // namespace compare
}  // namespace programs
