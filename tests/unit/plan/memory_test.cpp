// SPDX-License-Identifier: Apache-2.0
// Tests plan_intervals(), which assigns offsets in one memory area to buffers with known lifetimes. Most
// lifetimes are random. Buffers that are in use at the same time must not share a byte. The total size must
// be small, and each call must give the same result. Another test checks the sort function that the library
// uses for plans.
#include "tessera/plan/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/detail/sort.hpp"

namespace {

using namespace tessera;

std::vector<Interval> random_intervals(std::uint32_t seed, int count, int times) {
  std::mt19937 bits(seed);
  std::vector<Interval> intervals;
  for (int i = 0; i < count; ++i) {
    Interval interval;
    interval.bytes = 1 + static_cast<std::int64_t>(bits() % (bits() % 4 == 0 ? 100000u : 3000u));
    interval.first = static_cast<int>(bits() % static_cast<std::uint32_t>(times));
    interval.last =
        // Some buffers are never in use.
        interval.first + static_cast<int>(bits() % 12u) - (bits() % 10u == 0 ? 40 : 0);
    intervals.push_back(interval);
  }
  return intervals;
}

bool overlap(IntervalPlan const& plan, std::vector<Interval> const& intervals, std::size_t a, std::size_t b) {
  return plan.offsets[a] < plan.offsets[b] + intervals[b].bytes &&
         plan.offsets[b] < plan.offsets[a] + intervals[a].bytes;
}

}  // namespace

TEST_CASE("planned intervals never share bytes while both live") {
  int shared = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    auto const intervals = random_intervals(seed, 3 + static_cast<int>(seed) * 3, 60);
    IntervalPlan const plan = plan_intervals(intervals);
    REQUIRE(plan.offsets.size() == intervals.size());
    std::int64_t end = 0;
    for (std::size_t a = 0; a < intervals.size(); ++a) {
      REQUIRE((plan.offsets[a] == -1) == !intervals[a].used());
      if (!intervals[a].used()) continue;
      REQUIRE(plan.offsets[a] >= 0);
      REQUIRE(plan.offsets[a] % arena_alignment == 0);
      end = std::max(end, round_up(plan.offsets[a] + intervals[a].bytes, arena_alignment));
      for (std::size_t b = 0; b < a; ++b) {
        if (!intervals[b].used()) continue;
        if (intervals[a].overlaps(intervals[b])) REQUIRE_FALSE(overlap(plan, intervals, a, b));
        shared += overlap(plan, intervals, a, b);
      }
    }
    CHECK(plan.bytes == end);
    std::int64_t const least = lower_bound_of(intervals);
    CHECK(plan.bytes >= least);
    // The planner processes large buffers first and uses the smallest gap that fits.
    CHECK(plan.bytes <= least + least / 2);
    IntervalPlan const again = plan_intervals(intervals);
    CHECK(again.offsets == plan.offsets);
  }
  CHECK(shared > 1000);  // many buffers do share memory
}

TEST_CASE("what lives several times shares bytes only where all lives are apart") {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    auto intervals = random_intervals(seed, 60, 60);
    auto const more = random_intervals(seed + 100, 60, 60);
    for (std::size_t i = 0; i < intervals.size(); i += 2)
      if (intervals[i].used() && more[i].used()) intervals[i].again = {{more[i].first, more[i].last}};
    IntervalPlan const plan = plan_intervals(intervals);
    CHECK(plan.bytes >= lower_bound_of(intervals));
    for (std::size_t a = 0; a < intervals.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (intervals[a].used() && intervals[b].used() && intervals[a].overlaps(intervals[b]))
          REQUIRE_FALSE(overlap(plan, intervals, a, b));
  }
  Interval const twice{1, 0, 1, {{6, 8}}}, between{1, 2, 5}, late{1, 8, 9};
  CHECK_FALSE(twice.overlaps(between));
  CHECK_FALSE(between.overlaps(twice));
  CHECK(twice.overlaps(late));
  CHECK(late.overlaps(twice));
  CHECK(lower_bound_of({{1000, 0, 1, {{6, 8}}}, {3000, 7, 7}}) == 4096);
}

TEST_CASE("the planner fills the tightest gap and needs no more than chains need") {
  // In this chain, each lifetime overlaps only with the previous and the next lifetime, so at most two
  // buffers are in use at once.
  std::vector<Interval> chain;
  for (int i = 0; i < 50; ++i) chain.push_back({1000, i, i + 1});
  CHECK(plan_intervals(chain).bytes == 2 * 1024);
  CHECK(lower_bound_of(chain) == 2 * 1024);
  // The last time of the first lifetime is the first time of the second lifetime. This single common time is
  // enough for an overlap.
  CHECK(Interval{1, 0, 3}.overlaps({1, 3, 5}));
  CHECK_FALSE(Interval{1, 0, 3}.overlaps({1, 4, 5}));
  CHECK(plan_intervals({}).bytes == 0);
  CHECK(plan_intervals({{500, 3, 2}}).bytes == 0);
  CHECK(plan_intervals({{500, 3, 2}}).offsets == std::vector<std::int64_t>{-1});
  CHECK(lower_bound_of({{500, 3, 2}}) == 0);
}

TEST_CASE("indices are sorted by what they stand for, and equal ones keep their order") {
  std::mt19937 bits(3);
  for (std::size_t count = 0; count < 70; ++count)
    for (unsigned const kinds : {1u, 4u, 1000u}) {
      std::vector<unsigned> keys(count);
      for (unsigned& key : keys) key = bits() % kinds;
      std::vector<std::size_t> expected(count);
      for (std::size_t index = 0; index < count; ++index) expected[index] = index;
      auto const before = [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; };
      std::stable_sort(expected.begin(), expected.end(), before);
      CHECK(detail::sorted_indices(count, before) == expected);
    }
}
