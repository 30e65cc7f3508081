// SPDX-License-Identifier: Apache-2.0
// Defines WeightAccess. It sets all weights of a model to the values that a function returns, or passes all
// weights to a function.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/core/numbers.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/nn/init.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/store/step_memory.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// Sets one rank's weights, and collects the weights of all ranks on rank 0. Callers see whole parameters,
/// without the division into shards and without padding. Use it only while no step runs.
template <class Place>
class WeightAccess {
 public:
  using Kind = BufferKind;

  WeightAccess(StepPlan const& plan, StepMemory<Place> const& memory, Context<Place>& context,
               comm::Transport& transport)
      : plan_(plan), memory_(memory), context_(context), transport_(transport) {}

  /// Sets all weights and master weights of this rank from `source`. Does not change moments and scalars. No
  /// rank waits for another. If `seed` is not null, `source` must return the model's initial values for this
  /// seed; a GPU may then compute them in its own memory. Uses host memory outside the arenas for at most
  /// fill_chunk elements of each buffer.
  void fill(ParameterSource const& source, std::uint64_t const* seed = nullptr) {
    HostArena const staging(2 * staged_bytes);
    for (Flat const of : plan_.flats()) {
      std::array<Staged, 2> staged;  // the weights and master weights, if the host has to fill them
      std::size_t count = 0;
      for (Kind const kind : {Kind::weights, Kind::master})
        if (int const buffer = plan_.train.find(kind, of);
            buffer >= 0 && !(seed && filled_there(*seed, of, buffer))) {
          staged[count] = {&plan_.train.at(buffer), {}, nullptr, staging.base() + count * staged_bytes};
          ++count;
        }
      for (Range now{0, 0}; count > 0 && now.end < plan_.flat(of).padded; now.begin = now.end) {
        now.end = std::min(now.begin + fill_chunk, plan_.flat(of).padded);
        fill(source, of, now, {staged.data(), count});
        transport_.heartbeat();  // even with a slow disk, other ranks must see that this rank is alive
      }
    }
  }

  /// Passes the values of every parameter, without padding, to `sink` on rank 0. Parameters are sorted by
  /// name, and each one arrives in consecutive parts. The values are the master weights, or the weights of a
  /// frozen parameter. All ranks must call this function; only rank 0 calls its sink. Uses
  /// SaveStaging::summed bytes of host memory outside the arenas.
  void collect_pieces(ParameterSink const& sink) {
    std::vector<Borrow> all;
    for (int unit = 0; unit < plan_.units_count(); ++unit)
      for (int number = 0; number < static_cast<int>(plan_.unit(unit).parameters.size()); ++number)
        all.push_back({unit, number});
    auto const by_name = [&](std::size_t a, std::size_t b) {
      return plan_.parameter(all[a]).name < plan_.parameter(all[b]).name;
    };
    HostArena const staging(SaveStaging::summed);
    auto* const values = reinterpret_cast<float*>(staging.base() + SaveStaging::values);
    for (std::size_t const index : detail::sorted_indices(all.size(), by_name)) {
      Flat const of = plan_.flat_of(all[index]);
      Buffer const& master = plan_.train.at(plan_.train.find(plan_.master_kind(of), of));
      Range const elements = plan_.elements_of(all[index]);
      for (Range now{elements.begin, elements.begin}; now.end < elements.end; now.begin = now.end) {
        bool const split = plan_.is_split(master);  // shard k of the first replica is on rank k
        std::int64_t const shard = now.begin / plan_.flat(of).shard;
        now.end = std::min(elements.end, (now.begin / checkpoint_chunk + 1) * checkpoint_chunk);
        if (split) now.end = std::min(now.end, (shard + 1) * plan_.flat(of).shard);
        std::byte const* const stored = fetch_to_root(
            master, now, split ? static_cast<int>(shard) : plan_.first_with(master), staging.base());
        if (!plan_.is_root()) continue;
        std::span<float> const piece{values, static_cast<std::size_t>(now.size())};
        widen(master.type, stored, piece);
        sink(plan_.parameter(all[index]), piece);
        transport_.heartbeat();
      }
    }
  }

 private:
  static constexpr std::int64_t task_elements = 16384;            // elements that a thread fills at once
  static constexpr std::int64_t fill_chunk = 64 * task_elements;  // a multiple of shard_alignment
  static constexpr std::int64_t staged_bytes = 8 * fill_chunk;

  /// A buffer, the part of it that is prepared in host memory, and scratch memory for this part.
  struct Staged {
    Buffer const* buffer = nullptr;
    Range part;
    std::byte* values = nullptr;
    std::byte* staging = nullptr;
  };

  /// Computes the initial values of a flat group on the device, in the buffer with the index `number` of the
  /// training program. Returns false if the host has to compute these values instead. Skips padding, which is
  /// zero in a new arena.
  bool filled_there(std::uint64_t seed, Flat of, int number) {
    Buffer const& buffer = plan_.train.at(number);
    if (buffer.tier != Tier::device) return false;
    return with_type(buffer.type, [&]<class U>(U*) {
      for (Piece const& piece : plan_.pieces(of, buffer.range)) {
        Init const& init = plan_.parameter({of.unit, piece.parameter}).init;
        auto* const to = reinterpret_cast<U*>(memory_.train(number) + buffer.at(piece.flat.begin));
        if (!backend::InitialValues<Place>::fill(context_, {seed, of.unit, piece.parameter, init}, init.kind,
                                                 piece.logical.begin, to, piece.flat.size()))
          return false;
      }
      return true;
    });
  }
  /// Sets the elements `now` of a flat group to the values of `source`, in each buffer of `staged` that holds
  /// some of these elements. Uses all threads of the rank.
  void fill(ParameterSource const& source, Flat of, Range now, std::span<Staged> staged) {
    for (Staged& one : staged) {
      one.part = intersect(now, one.buffer->range);
      if (one.part.size() > 0) one.values = memory_.stage(context_, *one.buffer, one.part, one.staging);
    }
    std::exception_ptr thrown;
    std::mutex mutex;
    auto const fill_piece = [&](Piece const& piece) {
      std::array<float, task_elements> values;
      bool requested = false;
      for (Staged const& one : staged) {
        Range const here = intersect(piece.flat, one.part);
        if (here.size() == 0) continue;
        if (!std::exchange(requested, true))
          source(of.unit, piece.parameter, piece.logical.begin,
                 {values.data(), static_cast<std::size_t>(piece.logical.size())});
        narrow({values.data() + (here.begin - piece.flat.begin), static_cast<std::size_t>(here.size())},
               one.buffer->type, one.values + one.buffer->bytes_of(here.begin - one.part.begin));
      }
    };
    context_.host().pool().parallel_for(
        (now.size() + task_elements - 1) / task_elements, [&](std::int64_t task, int) {
          std::int64_t const begin = now.begin + task * task_elements;
          try {
            for (Piece const& piece : plan_.pieces(of, {begin, std::min(begin + task_elements, now.end)}))
              fill_piece(piece);
          } catch (...) {
            std::lock_guard const lock(mutex);
            if (!thrown) thrown = std::current_exception();
          }
        });
    if (thrown) std::rethrow_exception(thrown);
    for (Staged const& one : staged)
      if (one.part.size() > 0) memory_.unstage(context_, *one.buffer, one.part, one.values);
  }
  /// Sends the elements `now` of a buffer from rank `from` to rank 0. On ranks 0 and `from`, returns the
  /// address of these elements. The address is in `staging` if the elements had to be copied. All other ranks
  /// do nothing and return null.
  std::byte const* fetch_to_root(Buffer const& buffer, Range now, int from, std::byte* staging) {
    if (plan_.shape.rank != from && !plan_.is_root()) return nullptr;
    std::int64_t const bytes = buffer.bytes_of(now.size());
    comm::CollectiveId const by{"collect", plan_.unit(buffer.unit).name.c_str(), -1};
    if (plan_.shape.rank != from) {
      transport_.receive(from, staging, bytes, by);
      return staging;
    }
    Range const part{now.begin / shard_alignment * shard_alignment, round_up(now.end, shard_alignment)};
    std::byte const* const own =
        memory_.view(context_, buffer, part, staging) + buffer.bytes_of(now.begin - part.begin);
    if (!plan_.is_root()) transport_.send(0, own, bytes, by);
    return own;
  }

  StepPlan const& plan_;
  StepMemory<Place> const& memory_;
  Context<Place>& context_;
  comm::Transport& transport_;
};

}  // namespace v0
}  // namespace tessera
