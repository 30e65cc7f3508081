// SPDX-License-Identifier: Apache-2.0
// Makes the plan of a rank from a model's units, a recipe's table and a step's shape: the schedule, its
// buffers and their offsets. Uses no device and allocates no model memory. The executor, the program `plan`
// and the tests read the same result.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/place.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/moves.hpp"
#include "tessera/plan/overlap.hpp"
#include "tessera/plan/placing.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_buffers.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/plan/work_order.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Writes one program. Start reading at `run`: it is the training step in a few lines.
class Generator {
 public:
  Generator(StepPlan const& plan, bool training) : plan_(plan), training_(training) {}
  Generator(Generator const&) = delete;
  Generator& operator=(Generator const&) = delete;

  /// Writes all micro-batches but the last as one body that repeats, then the last micro-batch, then the
  /// update. If `whole` is false, writes no body and no waits; all buffers still get the same offsets.
  Program run(bool whole) {
    int const micro_batches = training_ ? plan_.shape.accumulation : 1;
    Schedule& schedule = program_.schedule;
    if (whole && micro_batches > 1) {
      micro_batch(0, false);
      schedule.body_end = static_cast<int>(schedule.entries.size());
      schedule.times = micro_batches - 1;
    }
    micro_batch(micro_batches - 1, true);
    if (training_) {
      micro_ = -1;
      norms();
      for (Flats const& batch : update_batches()) update(batch);
    }
    overlap(schedule, plan_.shape.prefetch, plan_.shape.weight_lag);
    place_buffers(program_);
    if (whole) connect(schedule, sharing_of(program_));
    return std::move(program_);
  }

 private:
  using Kind = BufferKind;
  using List = std::vector<int>;
  using Flats = std::vector<Flat>;

  /// The values of a flat group: their buffer and their placement.
  struct Values {
    int buffer = -1;
    Placement placement{};
  };
  /// Values that `route` moves. `into` is the buffer that must hold them at the end, -1 for any. `left` is
  /// the buffer that held them before their last move.
  struct Transfer {
    Flat of{};
    Values values{};
    int into = -1;
    int left = -1;
    int index = 0;  ///< Buffer::index of the contents; for a moment: the number of the optimizer state
  };

  void micro_batch(int number, bool last) {
    micro_ = number;
    last_ = last;
    std::size_t const flats = plan_.flats().size();
    gathered_ = List(flats, -1);
    for (List& counts : copies_made_) counts = List(flats, 0);
    std::vector<Work> const works = order_.works();
    for (std::size_t index = 0; index < works.size(); ++index) {
      Flats const read = order_.weights_of(works[index]);
      for (Flat const of : read) gather(of);
      compute(works[index], read);
      release(index + 1 < works.size() ? order_.weights_of(works[index + 1]) : Flats());
      if (works[index].completes()) finish_micro_gradient(works[index].unit);
    }
  }

  int units() const { return plan_.units_count(); }
  DTypes const& types() const { return plan_.recipe.types; }
  PlacementTable const& rows() const { return plan_.placement(); }
  StepTable const& table() const { return plan_.table; }
  bool ordered() const { return plan_.recipe.reduction == ReductionKind::ordered; }
  bool several() const { return plan_.shape.world > 1; }

  // Functions that emit entries.

  using Operands = std::vector<Operand>;

  Entry& emit(Verb verb, int unit, Lane lane, Operands operands, std::vector<Item> items = {}) {
    Entry entry;
    entry.verb = verb;
    entry.unit = unit;
    entry.micro_batch = micro_;
    entry.lane = lane;
    entry.operands = std::move(operands);
    entry.items = std::move(items);
    program_.schedule.entries.push_back(std::move(entry));
    return program_.schedule.entries.back();
  }
  /// The unit to which all items belong; -1 if they belong to several.
  static int unit_of(std::vector<Item> const& items) {
    for (Item const& item : items)
      if (item.of.unit != items.front().of.unit) return -1;
    return items.front().of.unit;
  }
  /// Emits work of this rank on flat groups, in the tier of the first operand of the first item.
  Entry& work(Verb verb, std::vector<Item> items, Operands whole) {
    bool const on_device = buffers_[items.front().operands.front().buffer].tier == Tier::device;
    int const unit = unit_of(items);
    return emit(verb, unit, on_device ? Lane::compute : Lane::host, std::move(whole), std::move(items));
  }
  /// One flat group in a move: its source and target buffer, and this rank's part.
  struct MovedPart {
    Flat of{};
    int from = -1, to = -1;
    Range part{};
  };
  /// Emits one entry that moves the values of one or several flat groups in one call.
  Entry& move(Verb verb, Move move, std::vector<MovedPart> const& all, Group group = Group::all) {
    Tier const here = buffers_[all.front().from].tier, there = buffers_[all.front().to].tier;
    bool const ahead = verb == Verb::gather && plan_.shape.channels > 1;
    Lane const lane = move == Move::copy ? lane_between(here, there)
                      : ahead            ? Lane::gathering
                                         : Lane::communication;
    bool const rooted = move == Move::gather || move == Move::broadcast;
    std::vector<Item> items;
    for (MovedPart const& one : all) {
      Item item{one.of, one.part, rooted ? plan_.owner(one.of) : -1, {}};
      item.operands = {{Role::source, Access::read, one.from}, {Role::target, Access::write, one.to}};
      items.push_back(std::move(item));
    }
    int const unit = unit_of(items);
    Entry& entry = emit(verb, unit, lane, {}, std::move(items));
    entry.move = move;
    entry.group = group;
    return entry;
  }

  static Lane lane_between(Tier here, Tier there) {
    if (here == there) return Lane::compute;
    if (!has_addresses(here) || !has_addresses(there)) return Lane::disk;
    return here == Tier::device ? Lane::download : Lane::upload;
  }

  /// Brings state to the placement `to` through a chain of moves. State moves only through this function.
  /// Each hop writes to `into` if that buffer fits, else in place if possible, else to scratch: a new copy of
  /// the `contents`. If no hop has written to `into`, a last copy does. All transfers must start in the same
  /// placement. A move between ranks is one entry for all of them. Afterwards each transfer names the new
  /// buffer and placement of its values.
  void route(Verb verb, std::span<Transfer> transfers, Placement const& to, Kind contents) {
    Placement const from = transfers.front().values.placement;
    std::vector<Hop> const hops = moves_between(from, to, {ordered(), plan_.shape.replicas});
    for (Hop const& hop : hops) {
      bool const from_all = hop.move == Move::all_gather || hop.move == Move::gather;
      std::vector<MovedPart> together;
      for (Transfer& transfer : transfers) {
        int const next = buffer_after(verb, transfer, hop, &hop == &hops.back(), contents);
        Sharding const over = from_all ? transfer.values.placement.over : hop.after.over;
        MovedPart const one{transfer.of, transfer.values.buffer, next, part_of(hop.move, transfer.of, over)};
        if (hop.move == Move::copy)
          move(verb, hop.move, {one});
        else
          together.push_back(one);
        transfer.left = transfer.values.buffer;
        transfer.values = {next, hop.after};
      }
      if (!together.empty()) move(verb, hop.move, together, hop.group);
    }
    for (auto& [of, values, into, left, index] : transfers) {
      if (into < 0 || values.buffer == into) continue;
      move(verb, Move::copy, {{of, values.buffer, into, part_of(Move::copy, of, to.over)}});
      left = values.buffer;
      values.buffer = into;
    }
  }
  /// Does the same for one flat group. Returns the buffer that holds the values afterwards.
  int route(Verb verb, Flat of, Values values, Placement const& to, Kind contents, int into = -1,
            int index = 0) {
    Transfer transfer{of, values, into, -1, index};
    route(verb, {&transfer, 1}, to, contents);
    return transfer.values.buffer;
  }
  /// Returns the buffer to which a hop of a transfer writes. A broadcast works in place, so this function
  /// first emits a copy to that buffer if the values are in another one.
  int buffer_after(Verb verb, Transfer& transfer, Hop const& hop, bool last, Kind contents) {
    auto& [of, values, into, left, index] = transfer;
    Buffer const here = buffers_[values.buffer];
    bool const summands = hop.move == Move::all_to_all ||
                          (hop.move == Move::gather && values.placement.over == Sharding::partial);
    int const pieces = summands ? plan_.shape.world : here.pieces;
    auto const fits = [&](int buffer) {
      return pieces == 1 && buffer >= 0 && buffers_[buffer].tier == hop.after.tier &&
             holds(buffers_[buffer].over, hop.after.over);
    };
    // Summands, and values that an owner will broadcast, need room for the full flat group.
    Placement after = hop.after;
    bool const onwards = !last && after.tier == Tier::device;
    if (after.over == Sharding::partial || (after.over == Sharding::owned && onwards))
      after.over = Sharding::replicated;
    int const next = fits(into) ? into
                     : fits(values.buffer)
                         ? values.buffer
                         : buffers_.state_buffer(contents, of, index, {verb, copies_made(verb, of)++},
                                                 here.type, after, pieces, here.block);
    if (hop.move == Move::broadcast && next != values.buffer) {
      move(verb, Move::copy, {{of, values.buffer, next, part_of(Move::copy, of, values.placement.over)}});
      values.buffer = next;
    }
    return next;
  }
  /// The number of copies of a flat group that a verb has made in this micro-batch.
  int& copies_made(Verb verb, Flat of) {
    return copies_made_[static_cast<std::size_t>(verb)][static_cast<std::size_t>(plan_.flat(of).number)];
  }
  /// The elements of this rank in a move. In a broadcast these are all elements.
  Range part_of(Move move, Flat of, Sharding over) const {
    return move == Move::broadcast ? Range{0, plan_.flat(of).padded} : plan_.held(over, of);
  }

  /// Emits the entries that bring the full weights of a flat group to the device, unless they are there
  /// already.
  void gather(Flat of) {
    if (rows().parameters == Placement{}) return;
    if (contains(in_use_, of)) return;
    in_use_.push_back(of);
    // A micro-batch can gather a flat group several times. Each time has its own buffer with its own
    // lifetime.
    int const whole = buffers_.state_buffer(
        Kind::weights, of, 0, {Verb::gather, copies_made(Verb::gather, of)++}, types().parameter, {});
    gathered_[static_cast<std::size_t>(plan_.flat(of).number)] = whole;
    route(Verb::gather, of, {buffers_.weights(of), rows().parameters}, {}, Kind::weights, whole);
  }

  /// Ends the use of all gathered weights but the needed ones.
  void release(Flats const& needed) {
    Flats kept;
    for (Flat const owner : in_use_)
      if (contains(needed, owner))
        kept.push_back(owner);
      else
        emit(Verb::release, owner.unit, Lane::compute,
             {{Role::weights, Access::read, weights(owner), 0, owner}});
    in_use_ = std::move(kept);
  }

  /// The buffer of the weights that a compute entry reads.
  int weights(Flat of) {
    if (rows().parameters == Placement{}) return buffers_.weights(of);
    return gathered_[static_cast<std::size_t>(plan_.flat(of).number)];
  }

  /// Emits the entry of a computation with its operands, and the entries that must follow it.
  void compute(Work const& work, Flats const& read) {
    int const unit = work.unit, segment = work.segment;
    UnitSpec const& spec = plan_.unit(unit);
    bool const last_unit = unit + 1 == units(), last_segment = segment + 1 == spec.segments();
    bool const backward = work.verb == Verb::backward_input || work.verb == Verb::backward_weight;
    bool const forward = work.verb == Verb::forward;
    bool const again = work.verb == Verb::recompute || work.verb == Verb::restore;
    bool const apart = work.verb == Verb::backward_weight && plan_.shape.weight_lag > 0;
    Operands operands{{Role::batch, Access::read, buffers_.batch()},
                      {Role::scalars, Access::read, buffers_.scalars()},
                      {Role::workspace, Access::write, buffers_.workspace(apart)}};
    auto const use = [&](Role role, Access access, int buffer, int index = 0, Flat of = {}) {
      operands.push_back({role, access, buffer, index, of});
    };
    auto const use_tied = [&](Access access, int buffer, int index, Borrow const& what) {
      use(Role::tied_gradient, access, buffer, index, plan_.flat_of(what.unit, what.parameter));
      operands.back().begin = buffers_.tied_begin(buffer, what);
    };
    // A backward_weight keeps the weights `read` only for the next segment. In the lane of gradients they are
    // not its operands, since the next segment must not wait for that lane.
    if (!apart)
      for (Flat const owner : read) use(Role::weights, Access::read, weights(owner), 0, owner);
    if (unit > 0) use(Role::input, Access::read, forward ? buffers_.output(unit - 1) : input_again(unit));
    for (int index = 0; index < static_cast<int>(spec.saved.size()); ++index) {
      ActivationSpec const& kept = spec.saved[static_cast<std::size_t>(index)];
      int const by = kept.segment;
      bool const uses = backward || (work.verb == Verb::restore && !kept.cheap);
      if (by > segment || (uses && !plan_.wanted(unit, kept))) continue;
      bool const dropped = order_.drops(unit, static_cast<std::size_t>(index));
      bool const made = by == segment && (forward || (again && dropped));
      use(Role::saved, made ? Access::write : Access::read, buffers_.saved(unit, index, forward && dropped),
          index);
    }
    if (forward && last_segment) {
      if (spec.output.dims()) use(Role::output, Access::write, buffers_.output(unit));
    }
    if ((forward || work.verb == Verb::recompute) && last_unit && last_segment)
      use(Role::losses, Access::write, buffers_.losses());
    if (work.verb == Verb::recompute && last_segment && !order_.rebuilt_last(unit))
      use(Role::output, Access::write, buffers_.rebuilt_output(unit));
    if (backward) {
      if (!last_unit && last_segment)
        use(Role::output_gradient, Access::read, buffers_.output_gradient(unit));
      for (int index = 0; index < static_cast<int>(spec.backward.size()); ++index) {
        if (!plan_.wanted(unit, spec.backward[static_cast<std::size_t>(index)])) continue;
        bool const own = spec.backward[static_cast<std::size_t>(index)].segment == segment;
        bool const from_next = !last_segment && spec.boundary(segment).gradient == index;
        bool const handed_on = segment > 0 && spec.boundary(segment - 1).gradient == index;
        if (own && work.verb == Verb::backward_input)
          use(Role::backward, Access::write, buffers_.backward(unit, index), index);
        else if (from_next || (own && !handed_on))
          use(Role::backward, Access::read, buffers_.backward(unit, index), index);
      }
      if (work.verb == Verb::backward_input && segment == 0 && unit > order_.lowest() && spec.input_gradient)
        use(Role::input_gradient, Access::write, buffers_.output_gradient(unit - 1));
    }
    if (work.verb == Verb::backward_weight) {
      for (int index = 0; index < static_cast<int>(spec.parameters.size()); ++index) {
        Flat const of = plan_.flat_of(unit, index);
        if (plan_.flat(of).trainable && buffers_.is_borrowed(unit, index))
          use_tied(Access::read, buffers_.tied_sum({unit, index}), index, {unit, index});
      }
      for (Flat const of : plan_.flats(unit))
        if (plan_.flat(of).trainable) use(Role::gradient, Access::write, buffers_.micro_gradient(of), 0, of);
      for (int index = 0; index < static_cast<int>(spec.borrows.size()); ++index)
        if (int const own = buffers_.tied_gradient(unit, index); own >= 0)
          use_tied(Access::write, own, index, spec.borrows[static_cast<std::size_t>(index)]);
    }
    Lane const lane = apart ? Lane::gradients : Lane::compute;
    emit(work.verb, unit, lane, std::move(operands)).segment = segment;
    if (forward && last_unit && last_segment)
      emit(Verb::sum_losses, unit, lane,
           {{Role::losses, Access::read, buffers_.losses()},
            {Role::batch, Access::read, buffers_.batch()},
            {Role::partials, Access::write, buffers_.partials()}});
    if (work.completes()) complete(unit, lane);
    if ((forward || work.verb == Verb::recompute) && !last_segment) {
      int const index = spec.boundary(segment).activation;
      bool const dropped = forward && order_.drops(unit, static_cast<std::size_t>(index));
      cross(work, segment, buffers_.saved(unit, index, dropped), spec.boundary(segment).before.value,
            spec.boundary(segment).after.value);
    }
    if (work.verb == Verb::backward_input && segment > 0)
      cross(work, segment - 1, buffers_.backward(unit, spec.boundary(segment - 1).gradient),
            spec.boundary(segment - 1).after.gradient, spec.boundary(segment - 1).before.gradient);
  }

  /// Brings a segment's result, in place, to the placement that the next segment needs. The sum may have any
  /// order.
  void cross(Work const& work, int boundary, int buffer, Sharding from, Sharding to) {
    for (Hop const& hop : moves_between({from, Tier::device}, {to, Tier::device}, {}))
      move(Verb::cross, hop.move, {{work.unit, buffer, buffer, buffers_[buffer].range}}, Group::tensor)
          .segment = boundary;
  }

  /// Completes a unit's micro-batch gradient after its last backward_weight. Adds the tied gradients of later
  /// borrowers to the tied gradient of the first borrower. Zeroes the gaps between parameters, since other
  /// buffers have used these bytes.
  void complete(int unit, Lane lane) {
    UnitSpec const& spec = plan_.unit(unit);
    for (int index = 0; index < static_cast<int>(spec.borrows.size()); ++index) {
      Borrow const& what = spec.borrows[static_cast<std::size_t>(index)];
      int const own = buffers_.tied_gradient(unit, index), sum = buffers_.tied_sum(what);
      if (own == sum) continue;
      Flat const of = plan_.flat_of(what.unit, what.parameter);
      emit(Verb::add_tied, unit, lane,
           {{Role::source, Access::read, own},
            {Role::tied_gradient, Access::read_write, sum, index, of, buffers_.tied_begin(sum, what)}});
    }
    Operands gaps;
    for (Flat const of : plan_.flats(unit))
      if (plan_.flat(of).trainable && !plan_.flat(of).gaps.empty())
        gaps.push_back({Role::target, Access::write, buffers_.micro_gradient(of), 0, of});
    if (!gaps.empty()) emit(Verb::clear_gaps, unit, lane, std::move(gaps));
  }

  /// The buffer of a unit's input in recompute and in backward.
  int input_again(int unit) {
    bool const inside = order_.rebuilt(unit) && order_.rebuilt_from(unit) != unit;
    return inside ? buffers_.rebuilt_output(unit - 1) : buffers_.output(unit - 1);
  }

  /// Adds a unit's complete micro-batch gradient to the open bucket. Reduces the bucket if it is full or if
  /// no unit follows.
  void finish_micro_gradient(int unit) {
    for (Flat const of : plan_.flats(unit)) {
      if (!plan_.flat(of).trainable) continue;
      bucket_.push_back(of);
      bucket_bytes_ += buffers_[buffers_.micro_gradient(of)].bytes;
    }
    if (bucket_.empty() || (bucket_bytes_ < plan_.shape.bucket_bytes && unit > order_.lowest())) return;
    add_to_gradients(bucket_);
    bucket_.clear();
    bucket_bytes_ = 0;
  }

  /// Reduces the micro-batch gradients of a bucket together, and accumulates them. After the last
  /// micro-batch, also brings the sums to their final placement. Norms need no extra pass over host memory:
  /// the last accumulate on the host computes them, or the device computes them before the gradient moves to
  /// the host.
  void add_to_gradients(Flats const& members) {
    Placement const summed_at = table().sum.placement, micro_at = table().micro_gradient.placement;
    int const partials = buffers_.partials();
    bool const completes = last_ && table().norm_in_sum;
    if (completes && host_partials_ < 0) {
      host_partials_ = buffers_.host_partials();
      move(Verb::exchange, Move::copy, {{-1, partials, host_partials_, buffers_[partials].range}});
    }
    auto const every = std::make_unique<Transfer[]>(members.size());
    std::span<Transfer> const transfers(every.get(), members.size());
    for (std::size_t index = 0; index < members.size(); ++index)
      every[index] = {members[index], {buffers_.micro_gradient(members[index]), micro_at}};
    route(Verb::reduce, transfers, summed_at, Kind::micro_gradient);
    for (auto& [of, values, into, left, index] : transfers) {
      into = buffers_.gradient(of);
      if (values.buffer != into) {
        Operands found;
        if (host_partials_ >= 0) found.push_back({Role::partials, Access::write, host_partials_});
        work(Verb::accumulate,
             {{of,
               plan_.held(summed_at.over, of),
               -1,
               {{Role::gradient, Access::write, into, 0, of}, {Role::source, Access::read, values.buffer}}}},
             std::move(found));
      }
      values = {into, summed_at};
    }
    if (!last_) return;
    route(Verb::reduce, transfers, table().gradient.placement, Kind::gradient);
    if (rows().gradients.tier == Tier::device || completes) return;
    std::vector<Item> normed;
    for (Transfer const& transfer : transfers) normed.push_back(normed_item(transfer.of, transfer.left));
    norm(std::move(normed)).lane = Lane::communication;  // so that the compute lane need not wait
  }

  Item normed_item(Flat of, int gradient) {
    return {of, plan_.normed(of), -1, {{Role::gradient, Access::read, gradient, 0, of}}};
  }
  Entry& norm(std::vector<Item> items) {
    return work(Verb::norm, std::move(items),
                {{Role::partials, Access::write, buffers_.partials()},
                 {Role::rows, Access::read, buffers_.rows(Tier::device)}});
  }

  /// Finishes the gradient: emits its norms, the exchange of all ranks' statistics, and the decision.
  void norms() {
    int const partials = buffers_.partials();
    Range const all = buffers_[partials].range;
    if (rows().gradients.tier == Tier::device) {
      std::vector<Item> normed;
      for (Flat const of : plan_.trainable()) normed.push_back(normed_item(of, buffers_.gradient(of)));
      norm(std::move(normed));
    }
    if (table().norm_in_sum) move(Verb::exchange, Move::copy, {{-1, host_partials_, partials, all}});
    if (several()) move(Verb::exchange, Move::all_gather, {{-1, partials, buffers_.all_partials(), all}});
    emit(Verb::decide, -1, Lane::compute,
         {{Role::partials, Access::read, several() ? buffers_.all_partials() : partials},
          {Role::scalars, Access::read_write, buffers_.scalars()}});
    if (table().optimizer_is_apart())
      move(Verb::copy_scalars, Move::copy,
           {{-1, buffers_.scalars(), buffers_.host_scalars(), buffers_[buffers_.scalars()].range}});
  }

  /// The flat groups of each update entry. The host updates one group at a time. State that moves between
  /// tiers is also updated one group at a time, so that one group is copied while another is updated. If
  /// ranks all-gather the updated weights, groups form buckets, so that one bucket is gathered while the next
  /// is updated. Otherwise one entry updates all groups.
  std::vector<Flats> update_batches() {
    bool const travels = table().optimizer_is_apart() || !table().updates_in_place(),
               gathers = !holds(table().working_master.placement.over, table().weights.placement.over);
    std::vector<Flats> batches;
    std::int64_t bytes = 0;
    for (Flat const of : plan_.trainable()) {
      bool const full = gathers && bytes >= plan_.shape.bucket_bytes;
      if (batches.empty() || travels || full) {
        batches.emplace_back();
        bytes = 0;
      }
      batches.back().push_back(of);
      bytes += plan_.flat(of).padded * static_cast<std::int64_t>(size_of(types().parameter));
    }
    return batches;
  }

  /// Emits the update of a batch, the fetches before it and the write-backs after it. The optimizer works
  /// where its moments are kept, or on the host if they are on a disk.
  void update(Flats const& batch) {
    Placement const at = table().working_master.placement, master_at = table().master.placement;
    StepRow const& updated = table().updated_weights;
    std::size_t const states = plan_.optimizer.size();
    std::vector<Item> items;
    std::vector<std::vector<Transfer>> moments(states);
    std::vector<Transfer> masters, weights;
    for (Flat const of : batch) {
      int const kept = buffers_.weights(of), master = buffers_.master(of);
      int const gradient =
          route(Verb::fetch, of, {buffers_.gradient(of), table().gradient.placement}, at, Kind::gradient);
      int const working = route(Verb::fetch, of, {master, master_at}, at, Kind::master);
      Operands operands{{Role::master, Access::read_write, working, 0, of},
                        {Role::gradient, Access::read, gradient, 0, of}};
      List const kept_moments = buffers_.moments(of);
      for (std::size_t state = 0; state < states; ++state) {
        int const moment = route(Verb::fetch, of, {kept_moments[state], rows().moments}, at, Kind::moment, -1,
                                 static_cast<int>(state));
        operands.push_back({Role::moment, Access::read_write, moment, static_cast<int>(state), of});
        moments[state].push_back({of, {moment, at}, kept_moments[state], -1, static_cast<int>(state)});
      }
      int result = working;  // the buffer from which the kept weights are written back
      if (updated != table().working_master) {
        result = updated.copy.rests()
                     ? kept
                     : buffers_.state_buffer(updated.kind, of, 0, updated.copy, updated.type, at);
        operands.push_back({Role::updated_weights, Access::write, result, 0, of});
      }
      masters.push_back({of, {working, at}, master});
      weights.push_back({of, {result, at}, kept});
      items.push_back({of, plan_.updated(of), -1, std::move(operands)});
    }
    bool const apart = table().optimizer_is_apart();
    work(Verb::update, std::move(items),
         {{Role::scalars, Access::read, apart ? buffers_.host_scalars() : buffers_.scalars()},
          {Role::rows, Access::read, buffers_.rows(at.tier)}});
    for (std::vector<Transfer>& state : moments) route(Verb::write_back, state, rows().moments, Kind::moment);
    if (!table().weights_are_master()) route(Verb::write_back, masters, master_at, Kind::master);
    route(Verb::write_back, weights, rows().parameters, Kind::weights);
  }

 private:
  StepPlan const& plan_;
  bool training_;
  Program program_;
  StepBuffers buffers_{plan_, program_};
  WorkOrder order_{plan_, training_};
  int micro_ = 0;
  bool last_ = false;
  Flats in_use_;
  List gathered_;                             // by flat group: the buffer of its latest gathered weights
  std::array<List, verb_count> copies_made_;  // by verb and flat group: the number of copies made
  Flats bucket_;
  // The partials on the host, to which the last accumulates write norms; -1: not copied to the host yet.
  int host_partials_ = -1;
  std::int64_t bucket_bytes_ = 0;
};

}  // namespace detail

/// Makes the plan of one rank. Takes milliseconds and uses no device. `units` must be the model's list for
/// {shape.batch, shape.sequence}. If `whole` is false, the bytes are the same, but the schedules hold only
/// the last micro-batch, without waits. `optimizer` lists the optimizer's states; an empty list means AdamW.
/// Throws Error(config) for an invalid unit list or optimizer state, or if every parameter is frozen.
inline StepPlan make_plan(std::vector<UnitSpec> units, RecipeTable const& recipe, StepShape const& shape,
                          bool whole = true, std::vector<OptimizerState> optimizer = {}) {
  check_units(units);
  auto const adamw = adamw_states(recipe.types.master);
  if (optimizer.empty()) optimizer = std::vector<OptimizerState>(adamw.begin(), adamw.end());
  check_states(optimizer);
  StepPlan plan;
  plan.units = std::move(units);
  plan.recipe = recipe;
  plan.recipe.placement = at_world(recipe.placement, shape.world, shape.shards());
  plan.shape = shape;
  plan.layouts = std::vector<UnitLayout>(plan.units.size());
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit)
    plan.layouts[unit] = layout_of(plan.units[unit], shape.shards());
  plan.optimizer = std::move(optimizer);
  int number = 0, normed = 0;
  for (UnitLayout& layout : plan.layouts)
    for (FlatLayout& flat : layout.flats) {
      flat.number = number++;
      if (flat.trainable) flat.normed = normed++;
    }
  if (number > 0 && normed == 0)
    throw Error(ErrorKind::config, "model: every parameter is frozen; leave one to train");
  plan.table = step_table(plan.recipe, shape.world, shape.accumulation);
  plan.train = detail::Generator(plan, true).run(whole);
  plan.evaluate = detail::Generator(plan, false).run(whole);
  for (std::size_t tier = 0; tier < tier_count; ++tier)
    plan.arena_bytes[tier] = std::max(plan.train.arena_bytes[tier], plan.evaluate.arena_bytes[tier]);
  return plan;
}

}  // namespace v0
}  // namespace tessera
