// SPDX-License-Identifier: Apache-2.0
// Chooses the recipes and steps of `compare` without flags so that they fit into a minute.
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

/// The time limit in seconds, from the start of the program to its end.
inline constexpr double minute_s = 60.0;
/// The number of rows, and the steps of each row.
struct MinuteLength {
  std::size_t rows;
  std::int64_t warmup, steps;
  double seconds;  ///< the expected time
};

/// Returns the longest run of at most `rows` rows that fits into `left_s` seconds. A row takes `start_s`, and
/// `step_s` for each step. Prefers all rows with up to 20 timed steps, then fewer rows, then fewer steps.
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

/// Returns the flags that select rows or set their length.
cli::Names row_flags();
/// Checks whether the command line has one of the row flags or a file of flags.
bool says_rows(cli::CommandLine const& line, int argc, char const* const* argv);

/// Returns the rows of a one-minute run on all ranks, ordered by importance.
std::vector<Point> minute_of(std::vector<Point> points, Settings const& settings);
/// Returns the settings of the short probe run that shows how long a row takes.
Settings probe_of(Settings settings);
/// Reduces the rows and steps to those that fit into the minute, of which `began_s` have passed. `first` is
/// the first row, measured with `probe_of`. Returns the expected seconds.
double choose_minute(std::vector<Point>& points, Settings& settings, Measured const& first, double began_s);

/// Names the rows and steps that did not fit into the minute, and counts the other recipes.
std::string left_out_text(Settings const& settings, std::vector<Point> const& wanted, std::size_t ran,
                          std::size_t all, cli::Terminal const& terminal);
/// Returns shell commands to try after a one-minute run. `report` is the path of its page, or empty. `given`
/// holds its flags.
std::string next_text(Settings const& settings, std::filesystem::path const& report,
                      std::string const& program, std::string const& given,
                      std::vector<Measured> const& measured, std::size_t all);

}  // namespace compare
}  // namespace programs
