// SPDX-License-Identifier: Apache-2.0
// Overlaps communication with computation: it reorders the entries of a list before their buffers are placed.
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

/// The role of an entry relative to works. A work is the computation of a segment or of an update.
/// - `begins` is the first entry of a work, and `belongs` a later one;
/// - `brings` prefetches for the next work, and `fetches` prefetches the source of a `brings`;
/// - `lags` can be deferred, and `carries_on` continues with the results of the previous work.
enum class Part { fetches, brings, begins, belongs, lags, carries_on };

/// Reorders the entries [begin, end). An entry that `brings` for work j moves before work j - k. An entry
/// that `fetches` for work j moves before work j - 2k and the prefetches in front of it. An entry of work j
/// that `lags` moves behind work j + lag, and one that `carries_on` behind work j + lag + k. The sort is
/// stable: works keep their order, and so do the entries of one role between two works.
inline void skew(std::vector<Entry>& entries, std::size_t begin, std::size_t end, int k, int lag,
                 Part (*part_of)(Entry const&)) {
  int works = 0;
  for (std::size_t at = begin; at < end; ++at) works += part_of(entries[at]) == Part::begins;
  std::vector<int> places;  // the sort key of each entry; each work has four keys
  int work = -1;
  for (std::size_t at = begin; at < end; ++at) {
    Part const part = part_of(entries[at]);
    work += part == Part::begins;
    places.push_back(part == Part::fetches           ? 4 * std::max(work + 1 - 2 * k, 0)
                     : part == Part::brings          ? 4 * std::max(work + 1 - k, 0) + 1
                     : part == Part::carries_on      ? 4 * std::min(work + lag + k, works - 1) + 3
                     : part == Part::lags && lag > 0 ? 4 * std::min(work + lag, works - 1) + 3
                                                     : 4 * work + 2);
  }
  std::vector<Entry> sorted;
  for (std::size_t const at :
       sorted_indices(places.size(), [&](std::size_t a, std::size_t b) { return places[a] < places[b]; }))
    sorted.push_back(std::move(entries[begin + at]));
  for (std::size_t at = begin; at < end; ++at) entries[at] = std::move(sorted[at - begin]);
}

inline Part part_in_micro_batch(Entry const& entry) {
  switch (entry.verb) {
    case Verb::acquire:  // a disk read takes as long as whole units, and the copy to the device waits for it
      return entry.lane == Lane::disk ? Part::fetches : Part::brings;
    case Verb::forward:
    case Verb::recompute:
    case Verb::backward_input:
      return Part::begins;
    case Verb::restore:
    case Verb::cross:
    case Verb::release:
    case Verb::sum_losses:
      return Part::belongs;
    case Verb::backward_weight:
    case Verb::add_tied:
    case Verb::clear_gaps:
      return Part::lags;
    case Verb::reduce:
    case Verb::fold:
    case Verb::norm:
    case Verb::share:
      return Part::carries_on;
    case Verb::stream:
    case Verb::update:
    case Verb::publish:
    case Verb::decide:
    case Verb::brief:
      break;  // entries after the micro-batches
  }
  return Part::carries_on;
}
inline Part part_in_update(Entry const& entry) {
  return entry.verb == Verb::stream   ? Part::brings
         : entry.verb == Verb::update ? Part::begins
                                      : Part::carries_on;
}

}  // namespace detail

/// Lets state travel while units compute.
///
/// `prefetch` is a number of units.
/// - Weights are acquired that many units ahead of use. If they are on a disk, they are read as many units
///   earlier still.
/// - Micro-batch gradients are reduced and accumulated up to that many units later, in the lane of
///   communication.
/// - Updates run while the gradients of the next units arrive and the weights of previous units leave.
///
/// `weight_lag` is a number of units, too. Gradients of weights run that many units behind gradients of
/// inputs, in the lane of gradients, where they use idle parts of the device. Nothing but their sums waits
/// for them.
///
/// The position of an entry decides the lifetimes of its buffers, so entries that run together get their own
/// bytes. `prefetch` costs about that many more units of weights, micro-batch gradients and optimizer
/// scratch. `weight_lag` costs about that many more units of the tensors that backward keeps.
///
/// Entries stay in their micro-batch, and values do not change. If both numbers are 0, the list stays as it
/// is. `prefetch` has no effect on a list that moves no state.
inline void overlap(Schedule& schedule, int prefetch, int weight_lag) {
  auto& entries = schedule.entries;
  bool moves = false;
  for (Entry const& entry : entries)
    moves = moves || (entry.move != Move::none && entry.items.front().of.unit >= 0);
  if (!moves || prefetch < 0) prefetch = 0;
  if (prefetch == 0 && weight_lag == 0) return;
  auto const is_update = [](Verb verb) {
    return verb == Verb::stream || verb == Verb::update || verb == Verb::publish;
  };
  std::size_t begin = 0;
  while (begin < entries.size()) {
    std::size_t end = begin;
    bool const updates = is_update(entries[begin].verb);
    while (end < entries.size() && entries[end].micro_batch == entries[begin].micro_batch &&
           is_update(entries[end].verb) == updates)
      ++end;
    if (updates) detail::skew(entries, begin, end, prefetch, 0, detail::part_in_update);
    if (entries[begin].micro_batch >= 0) {
      std::vector<int> arrived;
      for (std::size_t at = begin; at < end; ++at) {
        Entry& entry = entries[at];
        if (entry.verb == Verb::reduce)
          for (Item const& item : entry.items) arrived.push_back(item.at(Role::target));
        if (entry.verb != Verb::fold || entry.lane != Lane::compute) continue;
        if (prefetch > 0 && detail::contains(arrived, entry.at(Role::source)))
          entry.lane = Lane::communication;
        else if (weight_lag > 0)
          entry.lane = Lane::gradients;
      }
      detail::skew(entries, begin, end, prefetch, weight_lag, detail::part_in_micro_batch);
    }
    begin = end;
  }
}

}  // namespace v0
}  // namespace tessera
