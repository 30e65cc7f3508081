// SPDX-License-Identifier: Apache-2.0
// Implements clock_difference, which compares the clocks of ranks on several hosts.
#include "trace/clocks.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "tessera/comm/run.hpp"

namespace programs {
using namespace tessera;
namespace cli {

ClockDifference clock_difference(comm::Transport& transport, std::string const& boot,
                                 std::function<std::int64_t()> const& clock, int rounds) {
  std::vector<std::string> const boots = comm::all_gather_text(transport, boot, {"compare clocks"});
  if (std::all_of(boots.begin(), boots.end(), [&](std::string const& other) { return other == boot; }))
    return {};
  auto const count = static_cast<std::size_t>(rounds), world = static_cast<std::size_t>(transport.world());
  std::vector<std::int64_t> own, entered(world), all(2 * count * world);
  for (std::size_t round = 0; round < count; ++round) {
    own.push_back(clock());
    transport.all_gather(&own.back(), entered.data(), sizeof(std::int64_t), {"compare clocks"});
    own.push_back(clock());
  }
  transport.all_gather(own.data(), all.data(), static_cast<std::int64_t>(own.size() * sizeof own[0]),
                       {"compare clocks"});
  if (boot == boots.front()) return {};
  std::int64_t low = std::numeric_limits<std::int64_t>::min(),
               high = std::numeric_limits<std::int64_t>::max();
  for (std::size_t round = 0; round < count; ++round) {
    low = std::max(low, own[2 * round] - all[2 * round + 1]);
    high = std::min(high, own[2 * round + 1] - all[2 * round]);
  }
  std::int64_t const width = std::max<std::int64_t>(0, high - low);
  return {low + width / 2, (width + 1) / 2};
}

}  // namespace cli
}  // namespace programs
