// SPDX-License-Identifier: Apache-2.0
// Where the buffers of a list lie: persistent ones side by side, the others by their lives; and the waits
// that follow from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/plan/memory.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera::inline v0 {

namespace detail {

/// Gives every buffer its offset, and each tier its bytes.
inline void place_buffers(Program& program) {
  auto& buffers = program.buffers;
  for (Buffer& buffer : buffers) {
    if (!buffer.persistent) continue;
    std::int64_t& end = program.persistent_bytes[static_cast<std::size_t>(buffer.tier)];
    buffer.offset = end;
    end += round_up(buffer.bytes, arena_alignment);
  }
  for (std::size_t at = 0; at < tier_count; ++at) {
    Tier const tier{static_cast<std::uint8_t>(at)};
    std::vector<Interval> lives(buffers.size());
    for (std::size_t index = 0; index < buffers.size(); ++index) lives[index].bytes = buffers[index].bytes;
    auto const& entries = program.schedule.entries;
    for (std::size_t entry = program.schedule.last_micro_batch; entry < entries.size(); ++entry)
      for (auto const* list : {&entries[entry].reads, &entries[entry].writes})
        for (int const index : *list) {
          Interval& life = lives[static_cast<std::size_t>(index)];
          Buffer const& buffer = buffers[static_cast<std::size_t>(index)];
          if (buffer.persistent || buffer.tier != tier) continue;
          if (!life.used()) life.first = static_cast<int>(entry);
          life.last = static_cast<int>(entry);
        }
    IntervalPlan const placed = plan_intervals(lives);
    for (std::size_t index = 0; index < buffers.size(); ++index)
      if (placed.offsets[index] >= 0)
        buffers[index].offset = program.persistent_bytes[at] + placed.offsets[index];
    program.arena_bytes[at] = program.persistent_bytes[at] + placed.bytes;
  }
}

/// For each buffer the others that have some of its bytes at another time, where not one lane alone touches
/// both.
inline std::vector<std::vector<int>> sharing_of(Program const& program) {
  auto const& buffers = program.buffers;
  std::vector<unsigned> lanes(buffers.size(), 0u);
  for (Entry const& entry : program.schedule.entries)
    for (auto const* list : {&entry.reads, &entry.writes})
      for (int const buffer : *list)
        lanes[static_cast<std::size_t>(buffer)] |= 1u << static_cast<unsigned>(entry.lane);
  std::vector<std::size_t> placed;
  for (std::size_t index = 0; index < buffers.size(); ++index)
    if (!buffers[index].persistent && buffers[index].offset >= 0) placed.push_back(index);
  auto const begins = [&](std::size_t index) {
    return std::pair(buffers[index].tier, buffers[index].offset);
  };
  std::sort(placed.begin(), placed.end(),
            [&](std::size_t a, std::size_t b) { return begins(a) < begins(b); });
  std::vector<std::vector<int>> others(buffers.size());
  for (std::size_t at = 0; at < placed.size(); ++at) {
    std::size_t const a = placed[at];
    auto const end = std::pair(buffers[a].tier, buffers[a].offset + buffers[a].bytes);
    for (std::size_t next = at + 1; next < placed.size() && begins(placed[next]) < end; ++next) {
      std::size_t const b = placed[next];
      unsigned const both = lanes[a] | lanes[b];
      if ((both & (both - 1u)) == 0 || buffers[b].bytes == 0) continue;
      others[a].push_back(static_cast<int>(b));
      others[b].push_back(static_cast<int>(a));
    }
  }
  return others;
}

}  // namespace detail

}  // namespace tessera::inline v0
