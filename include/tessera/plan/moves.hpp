// SPDX-License-Identifier: Apache-2.0
// Finds the moves that bring values from one placement to another. Only this file knows which collective
// turns one placement into another.
#pragma once

#include <vector>

#include "tessera/config.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// One move of a route, the placement of the values after it, and the ranks that take part.
struct Hop {
  Move move = Move::none;
  Placement after{};
  Group group = Group::all;

  friend constexpr bool operator==(Hop const&, Hop const&) = default;
};

/// The options of a route. If `ordered`, an all_to_all or a gather brings the summands together, and an
/// accumulate then adds them in rank order. `replicas` is the number of rows of ranks; each row has a copy of
/// all shards.
struct RouteOptions {
  bool ordered = false;
  int replicas = 1;
};

/// Whether every rank that needs values under `to` already has them under `from`.
constexpr bool holds(Sharding from, Sharding to) {
  return from == to || (from == Sharding::replicated && to != Sharding::partial);
}

namespace detail {

/// Adds the next moves between ranks on a route from `from` to `to`, on the device. Ordered sums ignore the
/// mesh: each rank that has a part receives the summands of all ranks, in rank order.
inline void add_rank_moves(std::vector<Hop>& hops, Sharding from, Sharding to, RouteOptions const& options) {
  auto const go = [&](Move move, Sharding after, Group group) {
    hops.push_back({move, {after, Tier::device}, group});
  };
  Group const row = options.replicas > 1 ? Group::shards : Group::all;
  if (from == Sharding::partial && to == Sharding::owned)
    go(Move::gather, Sharding::owned, Group::all);
  else if (from == Sharding::partial && options.ordered)
    go(Move::all_to_all, Sharding::sharded, Group::all);
  else if (from == Sharding::partial && to == Sharding::sharded) {
    go(Move::reduce_scatter, Sharding::sharded, row);
    if (options.replicas > 1) go(Move::all_reduce, Sharding::sharded, Group::replicas);
  } else if (from == Sharding::partial)
    go(Move::all_reduce, Sharding::replicated, Group::all);
  else if (from == Sharding::owned)
    go(Move::broadcast, Sharding::replicated, Group::all);
  else if (to == Sharding::owned && options.replicas == 1)
    go(Move::gather, Sharding::owned, Group::all);
  else
    go(Move::all_gather, Sharding::replicated, row);
}

}  // namespace detail

/// Returns the moves that bring values from one placement to another, in order; none if they are already
/// there. A copy goes to the next tier: from disk to host, and from host to device. Moves between ranks are
/// on the device, so values of other tiers are copied to the device first and back last. After an all_to_all
/// or a gather of summands, the receiver has one piece from each rank and must accumulate the pieces. In this
/// file `gather` is Move::gather, which brings values to one rank, and not Verb::gather.
///   partial    to replicated  all_reduce        (ordered: all_to_all, all_gather)
///   partial    to sharded     reduce_scatter    (ordered: all_to_all)
///   partial    to owned       gather
///   sharded    to replicated  all_gather        to owned  gather
///   owned      to others      broadcast
///   replicated to others      nothing: every rank has its part
/// With several replicas, a sum into shards is a reduce_scatter in the row, then an all_reduce in the column.
/// Shards are all-gathered in the row.
inline std::vector<Hop> moves_between(Placement from, Placement to, RouteOptions const& options) {
  std::vector<Hop> hops;
  auto const copy = [&](Sharding over, Tier tier) {
    while (from.tier != tier) {
      int const at = static_cast<int>(from.tier);
      from = {over, static_cast<Tier>(from.tier < tier ? at + 1 : at - 1)};
      hops.push_back({Move::copy, from});
    }
  };
  while (!holds(from.over, to.over)) {
    copy(from.over, Tier::device);
    detail::add_rank_moves(hops, from.over, to.over, options);
    from = hops.back().after;
  }
  copy(to.over, to.tier);
  return hops;
}

}  // namespace v0
}  // namespace tessera
