// SPDX-License-Identifier: Apache-2.0
// Tests the length of the one-minute run.
#include "compare/minute.hpp"

#include <string>

#include <doctest/doctest.h>

namespace compare = tessera::compare;

TEST_CASE("a first minute has as many rows and steps as fit") {
  auto const text = [](double start_s, double step_s, double left_s) {
    auto const length = compare::minute_length(8, start_s, step_s, left_s);
    return std::to_string(length.rows) + " x " + std::to_string(length.warmup) + " + " +
           std::to_string(length.steps) + (length.seconds <= left_s ? "" : ", too long");
  };
  CHECK(text(0.1, 0.04, 58) == "8 x 5 + 20");
  CHECK(text(0.1, 0.4, 58) == "8 x 5 + 12");
  CHECK(text(0.1, 0.6, 58) == "8 x 2 + 9");
  CHECK(text(0.1, 1.0, 58) == "8 x 2 + 5");
  CHECK(text(0.1, 1.2, 58) == "6 x 2 + 5");
  CHECK(text(0.1, 2.5, 58) == "6 x 1 + 2");
  CHECK(text(0.1, 6.0, 58) == "3 x 1 + 2");
  CHECK(text(0.1, 60.0, 58) == "2 x 1 + 2, too long");
}
