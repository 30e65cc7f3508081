// SPDX-License-Identifier: Apache-2.0
// The step as data: what one training step does, in order, and which buffers each entry reads and writes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/operation.hpp"

namespace tessera::inline v0 {

/// What an entry does to its unit.
enum class Verb : std::uint8_t {
  acquire,          ///< gather a sharded unit's weights
  forward,          ///< run the unit
  recompute,        ///< rebuild what forward dropped
  backward_input,   ///< gradient of the unit's input
  backward_weight,  ///< gradients of the unit's parameters: its contribution is then complete
  release,          ///< the gathered weights may be overwritten
  reduce,           ///< exchange contributions between ranks
  fold,             ///< add contributions to the gradient, in the order of micro-batches
  gather,           ///< hand folded gradients back to every rank
  norm,             ///< square sums of the gradient; unit -1: the global norm, clip factor and loss scale
  stream,           ///< move the gradient, or with unit -1 the scalars, to the place of the optimizer
  update,           ///< AdamW
  publish           ///< hand updated weights to every rank that holds them
};

constexpr std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::acquire:
      return "acquire";
    case Verb::forward:
      return "forward";
    case Verb::recompute:
      return "recompute";
    case Verb::backward_input:
      return "backward_input";
    case Verb::backward_weight:
      return "backward_weight";
    case Verb::release:
      return "release";
    case Verb::reduce:
      return "reduce";
    case Verb::fold:
      return "fold";
    case Verb::gather:
      return "gather";
    case Verb::norm:
      return "norm";
    case Verb::stream:
      return "stream";
    case Verb::update:
      return "update";
    case Verb::publish:
      return "publish";
  }
  return "?";
}

/// What a buffer holds.
enum class BufferKind : std::uint8_t {
  parameters,       ///< T, whole unit or shard: what the rank keeps
  gathered,         ///< T, whole unit: sharded weights while they are acquired
  contribution,     ///< T, whole unit: this micro-batch's gradient
  lent,             ///< compute type: the gradient of a borrowed parameter, index = borrow
  staging,          ///< what an exchange receives
  accumulator,      ///< compute type, whole unit or shard: the folded gradient
  output,           ///< T: the unit's output
  saved,            ///< forward to backward, index = UnitSpec::saved
  dropped,          ///< the same while forward runs, where it is rebuilt later
  output_gradient,  ///< T: gradient of the unit's output
  backward,         ///< T: backward_input to backward_weight
  spare_output,     ///< T: where a recompute puts an output that the next rebuilt unit reads
  landing,          ///< the gradient at the place of the optimizer
  updated,          ///< T: updated weights at the place of the optimizer
  master,           ///< compute type: the weights that the optimizer updates
  moments,          ///< compute type, index 0 and 1: first and second moment
  state,            ///< StepState
  host_state,       ///< its copy at the place of the optimizer
  partials,         ///< norm partials and per-rank sums, before and after their exchange
  batch,            ///< tokens and targets of the step
  losses,           ///< one loss a token
  workspace         ///< packing buffers and tiles of the device's operations
};

constexpr std::string_view name_of(BufferKind kind) {
  constexpr std::string_view names[] = {
      "parameters", "gathered", "contribution",    "lent",       "staging",      "accumulator", "output",
      "saved",      "dropped",  "output_gradient", "backward",   "spare_output", "landing",     "updated",
      "master",     "moments",  "state",           "host_state", "partials",     "batch",       "losses",
      "workspace"};
  return names[static_cast<std::size_t>(kind)];
}

/// One line of the schedule.
struct Entry {
  Verb verb{};
  int unit = -1;
  int micro_batch = -1;  ///< accumulation index; -1 after the last one
  Lane lane = Lane::compute;
  std::vector<int> reads;   ///< buffers
  std::vector<int> writes;  ///< buffers
  std::vector<int> waits;   ///< entries of other lanes that must be done; each of them signals
  bool signals = false;     ///< some later entry of another lane waits for this one
};

/// A whole step. `last_micro_batch` is the index of the first entry of the last micro-batch: from there on
/// every buffer has the longest life it has in any micro-batch.
struct Schedule {
  std::vector<Entry> entries;
  std::size_t last_micro_batch = 0;
};

/// Orders entries of different lanes: an entry waits for the last writer of all it touches, for the readers
/// of all it overwrites, and, where it overwrites bytes that another buffer had before (`sharing[b]` lists
/// the buffers that overlap buffer b), for all that touched that one. Of each lane it waits for the latest
/// entry alone, and only where no earlier entry of its own lane did.
inline void connect(Schedule& schedule, std::vector<std::vector<int>> const& sharing) {
  constexpr std::size_t lanes = lane_count;
  using Latest = std::array<int, lanes>;  // an entry of each lane, -1: none
  constexpr Latest none{-1, -1, -1, -1};
  std::vector<Latest> written(sharing.size(), none), read(sharing.size(), none);
  std::array<Latest, lanes> known{none, none, none, none};
  auto& entries = schedule.entries;
  for (int index = 0; index < static_cast<int>(entries.size()); ++index) {
    Entry& entry = entries[static_cast<std::size_t>(index)];
    std::size_t const own = static_cast<std::size_t>(entry.lane);
    Latest needed = none;
    auto const after = [&](Latest const& others) {
      for (std::size_t lane = 0; lane < lanes; ++lane) needed[lane] = std::max(needed[lane], others[lane]);
    };
    for (int buffer : entry.reads) after(written[static_cast<std::size_t>(buffer)]);
    for (int buffer : entry.writes) {
      after(written[static_cast<std::size_t>(buffer)]);
      after(read[static_cast<std::size_t>(buffer)]);
      for (int other : sharing[static_cast<std::size_t>(buffer)]) {
        after(written[static_cast<std::size_t>(other)]);
        after(read[static_cast<std::size_t>(other)]);
      }
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (lane == own || needed[lane] <= known[own][lane]) continue;
      known[own][lane] = needed[lane];
      entry.waits.push_back(needed[lane]);
      entries[static_cast<std::size_t>(needed[lane])].signals = true;
    }
    for (int buffer : entry.reads) read[static_cast<std::size_t>(buffer)][own] = index;
    for (int buffer : entry.writes) {
      read[static_cast<std::size_t>(buffer)] = written[static_cast<std::size_t>(buffer)] = none;
      written[static_cast<std::size_t>(buffer)][own] = index;
    }
  }
}

/// A 64-bit FNV-1a hash of verbs, units, micro-batches, lanes and buffers: ranks compare it before step 1,
/// and rows with equal hashes run the same program. Waits are left out: they follow from these and from where
/// the buffers lie, which under the root optimizer is not the same on all ranks.
inline std::uint64_t hash_of(Schedule const& schedule) {
  std::uint64_t hash = 14695981039346656037ull;
  auto const mix = [&](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= static_cast<std::uint64_t>(value >> (8 * byte)) & 0xffu;
      hash *= 1099511628211ull;
    }
  };
  for (Entry const& entry : schedule.entries) {
    mix(static_cast<std::int64_t>(entry.verb));
    mix(entry.unit);
    mix(entry.micro_batch);
    mix(static_cast<std::int64_t>(entry.lane));
    for (auto const* list : {&entry.reads, &entry.writes}) {
      mix(static_cast<std::int64_t>(list->size()));
      for (int value : *list) mix(value);
    }
  }
  return hash;
}

/// One line for people and for tests: "backward_input h.3 micro 0".
inline std::string to_string(Entry const& entry, std::string_view unit) {
  std::string text(name_of(entry.verb));
  if (entry.unit >= 0) text.append(" ").append(unit);
  if (entry.micro_batch >= 0) text.append(" micro ").append(std::to_string(entry.micro_batch));
  return text;
}

}  // namespace tessera::inline v0
