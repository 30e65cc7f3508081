// SPDX-License-Identifier: Apache-2.0
// Assigns memory offsets to the buffers of a program. Persistent buffers, which live during the whole run,
// follow one another. All further buffers live from their first to their last use. Two of them may share
// bytes if their lifetimes do not overlap. This file also lists the buffers that share bytes, because the
// entries that use such buffers must wait for one another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/place.hpp"
#include "tessera/plan/memory.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns the lifetimes of all buffers that are not persistent, as positions in the schedule. In each
/// micro-batch, a buffer lives from the first to the last entry that reads or writes it. Entries after the
/// micro-batches count as part of the last micro-batch. The body is the part of the schedule that repeats for
/// each micro-batch. A lifetime that extends into the next repetition of the body is split into two
/// lifetimes: one up to the end of the body, and one from the beginning of the body.
inline std::vector<Interval> lifetimes_of(Program const& program) {
  Schedule const& schedule = program.schedule;
  struct Lifetime {
    std::int64_t first = -1, last = -1;  // the first and the last run of an entry (Schedule::instance)
    int micro_batch = -1;
  };
  std::size_t const count = program.buffers.size();
  std::vector<Lifetime> open(count);
  std::vector<Interval> lifetimes(count);
  int const body = schedule.body_end - schedule.body_begin;
  auto const place = [&](std::int64_t instance) { return schedule.instance(instance, steady_times).index; };
  auto const close = [&](std::size_t buffer) {
    Interval& all = lifetimes[buffer];
    for (std::int64_t begin = open[buffer].first; begin <= open[buffer].last;) {
      std::int64_t end = open[buffer].last + 1;
      for (int time = std::min(schedule.times, steady_times) - 1; time > 0; --time) {
        std::int64_t const repetition = schedule.body_begin + std::int64_t{time} * body;
        if (begin < repetition && repetition < end) end = repetition;
      }
      int const first = place(begin), last = place(end - 1);
      bool known = all.first == first && all.last == last;
      for (std::size_t further = 0; further < all.again.size(); further += 2)
        known = known || (all.again[further] == first && all.again[further + 1] == last);
      if (!all.used()) {
        all.first = first;
        all.last = last;
      } else if (!known) {
        all.again.push_back(first);
        all.again.push_back(last);
      }
      begin = end;
    }
  };
  for (std::int64_t index = 0; index < schedule.instances(steady_times); ++index) {
    Instance const instance = schedule.instance(index, steady_times);
    instance.entry.visit_operands([&](Operand const& operand, int) {
      if (program.at(operand.buffer).persistent) return;
      Lifetime& lifetime = open[static_cast<std::size_t>(operand.buffer)];
      if (lifetime.first >= 0 && instance.micro_batch >= 0 && instance.micro_batch != lifetime.micro_batch) {
        close(static_cast<std::size_t>(operand.buffer));
        lifetime.first = -1;
      }
      if (lifetime.first < 0) lifetime = {index, index, instance.micro_batch};
      lifetime.last = index;
    });
  }
  for (std::size_t buffer = 0; buffer < count; ++buffer)
    if (open[buffer].first >= 0) close(buffer);
  return lifetimes;
}

/// Returns the alignment of buffers in the memory `tier`, in bytes. A disk transfers whole blocks. If the
/// program uses files, the buffers in files and in host memory are therefore aligned to disk blocks.
inline std::int64_t alignment_of(Program const& program, Tier tier) {
  bool with_files = false;
  for (Buffer const& buffer : program.buffers) with_files = with_files || !has_addresses(buffer.tier);
  return with_files && tier != Tier::device ? disk_block : arena_alignment;
}

/// Sets the offset of each buffer, and for each tier the size of its persistent buffers and of its arena.
inline void place_buffers(Program& program) {
  auto& buffers = program.buffers;
  std::array<std::int64_t, tier_count> alignment{};
  for (std::size_t at = 0; at < tier_count; ++at)
    alignment[at] = alignment_of(program, Tier{static_cast<std::uint8_t>(at)});
  for (Buffer& buffer : buffers) {
    if (!buffer.persistent) continue;
    std::size_t const at = static_cast<std::size_t>(buffer.tier);
    std::int64_t& end = program.persistent_bytes[at];
    buffer.offset = round_up(end, alignment[at]);
    end = buffer.offset + round_up(buffer.bytes, arena_alignment);
  }
  std::vector<Interval> const all = lifetimes_of(program);
  for (std::size_t at = 0; at < tier_count; ++at) {
    Tier const tier{static_cast<std::uint8_t>(at)};
    std::vector<Interval> lifetimes(buffers.size());
    for (std::size_t index = 0; index < buffers.size(); ++index) {
      if (buffers[index].tier == tier) lifetimes[index] = all[index];
      lifetimes[index].bytes = buffers[index].bytes;
    }
    IntervalPlan const placed = plan_intervals(lifetimes, alignment[at]);
    std::int64_t const begin = round_up(program.persistent_bytes[at], alignment[at]);
    program.arena_bytes[at] = program.persistent_bytes[at];
    for (std::size_t index = 0; index < buffers.size(); ++index) {
      if (placed.offsets[index] < 0) continue;
      buffers[index].offset = begin + placed.offsets[index];
      // `begin` is aligned, so it can exceed persistent_bytes, even if placed.bytes is 0.
      program.arena_bytes[at] = begin + placed.bytes;
    }
  }
}

/// Returns a list for each buffer: the other buffers that use some of its bytes at another time. Two buffers
/// that share bytes are not in each other's list if all entries that use them are in one lane, because the
/// entries of a lane run in order.
inline std::vector<std::vector<int>> sharing_of(Program const& program) {
  auto const& buffers = program.buffers;
  std::vector<int> lanes(buffers.size());
  for (Entry const& entry : program.schedule.entries)
    entry.visit_operands([&](Operand const& operand, int) {
      lanes[static_cast<std::size_t>(operand.buffer)] |= 1 << static_cast<int>(entry.lane);
    });
  std::vector<std::size_t> placed;
  for (std::size_t index = 0; index < buffers.size(); ++index)
    if (!buffers[index].persistent && buffers[index].offset >= 0) placed.push_back(index);
  sort_indices(placed, [&](std::size_t a, std::size_t b) {
    return buffers[a].tier != buffers[b].tier ? buffers[a].tier < buffers[b].tier
                                              : buffers[a].offset < buffers[b].offset;
  });
  std::vector<std::vector<int>> others(buffers.size());
  for (std::size_t at = 0; at < placed.size(); ++at) {
    std::size_t const a = placed[at];
    std::int64_t const end = buffers[a].offset + buffers[a].bytes;
    for (std::size_t next = at + 1; next < placed.size(); ++next) {
      std::size_t const b = placed[next];
      if (buffers[b].tier != buffers[a].tier || buffers[b].offset >= end) break;
      int const both = lanes[a] | lanes[b];
      if ((both & (both - 1)) == 0 || buffers[b].bytes == 0) continue;
      others[a].push_back(static_cast<int>(b));
      others[b].push_back(static_cast<int>(a));
    }
  }
  return others;
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
