// SPDX-License-Identifier: Apache-2.0
// Assigns memory offsets to buffers, so that buffers with disjoint lifetimes share bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// The size and the lifetimes of a buffer. A lifetime is the range from a first to a last use, both included,
/// as positions in the schedule. A buffer may have several lifetimes.
struct Interval {
  std::int64_t bytes = 0;
  int first = 0;
  int last = -1;
  std::vector<int> again{};  ///< of each further lifetime: the first use, then the last use

  bool used() const { return last >= first; }
  /// The first form returns whether a lifetime of this buffer overlaps a lifetime of `other`. The second form
  /// returns whether a lifetime of this buffer overlaps the positions from `begin` to `end`.
  bool overlaps(Interval const& other) const {
    if (other.overlaps(first, last)) return true;
    for (std::size_t further = 0; further < again.size(); further += 2)
      if (other.overlaps(again[further], again[further + 1])) return true;
    return false;
  }
  bool overlaps(int begin, int end) const {
    if (first <= end && begin <= last) return true;
    for (std::size_t further = 0; further < again.size(); further += 2)
      if (again[further] <= end && begin <= again[further + 1]) return true;
    return false;
  }
};

/// The memory offsets that plan_intervals assigns.
struct IntervalPlan {
  std::vector<std::int64_t> offsets;  ///< one per interval; -1: the interval is never used
  std::int64_t bytes = 0;             ///< the size of the memory that holds all intervals
};

/// Assigns an offset to every interval, so that intervals that overlap in time do not overlap in memory.
/// Places the intervals in descending order of size. Each interval goes to the smallest gap that is large
/// enough, at a multiple of `alignment` bytes. If no gap is large enough, it goes behind the intervals with
/// which it overlaps in time. Deterministic; O(n^2) in the number of intervals.
inline IntervalPlan plan_intervals(std::vector<Interval> const& intervals,
                                   std::int64_t alignment = arena_alignment) {
  IntervalPlan plan{std::vector<std::int64_t>(intervals.size(), -1)};
  std::vector<std::size_t> order;
  for (std::size_t index = 0; index < intervals.size(); ++index)
    if (intervals[index].used()) order.push_back(index);
  detail::sort_indices(order, [&](std::size_t a, std::size_t b) {
    return intervals[a].bytes != intervals[b].bytes ? intervals[a].bytes > intervals[b].bytes : a < b;
  });

  bool once = true;
  for (Interval const& interval : intervals) once = once && interval.again.empty();
  struct Placed {
    std::int64_t offset, end;
    int first, last;
    Interval const* interval;
  };
  std::vector<Placed> placed(order.size());  // sorted by offset
  std::size_t count = 0;
  for (std::size_t const index : order) {
    Interval const& interval = intervals[index];
    std::int64_t const bytes = round_up(interval.bytes, arena_alignment);
    std::int64_t best = -1, best_gap = 0, cursor = 0;
    for (std::size_t at = 0; at < count; ++at) {
      Placed const& other = placed[at];
      if (once ? other.first > interval.last || interval.first > other.last
               : !interval.overlaps(*other.interval))
        continue;
      std::int64_t const gap = other.offset - cursor;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = cursor;
        best_gap = gap;
        if (gap == bytes) break;
      }
      cursor = std::max(cursor, round_up(other.end, alignment));
    }
    std::int64_t const offset = best < 0 ? cursor : best;
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    std::size_t at = count++;
    for (; at > 0 && placed[at - 1].offset >= offset; --at) placed[at] = placed[at - 1];
    placed[at] = {offset, offset + bytes, interval.first, interval.last, &interval};
  }
  return plan;
}

/// Returns the largest number of bytes in use at one time. No assignment of offsets can need fewer bytes.
inline std::int64_t lower_bound_of(std::vector<Interval> const& intervals) {
  std::int64_t largest = 0;
  auto const live_at = [&](int time) {
    std::int64_t live = 0;
    for (Interval const& other : intervals)
      if (other.used() && other.overlaps(time, time)) live += round_up(other.bytes, arena_alignment);
    return live;
  };
  for (Interval const& at : intervals) {
    if (!at.used()) continue;
    largest = std::max(largest, live_at(at.first));
    for (std::size_t further = 0; further < at.again.size(); further += 2)
      largest = std::max(largest, live_at(at.again[further]));
  }
  return largest;
}

}  // namespace v0
}  // namespace tessera
