// SPDX-License-Identifier: Apache-2.0
// Tests moves_between(), which returns the route (list of transfers) from one placement of training state to
// another. A placement is a memory tier and a distribution over ranks. The routes of frequent pairs of
// placements are compared with expected routes. The routes of all pairs are simulated, to check that no
// transfer reads data that a rank does not have.
#include "tessera/plan/moves.hpp"

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

namespace {

using namespace tessera;
using enum Sharding;
using enum Tier;

std::string route_of(Placement from, Placement to, bool is_ordered, int replicas = 1) {
  std::string text;
  for (Hop const& hop : moves_between(from, to, {is_ordered, replicas})) {
    text += (text.empty() ? "" : " ") + std::string(name_of(hop.move));
    if (hop.group != Group::all) text += "/" + std::string(name_of(hop.group));
  }
  return text;
}

}  // namespace

TEST_CASE("the placements say which collective carries a state") {
  for (bool const is_ordered : {false, true}) {
    CHECK(route_of({replicated}, {replicated}, is_ordered) == "");
    CHECK(route_of({replicated}, {sharded}, is_ordered) == "");
    CHECK(route_of({replicated}, {owned}, is_ordered) == "");
    CHECK(route_of({sharded}, {replicated}, is_ordered) == "all_gather");
    CHECK(route_of({sharded}, {owned}, is_ordered) == "gather");
    CHECK(route_of({owned}, {replicated}, is_ordered) == "broadcast");
    CHECK(route_of({owned}, {sharded}, is_ordered) == "broadcast");
    CHECK(route_of({partial}, {owned}, is_ordered) == "gather");
  }
  CHECK(route_of({partial}, {replicated}, false) == "all_reduce");
  CHECK(route_of({partial}, {sharded}, false) == "reduce_scatter");
  CHECK(route_of({partial}, {replicated}, true) == "all_to_all all_gather");
  CHECK(route_of({partial}, {sharded}, true) == "all_to_all");
}

TEST_CASE("ranks talk on the device and each tier is a copy from the next") {
  CHECK(route_of({sharded, host}, {sharded, device}, true) == "copy");
  CHECK(route_of({replicated, device}, {sharded, host}, true) == "copy");
  CHECK(route_of({sharded, host}, {replicated, device}, true) == "copy all_gather");
  CHECK(route_of({partial, device}, {sharded, host}, true) == "all_to_all copy");
  CHECK(route_of({partial, host}, {replicated, host}, false) == "copy all_reduce copy");
  CHECK(route_of({owned, host}, {replicated, device}, true) == "copy broadcast");
  CHECK(route_of({sharded, nvme}, {sharded, host}, true) == "copy");
  CHECK(route_of({sharded, nvme}, {sharded, device}, true) == "copy copy");
  CHECK(route_of({sharded, nvme}, {replicated, device}, true) == "copy copy all_gather");
  CHECK(route_of({sharded, host}, {replicated, nvme}, true) == "copy all_gather copy copy");
  CHECK(route_of({replicated, host}, {sharded, nvme}, true) == "copy");
  CHECK(route_of({partial, nvme}, {replicated, nvme}, false) == "copy copy all_reduce copy copy");
}

TEST_CASE("with replicas of all shards values move within rows and columns") {
  CHECK(route_of({sharded}, {replicated}, true, 2) == "all_gather/shards");
  CHECK(route_of({partial}, {sharded}, false, 2) == "reduce_scatter/shards all_reduce/replicas");
  CHECK(route_of({partial}, {replicated}, false, 2) == "all_reduce");
  CHECK(route_of({partial}, {sharded}, true, 2) == "all_to_all");
  CHECK(route_of({partial}, {replicated}, true, 2) == "all_to_all all_gather/shards");
  CHECK(route_of({sharded}, {owned}, true, 2) == "all_gather/shards");
  CHECK(route_of({owned}, {sharded}, true, 2) == "broadcast");
}

TEST_CASE("every route ends where it should and moves over ranks only on the device") {
  for (Sharding const from : {replicated, sharded, owned, partial})
    for (Sharding const to : {replicated, sharded, owned})
      for (Tier const from_tier : {device, host, nvme})
        for (Tier const to_tier : {device, host, nvme})
          for (int const replicas : {-1, 1, -2, 2}) {
            bool const is_ordered = replicas > 0;
            Placement at{from, from_tier};
            for (Hop const& hop : moves_between(at, {to, to_tier}, {is_ordered, std::abs(replicas)})) {
              CHECK(hop.move != Move::none);
              CHECK((hop.after != at || hop.group == Group::replicas));  // no transfer is superfluous
              if (hop.move == Move::copy) {
                CHECK(holds(at.over, hop.after.over));
                int const tiers = static_cast<int>(hop.after.tier) - static_cast<int>(at.tier);
                CHECK(std::abs(tiers) == 1);
              } else {
                CHECK((at.tier == device && hop.after.tier == device));
              }
              at = hop.after;
            }
            CHECK(at.tier == to_tier);
            CHECK(holds(at.over, to));
          }
}
