// SPDX-License-Identifier: Apache-2.0
// Provides the second stage of sums over whole arrays: it adds the sums of blocks in a fixed order, which is
// the same on the CPU and on the GPU.
#pragma once

#include <cstdint>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// The number of lanes. A lane is a partial sum in double. Each lane adds every 256th block in order. At the
/// end, the lanes are added pairwise. So the result depends only on the blocks, and not on threads or ranks.
inline constexpr int sum_lanes = 256;
static_assert((sum_lanes & (sum_lanes - 1)) == 0);

/// Returns `sum` plus the values number `first`, first + 256, first + 512, ... of an array of `count` values,
/// added in this order, in double.
template <class Q>
TESSERA_HOST_DEVICE inline double add_lane(double sum, Q const* values, std::int64_t count,
                                           std::int64_t first) {
  constexpr int at_once = 8;  // number of loads that start before the first value is added
  for (; first < count; first += at_once * sum_lanes) {
    Q loaded[at_once];
    for (int i = 0; i < at_once; ++i) {
      std::int64_t const at = first + i * sum_lanes;
      loaded[i] = at < count ? values[at] : Q(0);  // adding 0 does not change the sum
    }
    for (Q const value : loaded) sum += static_cast<double>(value);
  }
  return sum;
}

/// Returns the sum of all lanes, where lane_sum(lane) returns the sum of one lane. Runs on one thread.
template <class F>
double add_lanes(F const& lane_sum) {
  double lanes[sum_lanes];
  for (int lane = 0; lane < sum_lanes; ++lane) lanes[lane] = lane_sum(lane);
  for (int half = sum_lanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
