// SPDX-License-Identifier: Apache-2.0
// Overlaps transfers of state with computation: reorders the entries of a schedule before buffers get their
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/plan/schedule.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// The class of an entry for the reordering. In this file, a work is the computation of a unit's segment or
/// an update by the optimizer, together with the entries that belong to it.
/// - `begins` is the first entry of a work, and `follows` is a later entry of the work;
/// - `prefetches` brings values for the next work, and `feeds_prefetch` brings the values that an entry of
/// the class `prefetches` then copies;
/// - `deferred` can run after later works, and `continues` uses results of an earlier work.
enum class Part { feeds_prefetch, prefetches, begins, follows, deferred, continues };

/// Reorders the entries [begin, end). `part_of` returns the class of an entry. The works are numbered in
/// their order, and `k` and `lag` are numbers of works. An entry of the class `prefetches` for work j moves
/// before work j - k. An entry of the class `feeds_prefetch` for work j moves before work j - 2k, and before
/// all entries of the class `prefetches` that are there. An entry of the class `deferred` of work j moves
/// behind work j + lag. An entry of the class `continues` of work j moves behind work j + lag + k. Works keep
/// their order. Entries that move to one position keep their order, too. With `reduce_last_first`, the
/// entries of the class `deferred` of the work before the last one move behind the last work. Behind them are
/// the entries of the class `continues` of the last work, and then the entries of that class of the work
/// before.
inline void skew(std::vector<Entry>& entries, std::size_t begin, std::size_t end, int k, int lag,
                 bool reduce_last_first, Part (*part_of)(Entry const&)) {
  int works = 0;
  for (std::size_t at = begin; at < end; ++at) works += part_of(entries[at]) == Part::begins;
  std::vector<int> places(entries.size());  // the sort key of each entry; each work has four keys
  int work = -1;
  for (std::size_t at = begin; at < end; ++at) {
    Part const part = part_of(entries[at]);
    work += part == Part::begins;
    places[at] = part == Part::feeds_prefetch        ? 4 * std::max(work + 1 - 2 * k, 0)
                 : part == Part::prefetches          ? 4 * std::max(work + 1 - k, 0) + 1
                 : part == Part::continues           ? 4 * std::min(work + lag + k, works - 1) + 3
                 : part == Part::deferred && lag > 0 ? 4 * std::min(work + lag, works - 1) + 3
                                                     : 4 * work + 2;
    if (reduce_last_first && work == works - 2 && part == Part::deferred) places[at] = 4 * works - 1;
    if (reduce_last_first && work >= works - 2 && part == Part::continues)
      places[at] = 4 * works + (work == works - 1 ? 0 : 1);
  }
  std::vector<Entry> sorted(end - begin);
  auto const before = [&](std::size_t a, std::size_t b) { return places[begin + a] < places[begin + b]; };
  std::vector<std::size_t> const order = sorted_indices(sorted.size(), before);
  for (std::size_t at = 0; at < order.size(); ++at) sorted[at] = std::move(entries[begin + order[at]]);
  std::swap_ranges(sorted.begin(), sorted.end(), entries.begin() + static_cast<std::ptrdiff_t>(begin));
}

/// Returns the class of an entry in a micro-batch.
inline Part part_in_micro_batch(Entry const& entry) {
  switch (entry.verb) {
    // The copy of weights to the device must wait for the disk read, which needs about as much time as the
    // computation of a unit. So the read has the class that begins earlier.
    case Verb::gather:
      return entry.lane == Lane::disk ? Part::feeds_prefetch : Part::prefetches;
    case Verb::forward:
    case Verb::recompute:
    case Verb::backward_input:
      return Part::begins;
    case Verb::restore:
    case Verb::cross:
    case Verb::release:
    case Verb::sum_losses:
      return Part::follows;
    case Verb::backward_weight:
    case Verb::add_tied:
    case Verb::clear_gaps:
      return Part::deferred;
    case Verb::reduce:
    case Verb::accumulate:
    case Verb::norm:
    case Verb::exchange:
      return Part::continues;
    case Verb::fetch:
    case Verb::update:
    case Verb::write_back:
    case Verb::decide:
    case Verb::copy_scalars:
      break;  // these entries run after the micro-batches
  }
  return Part::continues;
}
/// Returns whether backward can reduce the gradient of its last unit before the gradient of the unit before
/// it. [begin, end) are the entries of a micro-batch. The reductions of the two units must be separate calls,
/// and the last unit must not need a gradient that the unit before it computes for a tied parameter.
inline bool can_reduce_last_first(std::vector<Entry> const& entries, std::size_t begin, std::size_t end) {
  int last = -1, before = -1;
  for (std::size_t at = begin; at < end; ++at) {
    Entry const& entry = entries[at];
    if (entry.verb != Verb::backward_input) continue;
    if (entry.unit != last) before = last;
    last = entry.unit;
  }
  bool has_last = false, has_before = false;
  for (std::size_t at = begin; at < end; ++at) {
    for (Operand const& operand : entries[at].operands)
      if (entries[at].unit == before && operand.role == Role::tied_gradient) return false;
    if (part_in_micro_batch(entries[at]) != Part::continues) continue;
    bool of_last = false, of_others = false;
    for (Item const& item : entries[at].items) {
      of_last = of_last || item.of.unit == last;
      of_others = of_others || item.of.unit != last;
      has_before = has_before || item.of.unit == before;
    }
    if (of_last && of_others) return false;
    has_last = has_last || of_last;
  }
  return has_last && has_before;
}

/// Returns the class of an entry of the optimizer's update.
inline Part part_in_update(Entry const& entry) {
  return entry.verb == Verb::fetch    ? Part::prefetches
         : entry.verb == Verb::update ? Part::begins
                                      : Part::continues;
}

}  // namespace detail

/// Overlaps transfers of state with computation.
///
/// `prefetch` is a number of units.
/// - Weights are gathered this many units before their use. Weights on a disk are read twice as many units
///   before their use.
/// - Micro-batch gradients are reduced and accumulated up to this many units later, in the lane (CUDA stream)
///   of communication.
/// - Updates run while the state of later units is fetched and the state of earlier units is written back.
///
/// `weight_lag` is a number of units, too. Gradients of weights are computed this many units behind gradients
/// of inputs, in a separate lane, where they use idle parts of the device. Only the reduction and
/// accumulation of these gradients wait for this lane.
///
/// `last_is_larger` says that the last unit of backward has a larger gradient than the unit before it, as the
/// embedding of GPT-2 124M has. No computation hides the last reduction. So with `prefetch`, the larger
/// gradient is reduced first, and the weight gradients of the unit before it are computed meanwhile.
///
/// The position of an entry determines the lifetimes of its buffers, so entries that run at the same time use
/// different memory. `prefetch` needs memory for about this many more units of weights, micro-batch gradients
/// and optimizer scratch. `weight_lag` needs memory for about this many more units of the tensors that
/// backward keeps.
///
/// Entries stay in their micro-batch, and values do not change. If both numbers are 0, the schedule does not
/// change. `prefetch` has no effect if the schedule has no transfers of state.
inline void overlap(Schedule& schedule, int prefetch, int weight_lag, bool last_is_larger) {
  auto& entries = schedule.entries;
  bool moves = false;
  for (Entry const& entry : entries)
    moves = moves || (entry.move != Move::none && entry.items.front().of.unit >= 0);
  if (!moves || prefetch < 0) prefetch = 0;
  if (prefetch == 0 && weight_lag == 0) return;
  auto const is_update = [](Verb verb) {
    return verb == Verb::fetch || verb == Verb::update || verb == Verb::write_back;
  };
  std::size_t begin = 0;
  while (begin < entries.size()) {
    std::size_t end = begin;
    bool const updates = is_update(entries[begin].verb);
    while (end < entries.size() && entries[end].micro_batch == entries[begin].micro_batch &&
           is_update(entries[end].verb) == updates)
      ++end;
    if (updates) detail::skew(entries, begin, end, prefetch, 0, false, detail::part_in_update);
    if (entries[begin].micro_batch >= 0) {
      std::vector<int> arrived;
      for (std::size_t at = begin; at < end; ++at) {
        Entry& entry = entries[at];
        if (entry.verb == Verb::reduce)
          for (Item const& item : entry.items) arrived.push_back(item.at(Role::target));
        if (entry.verb != Verb::accumulate || entry.lane != Lane::compute) continue;
        if (prefetch > 0 && detail::contains(arrived, entry.at(Role::source)))
          entry.lane = Lane::communication;
        else if (weight_lag > 0)
          entry.lane = Lane::gradients;
      }
      bool const reduce_last_first = last_is_larger && prefetch > 0 && weight_lag == 0 &&
                                     detail::can_reduce_last_first(entries, begin, end);
      detail::skew(entries, begin, end, prefetch, weight_lag, reduce_last_first, detail::part_in_micro_batch);
    }
    begin = end;
  }
}

}  // namespace v0
}  // namespace tessera
