// SPDX-License-Identifier: Apache-2.0
// The only owner of model state: weights, gradients, optimizer. It knows where each lies; nobody else asks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/nn/init.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/step_memory.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// The way of a move between ranks: among all, or those of this one's row or column, in its lane's channel.
inline comm::Peers way_of(Entry const& entry, StepShape const& shape, comm::Transport& transport) {
  int const shards = shape.shards(), rank = shape.rank, channel = entry.lane == Lane::gathering;
  switch (entry.group) {
    case Group::all:
      return transport.over({}, channel);
    case Group::shards:
      return transport.over({rank - rank % shards, 1, shards}, channel);
    case Group::replicas:
      return transport.over({rank % shards, shards, shape.replicas}, channel);
    case Group::next:
    case Group::previous:
    case Group::tensor:
      break;
  }
  throw Error(ErrorKind::unsupported, "a schedule has a group of ranks that no engine runs");
}

/// Carries out the entries that move or change state: an entry says what happens, its buffers say where.
/// What a step calls only enqueues (collectives and disks block on the CPU) and allocates nothing. Host tasks
/// refer to it: it stays where it is.
template <class Place, class T>
class ParameterStore {
 public:
  using S = compute_t<T>;
  using Kind = BufferKind;

  ParameterStore(StepPlan const& plan, StepMemory<Place> const& memory, Context<Place>& context,
                 comm::Transport& transport, StepRule const& rule)
      : plan_(plan), memory_(memory), context_(context), transport_(transport), rule_(rule) {
    std::vector<NormRange> const ranges = plan_.norm_ranges();
    int const world = plan_.shape.world;
    shares_.bytes = share_bytes(plan_.norm_blocks(), plan_.shape.accumulation);
    shares_.sums = share_sums_offset(plan_.norm_blocks());
    shares_.unit_count = static_cast<int>(ranges.size());
    shares_.ranks = world;
    shares_.losses_by = plan_.losses_by();
    shares_.accumulation = plan_.shape.accumulation;
    shares_.first = state_bytes(world > 1 ? Kind::all_partials : Kind::partials);
    std::byte* const table = state_bytes(Kind::norm_ranges);
    shares_.units = reinterpret_cast<NormRange const*>(table);
    for (NormRange const& range : ranges) norm_offset_.push_back(range.offset);
    place_rows();
    host_work_ = std::make_unique<HostWork[]>(
        2 * (plan_.train.schedule.entries.size() + plan_.evaluate.schedule.entries.size()));
    HostWork* next = host_work_.get();
    for (Program const* program : {&plan_.train, &plan_.evaluate})
      for (Entry const& entry : program->schedule.entries)
        for (bool const first : {false, true}) *next++ = {this, program, &entry, first};
    set_bytes(table, ranges.data(), ranges.size() * sizeof(NormRange));
  }
  ParameterStore(ParameterStore const&) = delete;
  ParameterStore& operator=(ParameterStore const&) = delete;

  /// A copy of the scalars; waits as `settle` does.
  StepState state() {
    settle();
    StepState copy;
    std::memcpy(&copy, context_.host_view(state_address(), sizeof copy), sizeof copy);
    return copy;
  }
  /// Where they are: memory of the place.
  StepState* state_address() const { return reinterpret_cast<StepState*>(state_bytes(Kind::scalars)); }

  /// Carries out one entry of a program of the plan for a micro-batch, on the lane that the context is in.
  void run(Program const& program, Entry const& entry, int micro_batch) {
    bool const first = micro_batch == 0;
    if (entry.verb == Verb::decide) {
      context_.await_copies();  // no update before; all come after this
      return ops::finish_step(context_, shares_, state_address(), rule_);
    }
    bool const on_device = entry.lane != Lane::disk && entry.lane != Lane::host;
    if (on_device && entry.move != Move::none) return move(program, entry, micro_batch);
    if (on_device) return work(context_, entry, first);
    auto index = static_cast<std::size_t>(&entry - program.schedule.entries.data());
    if (&program == &plan_.evaluate) index += plan_.train.schedule.entries.size();
    context_.host_task(cost_of(program, entry), &ParameterStore::run_on_host, &host_work_[2 * index + first]);
  }

  /// Where one micro-batch leaves its loss sum and token count: memory of the place.
  LossSum* loss_slot(int micro_batch) const { return share().losses(0) + micro_batch; }
  /// Before a step: fixes its scalars; no value is known to be bad yet.
  void begin_step(double learning_rate) {
    ops::begin_step(context_, state_address(), share().bad(0), rule_, learning_rate);
  }

  // ---- outside steps --------------------------------------------------------------------------------------

  /// Waits for what steps left under way; throws PeerLost when another rank keeps it from ending. On the CPU
  /// every step ends complete.
  void settle() {
    transport_.await([this] { return context_.finished(); }, "the end of its steps");
  }

  /// Sets all weights this rank holds (and its master weights) from a source; moments and scale start anew.
  /// Local: no rank waits for another. `seed`, or null: the source's are the model's initial values by it,
  /// which a place may form where they lie.
  void fill(ParameterSource const& source, std::uint64_t const* seed = nullptr) {
    for (Flat const of : plan_.flats()) {
      Buffer const& weights = state(Kind::weights, of);
      Buffer const& master = state(plan_.master_kind(of), of);
      bool const apart = plan_.master_kind(of) == Kind::master && master.range.size() > 0;
      bool const weights_are = seed && form_there<T>(*seed, of, Kind::weights);
      bool const master_is = !apart || (seed && form_there<S>(*seed, of, Kind::master));
      HostArena spare_weights, spare_master;
      std::byte* const staged_weights =
          weights_are ? nullptr : memory_.stage(context_, weights, spare_weights);
      std::byte* const staged_master = master_is ? nullptr : memory_.stage(context_, master, spare_master);
      if (staged_weights || staged_master)
        form(source, of, weights.range, reinterpret_cast<T*>(staged_weights), master.range,
             reinterpret_cast<S*>(staged_master));
      if (!weights_are) memory_.unstage(context_, weights, staged_weights);
      if (!master_is) memory_.unstage(context_, master, staged_master);
      transport_.heartbeat();  // a slow disk is no dead rank
    }
  }
  /// What the optimizer keeps starts anew.
  void clear_moments() {
    for (Buffer const& buffer : plan_.train.buffers)
      if (buffer.kind == Kind::moment) {
        memory_.clear(context_, buffer);
        transport_.heartbeat();
      }
  }

  /// Passes every parameter's logical values to `sink` on rank 0, in consecutive pieces and sorted by name.
  /// The values are the master weights; a frozen parameter's are the weights themselves. All ranks must call
  /// it; the sinks of the other ranks are not called. Waits for all enqueued work. Uses SaveStaging::summed
  /// bytes of host memory outside the arenas.
  void collect_pieces(ParameterSink const& sink) {
    settle();
    struct Named {
      std::string const* name = nullptr;
      int unit = 0, parameter = 0;
    };
    std::vector<Named> all;
    for (int unit = 0; unit < plan_.units_count(); ++unit)
      for (int parameter = 0; parameter < static_cast<int>(plan_.unit(unit).parameters.size()); ++parameter)
        all.push_back(
            {&plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)].name, unit, parameter});
    auto const order = detail::sorted_indices(
        all.size(), [&](std::size_t a, std::size_t b) { return *all[a].name < *all[b].name; });
    HostArena const room(SaveStaging::summed);
    for (std::size_t const index : order) {
      Named const& next = all[index];
      auto const parameter = static_cast<std::size_t>(next.parameter);
      ParameterSpec const& spec = plan_.unit(next.unit).parameters[parameter];
      Flat const of = plan_.flat_of(next.unit, next.parameter);
      Buffer const& master = state(plan_.master_kind(of), of);
      Range const lies = plan_.layout(of.unit).parameters[parameter];
      for (Range now{lies.begin, lies.begin}; now.end < lies.end; now.begin = now.end) {
        std::int64_t const chunk = now.begin / checkpoint_chunk, shard = now.begin / plan_.flat(of).shard;
        bool const split = plan_.is_split(master);  // rank k of the first row has shard k
        now.end = std::min((chunk + 1) * checkpoint_chunk, lies.end);
        if (split) now.end = std::min(now.end, (shard + 1) * plan_.flat(of).shard);
        std::byte const* const stored =
            brought(master, now, split ? static_cast<int>(shard) : plan_.first_with(master), room.base());
        if (!plan_.is_root()) continue;
        auto* const values = reinterpret_cast<float*>(room.base() + SaveStaging::values);
        auto const count = static_cast<std::size_t>(now.size());
        if (master.type == dtype_of<S>)
          sink(spec, {as_float(reinterpret_cast<S const*>(stored), count, values), count});
        else
          sink(spec, {as_float(reinterpret_cast<T const*>(stored), count, values), count});
        transport_.heartbeat();
      }
    }
  }

  /// Same as collect_pieces, but passes whole parameters.
  void collect(ParameterSink const& sink) { collect_pieces(whole_parameters(sink)); }

  /// "h.3.mlp.c_fc.weight": the parameter that holds an element of a trainable flat group, by its number
  /// among them, or the name of the group's unit.
  std::string name_at(std::int64_t normed, std::int64_t element) const {
    for (Flat const of : plan_.trainable()) {
      if (plan_.flat(of).normed != normed) continue;
      UnitSpec const& unit = plan_.unit(of.unit);
      for (Piece const& piece : plan_.pieces(of, {element, element + 1}))
        return unit.parameters[static_cast<std::size_t>(piece.parameter)].name;
      return unit.name;
    }
    return {};
  }

 private:
  template <class U>
  static std::int64_t bytes_of(std::int64_t elements) {
    return elements * static_cast<std::int64_t>(sizeof(U));
  }

  // Where things are.

  Buffer const& state(Kind kind, Flat of) const { return plan_.train.at(plan_.train.find(kind, of)); }
  std::byte* state_bytes(Kind kind, Flat of = {}) const { return memory_.train(plan_.train.find(kind, of)); }
  /// This rank's share as a world of one: where it is found, or its copy on the host.
  StepShares share(int buffer) const {
    StepShares own = shares_;
    own.first = memory_.train(buffer);
    return own;
  }
  StepShares share() const { return share(plan_.train.find(Kind::partials, -1)); }
  /// The values of a part of a flat group in a training buffer.
  std::byte* at(int buffer, Range part) const {
    return memory_.train(buffer) + plan_.train.at(buffer).at(part.begin);
  }
  template <class U>
  U* values(int buffer, Range part) const {
    return reinterpret_cast<U*>(at(buffer, part));
  }

  /// Returns on rank 0 the elements of a buffer that rank `from` holds, in `room` if they have to be copied.
  /// Only these two ranks take part.
  std::byte const* brought(Buffer const& buffer, Range now, int from, std::byte* room) {
    if (plan_.shape.rank != from && !plan_.is_root()) return nullptr;
    std::int64_t const bytes = buffer.bytes_of(now.size());
    comm::CollectiveId const by{"collect", plan_.unit(buffer.unit).name.c_str(), -1};
    if (plan_.shape.rank != from) {
      transport_.receive(from, room, bytes, by);
      return room;
    }
    Range const part{now.begin / shard_alignment * shard_alignment, round_up(now.end, shard_alignment)};
    std::byte const* const own =
        memory_.view(context_, buffer, part, room) + buffer.bytes_of(now.begin - part.begin);
    if (!plan_.is_root()) transport_.send(0, own, bytes, by);
    return own;
  }
  /// Converts values to fp32 in `room`; fp32 values are returned in place.
  template <class U>
  static float const* as_float(U const* stored, std::size_t count, float* room) {
    if constexpr (std::is_same_v<U, float>) {
      return stored;
    } else {
      for (std::size_t i = 0; i < count; ++i) room[i] = static_cast<float>(stored[i]);
      return room;
    }
  }

  // Moves.

  void move(Program const& program, Entry const& entry, int micro_batch) {
    comm::Peers const among = way_of(entry, plan_.shape, transport_);
    if (entry.items.size() > 1) transport_.begin_group();
    for (Item const& item : entry.items) move(program, entry, item, micro_batch, among);
    if (entry.items.size() > 1) transport_.end_group();
  }
  void move(Program const& program, Entry const& entry, Item const& item, int micro_batch,
            comm::Peers const& among) {
    int const source_buffer = item.at(Role::source), target_buffer = item.at(Role::target);
    Buffer const &source = program.at(source_buffer), &target = program.at(target_buffer);
    std::byte* const from = memory_.of(program)[static_cast<std::size_t>(source_buffer)];
    std::byte* const to = memory_.of(program)[static_cast<std::size_t>(target_buffer)];
    std::byte* const own = from + source.at(item.part.begin);
    std::int64_t const count = item.part.size();
    std::int64_t const bytes = source.bytes_of(count);
    comm::CollectiveId const by{name_of(entry.verb).data(),
                                item.of.unit < 0 ? "all units" : plan_.unit(item.of.unit).name.c_str(),
                                micro_batch};
    switch (entry.move) {
      case Move::none:
        break;
      case Move::copy:
        if (count > 0) copy(own, to + target.at(item.part.begin), bytes * source.pieces);
        break;
      case Move::all_gather:
        transport_.all_gather(own, to, bytes, by, among);
        break;
      case Move::reduce_scatter:
        transport_.reduce_scatter(source.type, from, to + target.at(item.part.begin), count, by, among);
        break;
      case Move::all_reduce:
        transport_.all_reduce(source.type, to + target.at(item.part.begin), count, by, among);
        break;
      case Move::all_to_all:
        transport_.all_to_all(from, to, bytes, by, plan_.shape.shards(), among);
        break;
      case Move::gather:
        transport_.gather(item.root, own, to, bytes, by, among);
        break;
      case Move::broadcast:
        transport_.broadcast(item.root, to, bytes, by, among);
        break;
      case Move::send:
      case Move::receive:
        throw Error(ErrorKind::unsupported, "a schedule crosses stages of a pipeline, which no engine runs");
    }
  }
  /// State begins and ends at multiples of 64 elements: 4 bytes at a time whatever its format.
  void copy(std::byte const* from, std::byte* to, std::int64_t bytes) {
    Shape const shape{bytes / 4};
    ops::copy(context_, Tensor<float const, Place>{reinterpret_cast<float const*>(from), shape},
              Tensor<float, Place>{reinterpret_cast<float*>(to), shape});
  }

  // Work, on the context of the place where its values lie.

  struct HostWork {
    ParameterStore* store;
    Program const* program;
    Entry const* entry;
    bool first;  // of the micro-batches
  };
  static void run_on_host(Context<Cpu>& host, void* data) {
    HostWork const& task = *static_cast<HostWork const*>(data);
    if (task.entry->lane == Lane::disk)
      task.store->memory_.transfer(*task.program, *task.entry);
    else
      task.store->work(host, *task.entry, task.first);
  }
  /// What the host is about to do: AdamW reads gradient, master weights and moments, and writes the last
  /// three and the weights; the others read about what they are given.
  Operation cost_of(Program const& program, Entry const& entry) const {
    if (entry.lane == Lane::disk) {
      bool const reads = has_addresses(program.at(entry.at(Role::target)).tier);
      return {reads ? "disk_read" : "disk_write", 0.0, static_cast<double>(program.bytes_of(entry))};
    }
    Item const& item = entry.items.front();
    double const elements = static_cast<double>(item.part.size());
    double const given = static_cast<double>(size_of(plan_.train.at(item.taken()).type));
    if (entry.verb != Verb::update) return {"host_sums", 2.0 * elements, given * elements};
    double const weights = item.at(Role::updated_weights) >= 0 ? sizeof(T) : 0.0;
    return {"host_adamw", 14.0 * elements, (given + 6.0 * sizeof(S) + weights) * elements};
  }

  template <class P>
  void work(Context<P>& context, Entry const& entry, bool first) {
    bool const sums = plan_.train.at(entry.taken()).type == dtype_of<S>;
    if (entry.verb == Verb::fold) return fold(context, entry, first);
    if (entry.verb == Verb::norm) return sums ? norm<S>(context, entry) : norm<T>(context, entry);
    if (entry.verb == Verb::update) return sums ? update<S>(context, entry) : update<T>(context, entry);
    detail::throw_error(ErrorKind::failed, {"a schedule works on state by the verb ", name_of(entry.verb),
                                            ", which no store does"});
  }

  /// Adds what arrived, in rank order, to the gradient: acc = c_0, acc = acc + c_m. The last fold on the host
  /// takes the norm too.
  template <class P>
  void fold(Context<P>& context, Entry const& entry, bool first) {
    Item const& item = entry.items.front();
    std::int64_t const count = item.part.size();
    if (count == 0) return;
    int const source = item.at(Role::source), found = entry.at(Role::partials);
    Tensor<S, P> const sum{values<S>(item.at(Role::gradient), item.part), {count}};
    bool const norms = found >= 0;
    ops::fold(
        context, sum, values<T const>(source, item.part), plan_.train.at(source).pieces, count, first,
        norms ? Tensor<float, P>{partials_of(item, found), {count / shard_alignment}} : Tensor<float, P>{},
        norms ? note_of(item, found) : ops::BadNote{});
  }
  template <class G, class P>
  void norm(Context<P>& context, Entry const& entry) {
    ops::norm_partials<G, float>(context, norms_[index_of(entry)]);
  }
  /// AdamW by gradients of G.
  template <class G, class P>
  void update(Context<P>& context, Entry const& entry) {
    std::int64_t const* const skip = &scalars_of(entry)->skipped;
    if (entry.at(Role::updated_weights) >= 0)
      ops::adamw<G, S, T>(context, updates_[index_of(entry)], skip);
    else
      ops::adamw<G, S, void>(context, updates_[index_of(entry)], skip);
  }

  std::size_t index_of(Entry const& entry) const {
    return static_cast<std::size_t>(&entry - plan_.train.schedule.entries.data());
  }
  StepState* scalars_of(Entry const& entry) const {
    return reinterpret_cast<StepState*>(memory_.train(entry.at(Role::scalars)));
  }
  std::size_t number_of(Item const& item) const {
    return static_cast<std::size_t>(plan_.flat(item.of).normed);
  }
  float* partials_of(Item const& item, int found) const {
    return share(found).partials(0) + norm_offset_[number_of(item)];
  }
  /// Where the first value of an item that is not finite is noted.
  ops::BadNote note_of(Item const& item, int found) const {
    return {share(found).bad(0), static_cast<std::int64_t>(number_of(item)), item.part.begin};
  }

  // The rows of norms and updates. Addresses are fixed, so they are written once.

  void place_rows() {
    auto const& entries = plan_.train.schedule.entries;
    std::array<std::byte*, 2> next{state_bytes(Kind::rows), nullptr};
    if (int const on_host = plan_.train.find(Kind::rows, -1, 1); on_host >= 0)
      next[1] = memory_.train(on_host);
    norms_.resize(entries.size());
    updates_.resize(entries.size());
    for (Entry const& entry : entries) {
      if (entry.verb != Verb::norm && entry.verb != Verb::update) continue;
      std::byte*& there = next[static_cast<std::size_t>(plan_.train.at(entry.at(Role::rows)).index)];
      if (entry.verb == Verb::norm)
        norms_[index_of(entry)] = placed(norm_rows(entry), there);
      else
        updates_[index_of(entry)] = placed(update_rows(entry), there);
    }
  }
  template <class Row>
  ops::Rows<Row> placed(std::vector<Row> rows, std::byte*& there) {
    auto const numbered = ops::number_rows(std::span<Row>(rows), reinterpret_cast<Row const*>(there));
    set_bytes(there, rows.data(), rows.size() * sizeof(Row));
    there += rows.size() * sizeof(Row);
    return numbered;
  }
  void set_bytes(std::byte* to, void const* from, std::size_t bytes) {
    if (context_.recorder() || bytes == 0) return;
    std::byte* const staged = context_.stage(to, bytes);
    std::memcpy(staged, from, bytes);
    context_.unstage(to, staged, bytes);
  }
  std::vector<ops::NormRow> norm_rows(Entry const& entry) const {
    std::vector<ops::NormRow> rows;
    int const found = entry.at(Role::partials);
    for (Item const& item : entry.items)
      if (std::int64_t const count = item.part.size())
        rows.push_back({at(item.at(Role::gradient), item.part), partials_of(item, found), count, 0,
                        note_of(item, found)});
    return rows;
  }
  /// A flat group has weights with decay and weights without; the elements that pad it are zero and stay so.
  std::vector<ops::UpdateRow> update_rows(Entry const& entry) const {
    std::vector<ops::UpdateRow> rows;
    for (Item const& item : entry.items) {
      FlatLayout const& layout = plan_.flat(item.of);
      int const weights = item.at(Role::updated_weights);
      for (int decay : {0, 1}) {
        Range const all = decay == 0 ? layout.decayed : Range{layout.undecayed.begin, layout.padded};
        Range const now = intersect(item.part, all);
        if (now.size())
          rows.push_back({now.size(), 0, at(item.at(Role::gradient), now), at(item.at(Role::master), now),
                          at(item.at(Role::moment, 0), now), at(item.at(Role::moment, 1), now),
                          weights >= 0 ? at(weights, now) : nullptr,
                          factors_of<S>(scalars_of(entry)) + decay});
      }
    }
    return rows;
  }

  /// Whether the place itself formed a buffer's initial values, in its own memory. What pads a new arena is
  /// zero.
  template <class U>
  bool form_there(std::uint64_t seed, Flat of, Kind kind) {
    Buffer const& buffer = state(kind, of);
    if (buffer.tier != Tier::device || buffer.type != dtype_of<U>) return false;
    for (Piece const& piece : plan_.pieces(of, buffer.range)) {
      Init const& init = plan_.unit(of.unit).parameters[static_cast<std::size_t>(piece.parameter)].init;
      U* const to = reinterpret_cast<U*>(state_bytes(kind, of)) + piece.flat.begin - buffer.range.begin;
      if (!backend::InitialValues<Place>::form(context_, {seed, of.unit, piece.parameter, init}, init.kind,
                                               piece.logical.begin, to, piece.flat.size()))
        return false;
    }
    return true;
  }

  /// Fills the parts of a flat group that this rank keeps as weights and as master weights; null: not these.
  void form(ParameterSource const& source, Flat of, Range kept, T* weights, Range updated, S* master) {
    constexpr std::int64_t chunk = 16384;
    std::exception_ptr thrown;
    std::mutex mutex;
    auto const form_piece = [&](Piece const& piece) {
      Range const in_weights = weights ? intersect(piece.flat, kept) : Range{},
                  in_master = master ? intersect(piece.flat, updated) : Range{};
      if (!in_weights.size() && !in_master.size()) return;
      std::array<float, chunk> values;
      source(of.unit, piece.parameter, piece.logical.begin,
             std::span<float>{values.data(), static_cast<std::size_t>(piece.logical.size())});
      for (std::int64_t i = in_weights.begin; i < in_weights.end; ++i)
        weights[i - kept.begin] = static_cast<T>(values[static_cast<std::size_t>(i - piece.flat.begin)]);
      for (std::int64_t i = in_master.begin; i < in_master.end; ++i)
        master[i - updated.begin] = static_cast<S>(values[static_cast<std::size_t>(i - piece.flat.begin)]);
    };
    context_.host().pool().parallel_for(plan_.flat(of).padded / chunk + 1, [&](std::int64_t task, int) {
      try {
        for (Piece const& piece : plan_.pieces(of, {task * chunk, (task + 1) * chunk})) form_piece(piece);
      } catch (...) {
        std::lock_guard const lock(mutex);
        if (!thrown) thrown = std::current_exception();
      }
    });
    if (thrown) std::rethrow_exception(thrown);
  }

  StepPlan const& plan_;
  StepMemory<Place> const& memory_;
  Context<Place>& context_;
  comm::Transport& transport_;
  StepRule const& rule_;
  StepShares shares_;  // of all ranks
  std::vector<std::int64_t> norm_offset_;
  std::vector<ops::Rows<ops::NormRow>> norms_;  // of each training entry, as the next
  std::vector<ops::Rows<ops::UpdateRow>> updates_;
  std::unique_ptr<HostWork[]> host_work_;  // of each entry: later, and in the first micro-batch
};

}  // namespace v0
}  // namespace tessera
