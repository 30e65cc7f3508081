// SPDX-License-Identifier: Apache-2.0
// Tests which steps get a printed line in the program `train`, and its estimate of the time left.
#include "train/step_lines.hpp"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace ts = tessera;
namespace cli = programs::cli;

namespace {

/// Returns the steps up to `last` that get a line.
std::vector<std::int64_t> printed(cli::StepLinesOptions const& options, std::int64_t last) {
  cli::StepLines lines(options);
  std::vector<std::int64_t> steps;
  for (std::int64_t step = options.first + 1; step <= last; ++step) {
    ts::StepReport report;
    report.step = step;
    if (lines.add(report)) steps.push_back(step);
    CHECK(lines.time_left() == "");  // the steps take no time
  }
  return steps;
}

}  // namespace

TEST_CASE("the time left of a run is estimated from three steps and three seconds on") {
  CHECK(*cli::seconds_left(4, 8.0, 10) == doctest::Approx(20.0));
  CHECK_FALSE(cli::seconds_left(2, 100.0, 10));
  CHECK_FALSE(cli::seconds_left(1000, 2.9, 10));
  CHECK_FALSE(cli::seconds_left(4, 8.0, 0));
}

TEST_CASE(
    "train prints its first ten steps and about a hundred further ones, or the steps of --print-every") {
  using Steps = std::vector<std::int64_t>;
  CHECK(printed({.last = 12}, 12).size() == 12);
  CHECK(printed({.last = 1000}, 40) == Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40});
  CHECK(printed({.first = 20, .last = 1005}, 40) == Steps{30, 40});
  CHECK(printed({.last = 1000, .bar = true}, 100) == Steps{1, 50, 100});
  CHECK(printed({.last = 11, .every = 4}, 11) == Steps{4, 8, 11});
  CHECK(printed({.last = 3, .extended = true}, 9) == Steps{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(printed({.last = 3, .extended = true}, 30).size() == 10);  // then a line per second
}
