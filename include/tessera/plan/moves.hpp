// SPDX-License-Identifier: Apache-2.0
// From where values lie to where they are wanted: the moves in between. The only place that knows which
// collective turns one placement into another.
#pragma once

#include <vector>

#include "tessera/plan/schedule.hpp"
#include "tessera/policy/table.hpp"

namespace tessera::inline v0 {

/// One move on the way, and how the values lie after it.
struct Hop {
  Move move = Move::none;
  Placement after{};

  friend constexpr bool operator==(Hop const&, Hop const&) = default;
};

/// Whether every rank that wants values under `to` has them under `from` already.
constexpr bool holds(Sharding from, Sharding to) {
  return from == to || (from == Sharding::replicated && to != Sharding::partial);
}

namespace detail {

/// The move over ranks from `from` on, on the device. `ordered`: sums are folds in rank order of what an
/// all_to_all or a gather brought, so a summand on each rank becomes one part at a time.
constexpr Hop move_over_ranks(Sharding from, Sharding to, bool ordered) {
  auto const hop = [](Move move, Sharding after) { return Hop{move, {after, Tier::device}}; };
  if (from == Sharding::partial) {
    if (to == Sharding::root) return hop(Move::gather, Sharding::root);
    if (ordered) return hop(Move::all_to_all, Sharding::sharded);
    return to == Sharding::sharded ? hop(Move::reduce_scatter, Sharding::sharded)
                                   : hop(Move::all_reduce, Sharding::replicated);
  }
  if (from == Sharding::root) return hop(Move::broadcast, Sharding::replicated);
  return to == Sharding::root ? hop(Move::gather, Sharding::root)
                              : hop(Move::all_gather, Sharding::replicated);
}

}  // namespace detail

/// The moves that bring values from one placement to another, in order; none where they are there. Ranks talk
/// on the device alone: values of another tier come up first and go down last. After an all_to_all, and after
/// a gather of summands, the receiver has one piece a rank, which are still to be folded.
///   partial    to replicated  all_reduce        (ordered: all_to_all, all_gather)
///   partial    to sharded     reduce_scatter    (ordered: all_to_all)
///   partial    to root        gather
///   sharded    to replicated  all_gather        to root  gather
///   root       to others      broadcast
///   replicated to others      nothing: every rank has its part
inline std::vector<Hop> moves_between(Placement from, Placement to, bool ordered) {
  std::vector<Hop> hops;
  auto const go = [&](Hop const& hop) {
    hops.push_back(hop);
    from = hop.after;
  };
  while (!holds(from.over, to.over)) {
    if (from.tier != Tier::device) go({Move::copy, {from.over, Tier::device}});
    go(detail::move_over_ranks(from.over, to.over, ordered));
  }
  if (from.tier != to.tier) go({Move::copy, to});
  return hops;
}

}  // namespace tessera::inline v0
