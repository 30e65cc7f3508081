// SPDX-License-Identifier: Apache-2.0
// Tests footprint(), the planned memory of all ranks of one host, and the searches for the largest batch and
// for the longest sequence whose plan fits into memory.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/report.hpp"

#include "support/runs.hpp"

namespace {

using namespace tessera;

StepShape const samples_of_96{.batch = 4, .sequence = 96};

}  // namespace

TEST_CASE("a footprint takes a share above 1 of limits that it is not within, by however little") {
  constexpr std::int64_t most = std::int64_t{1} << 60;  // as a double, 2^60 + 1 equals 2^60
  for (std::int64_t const more : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}}) {
    CAPTURE(more);
    CHECK((Footprint{.device = most + more}.share_of({.device = most}) > 1.0) == (more > 0));
    CHECK((Footprint{.device = 1, .host = most + more}.share_of({.device = 2, .host = most}) > 1.0) ==
          (more > 0));
    CHECK((Footprint{.nvme = more + 1}.share_of({.nvme = 0}) > 1.0) == (more >= 0));
  }
  CHECK(Footprint{.device = 3, .host = 1}.share_of({.device = 4, .host = 4}) == 0.75);
  CHECK(Footprint{.device = most}.share_of({}) < 1.0);
}

TEST_CASE("the bytes of a host count its own ranks only") {
  UnitLister const units = [](MicroBatch const& micro) { return Gpt2(support::tiny).units(micro); };
  StepShape shape{.batch = 2, .sequence = 64, .world = 4};
  for (std::string_view const sharding : {"dp", "zs2"}) {
    INFO(sharding);
    RecipeTable const table = support::recipe(sharding);
    auto const bytes_of = [&](int first, int host_ranks) {
      shape.host_first = first;
      shape.host_ranks = host_ranks;
      return footprint(units, table, shape).host;
    };
    std::int64_t const all = bytes_of(0, 0);
    CHECK(bytes_of(3, 4) == all);
    CHECK(bytes_of(0, 2) + bytes_of(2, 2) == all);
    CHECK(bytes_of(0, 1) + bytes_of(1, 3) == all);
    CHECK((bytes_of(0, 2) > bytes_of(2, 2)) == (sharding == "dp"));  // only rank 0 has the optimizer state
  }
}

TEST_CASE("searches end where the bytes, the search or the time does") {
  StepShape shape = samples_of_96;
  constexpr double fits = 0.5, too_big = std::numeric_limits<double>::infinity();
  int evaluations = 0;
  auto const within = [&](std::int64_t limit) {
    return [&evaluations, limit](StepShape const& other) {
      ++evaluations;
      return static_cast<double>(10 * other.batch + other.sequence) / static_cast<double>(limit);
    };
  };
  Deadline const later(3600.0), now(0.0);
  auto const batch = [&](double share, std::int64_t limit) {
    return largest_batch(shape, share, later, within(limit));
  };
  CHECK(batch(fits, 96 + 370).value == 37);
  CHECK(batch(fits, 96 + 379).text() == "37");
  CHECK(batch(fits, 96 + 40).value == 4);
  CHECK(batch(too_big, 96 + 30).value == 3);
  CHECK(batch(too_big, 96 + 9).value == 0);
  CHECK(batch(too_big, 96 + 9).exact);
  CHECK(batch(fits, 1 << 30).text() == "at least 65536");
  shape.sequence = 1 << 20;  // a micro-batch may have at most 2^28 tokens
  CHECK(batch(fits, std::int64_t{1} << 40).text() == "256");
  shape.sequence = 96;
  CHECK(longest_sequence(shape, fits, 1024, later, within(1 << 30)).text() == "1024");
  CHECK(longest_sequence(shape, fits, 1024, later, within(40 + 700)).text() == "700");
  CHECK(longest_sequence(shape, too_big, 1024, later, within(40 + 50)).text() == "50");
  evaluations = 0;
  CHECK(largest_batch(shape, fits, now, within(1 << 30)).text() == "at least 4");
  CHECK(evaluations == 0);
}

TEST_CASE("a search finds the last that fits, in a few tries where shares grow in proportion") {
  StepShape const shape = samples_of_96;
  constexpr double unknown = std::numeric_limits<double>::infinity();
  Deadline const later(3600.0);
  for (std::int64_t const last : {1, 3, 4, 5, 17, 1000, 65535}) {
    double const end = static_cast<double>(last) + 0.5;
    int evaluations = 0;
    auto const search = [&](auto const& share, bool knows) {
      evaluations = 0;
      auto const share_of = [&](StepShape const& other) {
        ++evaluations;
        return static_cast<double>(share(static_cast<double>(other.batch)));
      };
      double const here = share(static_cast<double>(shape.batch));
      return largest_batch(shape, here <= 1.0 || knows ? here : unknown, later, share_of).value;
    };
    for (bool const knows : {true, false}) {
      CAPTURE(last);
      CAPTURE(knows);
      CHECK(search([&](double at) { return (3.0 + at) / (3.0 + end); }, knows) == last);
      CHECK(evaluations <= 5);
      CHECK(search([&](double at) { return at <= end ? 0.0 : 9.0; }, knows) == last);
      CHECK(search([&](double at) { return at <= end ? 1.0 : unknown; }, knows) == last);
      CHECK(search([&](double at) { return std::pow(at / end, 8.0); }, knows) == last);
      CHECK(search([&](double at) { return std::pow(at / end, 0.1); }, knows) == last);
      CHECK(evaluations < 60);
    }
  }
}
