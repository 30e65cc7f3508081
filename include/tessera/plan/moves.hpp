// SPDX-License-Identifier: Apache-2.0
// Finds the collectives and copies that bring values from one placement (distribution over ranks, and memory)
// to another.
#pragma once

#include <vector>

#include "tessera/config.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// One transfer: a collective or a copy, the placement of the values after it, and the ranks that take part.
struct Hop {
  Move move = Move::none;
  Placement after{};
  Group group = Group::all;

  friend constexpr bool operator==(Hop const&, Hop const&) = default;
};

/// The options of moves_between. If `ordered`, sums have a fixed order: an all_to_all or a gather collects
/// the summands, and a later entry of the schedule adds them in rank order. `replicas` is the number of
/// copies of all sharded state. The ranks form a table (see Group) with one row for each copy: the ranks of a
/// row each hold one shard of this copy.
struct RouteOptions {
  bool ordered = false;
  int replicas = 1;
};

/// Returns whether a change from the distribution `from` to the distribution `to` needs no transfer: every
/// rank already has the values that it needs.
constexpr bool holds(Sharding from, Sharding to) {
  return from == to || (from == Sharding::replicated && to != Sharding::partial);
}

namespace detail {

/// Appends to `hops` the next collective on the way from distribution `from` to distribution `to`, on the
/// device. With several replicas, a sum into shards needs two collectives, and this function appends both of
/// them. Ordered sums do not use rows of ranks: each rank receives the summands of its part from all ranks,
/// in rank order.
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

/// Returns the transfers that bring values from one placement to another, in order. The list is empty if
/// every rank already has its values in the right memory. A copy moves values between disk and host, or
/// between host and device. Collectives run on the device. So values in other memory are first copied to the
/// device, and the results are finally copied to the memory of `to`. After an all_to_all or a gather of
/// summands, the receiver has one array from each rank and must add these arrays. In the table below,
/// `gather` is Move::gather, which brings values to one rank.
///   partial    to replicated  all_reduce        (ordered: all_to_all, all_gather)
///   partial    to sharded     reduce_scatter    (ordered: all_to_all)
///   partial    to owned       gather
///   sharded    to replicated  all_gather
///   sharded    to owned       gather
///   owned      to others      broadcast
///   replicated to others      nothing: every rank has its part
/// With several replicas, a sum into shards is a reduce_scatter among the ranks of a row, then an all_reduce
/// among the ranks with the same shard. An all_gather of shards is among the ranks of a row.
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
