// SPDX-License-Identifier: Apache-2.0
// Compares the clocks of ranks that run on several hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/comm/communicator.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The difference between the clock of a rank and the clock of rank 0, in nanoseconds.
struct ClockDifference {
  std::int64_t offset = 0;  ///< the clock of this rank minus the clock of rank 0
  std::int64_t error = 0;   ///< the true offset differs from `offset` by at most this
};

/// Returns the difference between the clock `clock` of this rank and the same clock of rank 0. `boot`
/// identifies the start of this rank's machine; ranks with equal `boot` share a clock. If `boot` is equal on
/// all ranks, `offset` and `error` of the result are 0. Otherwise the ranks run `rounds` small collectives,
/// which needs a few milliseconds. All ranks must call it together.
///
/// Method: a rank leaves a collective only after all ranks have entered it. So at one moment all ranks are
/// inside. For a rank r that is inside from a_r to b_r by its own clock, the offset is between a_r - b_0 and
/// b_r - a_0. The result is the middle of the interval that all rounds have in common.
ClockDifference clock_difference(comm::Transport& transport, std::string const& boot,
                                 std::function<std::int64_t()> const& clock, int rounds = 32);

}  // namespace cli
}  // namespace programs
