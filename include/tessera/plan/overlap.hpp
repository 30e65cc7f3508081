// SPDX-License-Identifier: Apache-2.0
// Communication beside computation: a list of entries in another order, before its buffers are placed.
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

/// Where an entry stands to the works around it: what brings something for the next work, or fetches it for
/// what brings it, a part of a work (its first one begins it), what of it may run behind, or what carries on
/// from the one before.
enum class Part { fetches, brings, begins, belongs, lags, carries_on };

/// Reorders the entries [begin, end): what brings something for work j comes before work j - k, what fetches
/// it before what work j - 2k waits for, what lags after work j + lag, and what carries on from it after work
/// j + lag + k. Works stay in order, and so do the entries of a kind between two of them.
inline void skew(std::vector<Entry>& entries, std::size_t begin, std::size_t end, int k, int lag,
                 Part (*part_of)(Entry const&)) {
  int works = 0;
  for (std::size_t at = begin; at < end; ++at) works += part_of(entries[at]) == Part::begins;
  std::vector<int> places;  // of each entry; a work has four
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
    case Verb::acquire:  // a read takes as long as units, and its copy to the device waits for it
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
      break;  // after the micro-batches
  }
  return Part::carries_on;
}
inline Part part_in_update(Entry const& entry) {
  return entry.verb == Verb::stream   ? Part::brings
         : entry.verb == Verb::update ? Part::begins
                                      : Part::carries_on;
}

}  // namespace detail

/// Lets state travel while units compute: weights are acquired `prefetch` units ahead of use, contributions
/// travel and are folded until as many units later, on the lane of communication, and updates run while the
/// gradients of the units after them come and the weights of those before them go. Because an entry's place
/// in the list decides how long its buffers live, what runs together gets bytes of its own: about `prefetch`
/// units more of weights, contributions and the optimizer's transients. What an acquisition reads from a disk
/// comes as many units earlier still. `weight_lag`: gradients of weights, which nothing waits for but their
/// sums, run that many units behind those of inputs, in the lane of gradients, where they fill what those
/// leave of the device; about as many units more of what backward passes keep. Entries stay in their
/// micro-batch, and the values do not change. Both 0: the list as it is; prefetch without moves, too.
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
