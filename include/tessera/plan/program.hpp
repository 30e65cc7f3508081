// SPDX-License-Identifier: Apache-2.0
// Makes the plan of one rank's training step (StepPlan): the schedule, its buffers and their memory offsets.
// The inputs are the model's units, the RecipeTable and the shape of the step. Uses no device and allocates
// no memory for the model.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

/// Generates the schedule and the buffers of one program (training or evaluation). Start reading at `run`,
/// which is the training step in a few lines.
class Generator {
 public:
  Generator(StepPlan const& plan, Program& program, bool training)
      : plan_(plan), program_(program), training_(training) {}
  Generator(Generator const&) = delete;
  Generator& operator=(Generator const&) = delete;

  /// Generates all micro-batches except the last as one repeated part (the body), then the last micro-batch,
  /// then the update. If `with_body` is false, generates no body and no waits; all buffers still get the same
  /// offsets.
  void run(bool with_body) {
    int const micro_batches = training_ ? plan_.shape.accumulation : 1;
    Schedule& schedule = program_.schedule;
    if (with_body && micro_batches > 1) {
      micro_batch(0, false);
      schedule.body_end = static_cast<int>(schedule.entries.size());
      schedule.times = micro_batches - 1;
    }
    micro_batch(micro_batches - 1, true);
    if (training_) {
      micro_ = -1;
      norms();
      updates();
    }
    overlap(schedule, plan_.shape.prefetch, plan_.shape.weight_lag, order_.last_is_larger());
    place_buffers(program_);
    if (with_body) connect(schedule, sharing_of(program_));
  }

 private:
  using Kind = BufferKind;
  using List = std::vector<int>;
  using Flats = std::vector<Flat>;

  /// The buffer that has the current values of a flat group (contiguous parameters), and the placement of
  /// these values.
  struct Values {
    int buffer = -1;
    Placement placement{};
  };
  /// A flat group whose values `route` transfers. `into` is the buffer that must have the values at the end;
  /// -1: any buffer. `left` is the buffer that had the values before the last transfer.
  struct Transfer {
    Flat of{};
    Values values{};
    int into = -1;
    int left = -1;
    int index = 0;  ///< Buffer::index of the contents; for a moment: the number of the optimizer state
  };
  using Transfers = std::vector<Transfer>;

  void micro_batch(int number, bool last) {
    micro_ = number;
    last_ = last;
    std::size_t const flats = plan_.flats().size();
    gathered_ = List(flats, -1);
    for (List& counts : copies_made_) counts = List(flats, 0);
    std::vector<Work> const works = order_.works();
    Flats read = order_.weights_of(works.front());
    for (std::size_t index = 0; index < works.size(); ++index) {
      for (Flat const of : read) gather(of);
      compute(works[index], read);
      read = index + 1 < works.size() ? order_.weights_of(works[index + 1]) : Flats();
      release(read);
      if (works[index].completes()) finish_micro_gradient(works[index].unit);
    }
  }

  int units() const { return plan_.units_count(); }
  DTypes const& types() const { return plan_.recipe.types; }
  PlacementTable const& rows() const { return plan_.placement(); }
  StepTable const& table() const { return plan_.table; }
  bool ordered() const { return plan_.recipe.reduction == ReductionKind::ordered; }
  bool several() const { return plan_.shape.world > 1; }

  // Functions that append entries to the schedule.

  using Operands = std::vector<Operand>;

  /// Appends an entry to the schedule. The entry has no operands (buffers) and no items (flat groups) yet.
  /// The returned reference is valid until the next call.
  Entry& emit(Verb verb, int unit, Lane lane) {
    Entry& entry = program_.schedule.entries.emplace_back();
    entry.verb = verb;
    entry.unit = unit;
    entry.micro_batch = micro_;
    entry.lane = lane;
    return entry;
  }
  /// Appends an operand to `operands`, the list of an entry or of an item.
  static void use(Operands& operands, Role role, Access access, int buffer, int index = 0, Flat of = {},
                  std::int64_t begin = 0) {
    operands.push_back({role, access, buffer, index, of, begin});
  }
  /// Appends an item (one flat group) to an entry and returns the item's operands. `part` is this rank's part
  /// of the group. Sets the entry's unit: the unit of all its items, or -1 if they differ.
  static Operands& item(Entry& entry, Flat of, Range part, int root = -1) {
    entry.unit = entry.items.empty() || entry.unit == of.unit ? of.unit : -1;
    entry.items.push_back({of, part, root, {}});
    return entry.items.back().operands;
  }
  /// Appends an entry that computes with state in the memory `tier`. The host computes with all state that is
  /// not in device memory.
  Entry& work(Verb verb, Tier tier) {
    return emit(verb, -1, tier == Tier::device ? Lane::compute : Lane::host);
  }
  /// Appends an entry that transfers the values of a flat group from buffer `from` to buffer `to`. `part` is
  /// this rank's part of the group. `carry` can add more flat groups to the returned entry.
  Entry& move(Verb verb, Move move, Flat of, int from, int to, Range part, Group group = Group::all) {
    bool const ahead = verb == Verb::gather && plan_.shape.channels > 1;
    Lane const lane = move == Move::copy ? lane_between(buffers_[from].tier, buffers_[to].tier)
                      : ahead            ? Lane::gathering
                                         : Lane::communication;
    Entry& entry = emit(verb, -1, lane);
    entry.move = move;
    entry.group = group;
    carry(entry, of, from, to, part);
    return entry;
  }
  /// Adds a flat group to a transfer: its source and target buffer, and this rank's part.
  void carry(Entry& entry, Flat of, int from, int to, Range part) {
    bool const has_root = entry.move == Move::gather || entry.move == Move::broadcast;
    Operands& operands = item(entry, of, part, has_root ? plan_.owner(of) : -1);
    use(operands, Role::source, Access::read, from);
    use(operands, Role::target, Access::write, to);
  }

  static Lane lane_between(Tier here, Tier there) {
    if (here == there) return Lane::compute;
    if (!has_addresses(here) || !has_addresses(there)) return Lane::disk;
    return here == Tier::device ? Lane::download : Lane::upload;
  }

  /// Appends the entries that move state to the placement `to`, through a chain of hops (moves_between). All
  /// `transfers` must start in one placement. A hop writes to Transfer::into if this buffer fits the hop's
  /// result. Otherwise it works in place if possible, or it writes to a new copy of the kind `contents`. If
  /// the values are not in Transfer::into after the last hop, a final copy brings them there. A collective is
  /// one entry for all transfers. Sets the values of each transfer to their final buffer and placement.
  void route(Verb verb, Transfers& transfers, Placement const& to, Kind contents) {
    Placement const from = transfers.front().values.placement;
    std::vector<Hop> const hops = moves_between(from, to, {ordered(), plan_.shape.replicas});
    for (Hop const& hop : hops) {
      bool const from_all = hop.move == Move::all_gather || hop.move == Move::gather;
      for (Transfer& transfer : transfers) {
        int const next = buffer_after(verb, transfer, hop, &hop == &hops.back(), contents);
        transfer.left = std::exchange(transfer.values.buffer, next);
      }
      Entry* together = nullptr;
      for (auto& [of, values, into, left, index] : transfers) {
        Range const part = part_of(hop.move, of, from_all ? values.placement.over : hop.after.over);
        values.placement = hop.after;
        if (together && hop.move != Move::copy)
          carry(*together, of, left, values.buffer, part);
        else
          together = &move(verb, hop.move, of, left, values.buffer, part, hop.group);
      }
    }
    for (auto& [of, values, into, left, index] : transfers) {
      if (into < 0 || values.buffer == into) continue;
      move(verb, Move::copy, of, values.buffer, into, part_of(Move::copy, of, to.over));
      left = std::exchange(values.buffer, into);
    }
  }
  /// Returns the buffer to which one hop of a transfer writes. `last` says whether it is the last hop. A
  /// broadcast works in place: if the values are not yet in the returned buffer, this function appends a copy
  /// to this buffer.
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
    // For summands, and for values that an owner will broadcast, the buffer must have the size of the full
    // flat group.
    Placement after = hop.after;
    bool const continues = !last && after.tier == Tier::device;
    if (after.over == Sharding::partial || (after.over == Sharding::owned && continues))
      after.over = Sharding::replicated;
    int const next = fits(into) ? into
                     : fits(values.buffer)
                         ? values.buffer
                         : buffers_.state_buffer(contents, of, index, {verb, copies_made(verb, of)++},
                                                 here.type, after, pieces, here.block);
    if (hop.move == Move::broadcast && next != values.buffer) {
      move(verb, Move::copy, of, values.buffer, next, part_of(Move::copy, of, values.placement.over));
      values.buffer = next;
    }
    return next;
  }
  /// Returns a reference to the number of copies that a verb has made of a flat group in this micro-batch.
  int& copies_made(Verb verb, Flat of) {
    return copies_made_[static_cast<std::size_t>(verb)][static_cast<std::size_t>(plan_.flat(of).number)];
  }
  /// Returns this rank's elements in a transfer. In a broadcast, these are all elements.
  Range part_of(Move move, Flat of, Sharding over) const {
    return move == Move::broadcast ? Range{0, plan_.flat(of).padded} : plan_.held(over, of);
  }

  /// Appends the entries that bring the full weights of a flat group to the device, unless they are already
  /// there.
  void gather(Flat of) {
    if (rows().parameters == Placement{}) return;
    if (contains(in_use_, of)) return;
    in_use_.push_back(of);
    // A micro-batch can gather a flat group several times, each time to another buffer with its own lifetime.
    int const gathered = buffers_.state_buffer(
        Kind::weights, of, 0, {Verb::gather, copies_made(Verb::gather, of)++}, types().parameter, {});
    gathered_[static_cast<std::size_t>(plan_.flat(of).number)] = gathered;
    Transfers transfers;
    transfers.push_back({of, {buffers_.weights(of), rows().parameters}, gathered});
    route(Verb::gather, transfers, {}, Kind::weights);
  }

  /// Ends the use of all gathered weights except `needed`, so that their memory can be reused.
  void release(Flats const& needed) {
    Flats still_used;
    for (Flat const owner : in_use_)
      if (contains(needed, owner))
        still_used.push_back(owner);
      else
        use(emit(Verb::release, owner.unit, Lane::compute).operands, Role::weights, Access::read,
            weights(owner), 0, owner);
    in_use_ = std::move(still_used);
  }

  /// Returns the buffer from which a computation reads the weights of a flat group.
  int weights(Flat of) {
    if (rows().parameters == Placement{}) return buffers_.weights(of);
    return gathered_[static_cast<std::size_t>(plan_.flat(of).number)];
  }

  /// Appends the entry of a computation with its operands, and the entries that must follow it. `read` are
  /// the flat groups whose weights the computation reads.
  void compute(Work const& work, Flats const& read) {
    int const unit = work.unit, segment = work.segment;
    UnitSpec const& spec = plan_.unit(unit);
    bool const last_unit = unit + 1 == units(), last_segment = segment + 1 == spec.segments();
    bool const backward = work.verb == Verb::backward_input || work.verb == Verb::backward_weight;
    bool const forward = work.verb == Verb::forward;
    bool const again = work.verb == Verb::recompute || work.verb == Verb::restore;
    bool const separate_lane = work.verb == Verb::backward_weight && plan_.shape.weight_lag > 0;
    Lane const lane = separate_lane ? Lane::gradients : Lane::compute;
    Entry& entry = emit(work.verb, unit, lane);
    entry.segment = segment;
    Operands& operands = entry.operands;
    use(operands, Role::batch, Access::read, buffers_.batch());
    use(operands, Role::scalars, Access::read, buffers_.scalars());
    use(operands, Role::workspace, Access::write, buffers_.workspace(separate_lane));
    // The computation of backward_weight reads no weights. In the compute lane, its entry still has the
    // weights as operands, so that they stay gathered for the next segment. In its own lane, the entry must
    // not have them, because entries that later overwrite their memory would wait for this lane.
    if (!separate_lane)
      for (Flat const owner : read) use(operands, Role::weights, Access::read, weights(owner), 0, owner);
    if (unit > 0)
      use(operands, Role::input, Access::read, forward ? buffers_.output(unit - 1) : input_again(unit));
    for (int index = 0; index < static_cast<int>(spec.saved.size()); ++index) {
      ActivationSpec const& activation = spec.saved[static_cast<std::size_t>(index)];
      int const by = activation.segment;
      bool const uses = backward || (work.verb == Verb::restore && !activation.cheap_to_recompute);
      if (by > segment || (uses && !plan_.needed(unit, activation))) continue;
      bool const dropped = order_.drops(unit, static_cast<std::size_t>(index));
      bool const made = by == segment && (forward || (again && dropped));
      use(operands, Role::saved, made ? Access::write : Access::read,
          buffers_.saved(unit, index, forward && dropped), index);
    }
    if (forward && last_segment) {
      if (spec.output.dims()) use(operands, Role::output, Access::write, buffers_.output(unit));
    }
    if ((forward || work.verb == Verb::recompute) && last_unit && last_segment)
      use(operands, Role::losses, Access::write, buffers_.losses());
    if (work.verb == Verb::recompute && last_segment && !order_.rebuilt_last(unit))
      use(operands, Role::output, Access::write, buffers_.rebuilt_output(unit));
    if (backward) {
      if (!last_unit && last_segment)
        use(operands, Role::output_gradient, Access::read, buffers_.output_gradient(unit));
      for (int index = 0; index < static_cast<int>(spec.backward.size()); ++index) {
        if (!plan_.needed(unit, spec.backward[static_cast<std::size_t>(index)])) continue;
        bool const own = spec.backward[static_cast<std::size_t>(index)].segment == segment;
        bool const from_next = !last_segment && spec.boundary(segment).gradient == index;
        bool const passed_on = segment > 0 && spec.boundary(segment - 1).gradient == index;
        if (own && work.verb == Verb::backward_input)
          use(operands, Role::backward, Access::write, buffers_.backward(unit, index), index);
        else if (from_next || (own && !passed_on))
          use(operands, Role::backward, Access::read, buffers_.backward(unit, index), index);
      }
      if (work.verb == Verb::backward_input && segment == 0 && unit > order_.lowest() && spec.input_gradient)
        use(operands, Role::input_gradient, Access::write, buffers_.output_gradient(unit - 1));
    }
    if (work.verb == Verb::backward_weight) {
      for (int index = 0; index < static_cast<int>(spec.parameters.size()); ++index) {
        Flat const of = plan_.flat_of(unit, index);
        if (plan_.flat(of).trainable && buffers_.is_borrowed(unit, index))
          use_tied(operands, Access::read, buffers_.tied_sum({unit, index}), index, {unit, index});
      }
      for (Flat const of : plan_.flats(unit))
        if (plan_.flat(of).trainable)
          use(operands, Role::gradient, Access::write, buffers_.micro_gradient(of), 0, of);
      for (int index = 0; index < static_cast<int>(spec.borrows.size()); ++index)
        if (int const own = buffers_.tied_gradient(unit, index); own >= 0)
          use_tied(operands, Access::write, own, index, spec.borrows[static_cast<std::size_t>(index)]);
    }
    if (forward && last_unit && last_segment) {
      Operands& sums = emit(Verb::sum_losses, unit, lane).operands;
      use(sums, Role::losses, Access::read, buffers_.losses());
      use(sums, Role::batch, Access::read, buffers_.batch());
      use(sums, Role::partials, Access::write, buffers_.partials());
    }
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

  /// Appends the entries that change the distribution of a segment's result over ranks from `from` to `to`,
  /// as the next segment needs it. They work in place in `buffer`. Sums over ranks may have any order.
  void cross(Work const& work, int boundary, int buffer, Sharding from, Sharding to) {
    for (Hop const& hop : moves_between({from, Tier::device}, {to, Tier::device}, {}))
      move(Verb::cross, hop.move, work.unit, buffer, buffer, buffers_[buffer].range, Group::tensor).segment =
          boundary;
  }

  /// Appends the entries that complete a unit's micro-batch gradient after its last backward_weight. If
  /// several units borrow a tied (shared) parameter, adds their gradients to the gradient of the first
  /// borrower. Zeroes the padding between parameters, because its memory possibly holds values of other
  /// buffers.
  void complete(int unit, Lane lane) {
    UnitSpec const& spec = plan_.unit(unit);
    for (int index = 0; index < static_cast<int>(spec.borrows.size()); ++index) {
      Borrow const& what = spec.borrows[static_cast<std::size_t>(index)];
      int const own = buffers_.tied_gradient(unit, index), sum = buffers_.tied_sum(what);
      if (own == sum) continue;
      Operands& operands = emit(Verb::add_tied, unit, lane).operands;
      use(operands, Role::source, Access::read, own);
      use_tied(operands, Access::read_write, sum, index, what);
    }
    Entry* clear = nullptr;
    for (Flat const of : plan_.flats(unit)) {
      if (!plan_.flat(of).trainable || plan_.flat(of).gaps.empty()) continue;
      if (!clear) clear = &emit(Verb::clear_gaps, unit, lane);
      use(clear->operands, Role::target, Access::write, buffers_.micro_gradient(of), 0, of);
    }
  }
  /// Adds the gradient of a borrowed parameter to the operands of an entry.
  void use_tied(Operands& operands, Access access, int buffer, int index, Borrow const& what) {
    use(operands, Role::tied_gradient, access, buffer, index, plan_.flat_of(what),
        buffers_.tied_begin(buffer, what));
  }

  /// Returns the buffer from which recomputation and backward read a unit's input.
  int input_again(int unit) {
    bool const inside = order_.rebuilt(unit) && order_.rebuilt_from(unit) != unit;
    return inside ? buffers_.rebuilt_output(unit - 1) : buffers_.output(unit - 1);
  }

  /// Adds a unit's complete micro-batch gradient to the current bucket (gradients that are reduced in one
  /// call). Reduces the bucket if it is full or if this is the last unit in backward.
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

  /// Appends the entries that reduce the micro-batch gradients of a bucket in one call and add them to the
  /// sums. After the last micro-batch, also brings the sums to their final placement. For gradients in host
  /// memory, the norm needs no extra pass over the gradients. Either the last accumulate entry on the host
  /// computes the norm, or the device computes it before the copy to the host.
  void add_to_gradients(Flats const& members) {
    Placement const summed_at = table().sum.placement, micro_at = table().micro_gradient.placement;
    int const partials = buffers_.partials();
    bool const completes = last_ && table().norm_in_sum;
    if (completes && host_partials_ < 0) {
      host_partials_ = buffers_.host_partials();
      move(Verb::exchange, Move::copy, -1, partials, host_partials_, buffers_[partials].range);
    }
    Transfers transfers;
    for (Flat const of : members) transfers.push_back({of, {buffers_.micro_gradient(of), micro_at}});
    route(Verb::reduce, transfers, summed_at, Kind::micro_gradient);
    for (auto& [of, values, into, left, index] : transfers) {
      into = buffers_.gradient(of);
      if (values.buffer != into) {
        Entry& sum = work(Verb::accumulate, buffers_[into].tier);
        if (host_partials_ >= 0) use(sum.operands, Role::partials, Access::write, host_partials_);
        Operands& operands = item(sum, of, plan_.held(summed_at.over, of));
        use(operands, Role::gradient, Access::write, into, 0, of);
        use(operands, Role::source, Access::read, values.buffer);
      }
      values = {into, summed_at};
    }
    if (!last_) return;
    route(Verb::reduce, transfers, table().gradient.placement, Kind::gradient);
    if (rows().gradients.tier == Tier::device || completes) return;
    Entry& entry = norm();
    entry.lane = Lane::communication;  // in the compute lane, computations would wait for the reduction
    for (Transfer const& transfer : transfers) norm_of(entry, transfer.of, transfer.left);
  }

  /// Appends an entry that computes the gradient norm on the device. `norm_of` adds its flat groups.
  Entry& norm() {
    Entry& entry = work(Verb::norm, Tier::device);
    use(entry.operands, Role::partials, Access::write, buffers_.partials());
    use(entry.operands, Role::rows, Access::read, buffers_.rows(Tier::device));
    return entry;
  }
  /// Adds a flat group to an entry that computes the norm. `gradient` is the buffer of its gradient.
  void norm_of(Entry& entry, Flat of, int gradient) {
    use(item(entry, of, plan_.norm_part(of)), Role::gradient, Access::read, gradient, 0, of);
  }

  /// Appends the entries between backward and the update: the gradient norm, the exchange of all ranks'
  /// statistics, and the decision whether to skip the update.
  void norms() {
    int const partials = buffers_.partials();
    Range const all = buffers_[partials].range;
    if (rows().gradients.tier == Tier::device) {
      Entry& entry = norm();
      for (Flat const of : plan_.trainable()) norm_of(entry, of, buffers_.gradient(of));
    }
    if (table().norm_in_sum) move(Verb::exchange, Move::copy, -1, host_partials_, partials, all);
    if (several()) move(Verb::exchange, Move::all_gather, -1, partials, buffers_.all_partials(), all);
    Operands& operands = emit(Verb::decide, -1, Lane::compute).operands;
    use(operands, Role::partials, Access::read, several() ? buffers_.all_partials() : partials);
    use(operands, Role::scalars, Access::read_write, buffers_.scalars());
    if (table().optimizer_off_device())
      move(Verb::copy_scalars, Move::copy, -1, buffers_.scalars(), buffers_.host_scalars(),
           buffers_[buffers_.scalars()].range);
  }

  /// Appends the optimizer's updates. If the host updates, or state is copied for the update, each entry
  /// updates one flat group, so that one group is copied while another is updated. If ranks all-gather the
  /// updated weights, each entry updates a bucket of groups, so that one bucket is gathered while the next is
  /// updated. Otherwise one entry updates all groups.
  void updates() {
    bool const travels = table().optimizer_off_device() || !table().updates_in_place(),
               gathers = !holds(table().working_master.placement.over, table().weights.placement.over);
    Flats batch;
    std::int64_t bytes = 0;
    for (Flat const of : plan_.trainable()) {
      batch.push_back(of);
      bytes += plan_.flat(of).padded * static_cast<std::int64_t>(size_of(types().parameter));
      bool const full = travels || (gathers && bytes >= plan_.shape.bucket_bytes);
      if (!full && of != plan_.trainable().back()) continue;
      update(batch);
      batch.clear();
      bytes = 0;
    }
  }

  /// Appends the entries that bring one kind of state of the flat groups `batch` to the memory in which the
  /// optimizer works. `home` is the row of this state in the step table, and `contents` the kind of its
  /// copies. `route` can write the updated values back with the returned transfers.
  Transfers fetch(Flats const& batch, StepRow const& home, Kind contents, int index = 0) {
    Placement const at = table().working_master.placement;
    Transfers transfers;
    for (Flat const of : batch)
      transfers.push_back({of, {program_.find(home.kind, of, index), home.placement}, -1, -1, index});
    route(Verb::fetch, transfers, at, contents);
    for (Transfer& transfer : transfers) {
      transfer.values.placement = at;
      transfer.into = program_.find(home.kind, transfer.of, index);
    }
    return transfers;
  }

  /// Appends the update of these flat groups, the fetches before it and the write-backs after it. The
  /// optimizer works in the memory of its moments, or on the host if they are on a disk.
  void update(Flats const& batch) {
    Placement const at = table().working_master.placement;
    StepRow const& updated = table().updated_weights;
    Transfers const gradients = fetch(batch, table().gradient, Kind::gradient);
    Transfers masters = fetch(batch, table().master, Kind::master);
    std::vector<Transfers> moments(plan_.optimizer.size());
    for (std::size_t state = 0; state < moments.size(); ++state)
      moments[state] = fetch(batch, table().moments, Kind::moment, static_cast<int>(state));
    Transfers weights = masters;  // brings the updated values to the weights
    Entry& entry = work(Verb::update, at.tier);
    use(entry.operands, Role::scalars, Access::read,
        table().optimizer_off_device() ? buffers_.host_scalars() : buffers_.scalars());
    use(entry.operands, Role::rows, Access::read, buffers_.rows(at.tier));
    for (std::size_t member = 0; member < batch.size(); ++member) {
      Flat const of = batch[member];
      Operands& operands = item(entry, of, plan_.updated(of));
      use(operands, Role::master, Access::read_write, masters[member].values.buffer, 0, of);
      use(operands, Role::gradient, Access::read, gradients[member].values.buffer, 0, of);
      for (Transfers const& state : moments)
        use(operands, Role::moment, Access::read_write, state[member].values.buffer, state[member].index, of);
      Transfer& result = weights[member];
      result.into = buffers_.weights(of);
      if (updated == table().working_master) continue;
      result.values.buffer = updated.copy.rests()
                                 ? result.into
                                 : buffers_.state_buffer(updated.kind, of, 0, updated.copy, updated.type, at);
      use(operands, Role::updated_weights, Access::write, result.values.buffer, 0, of);
    }
    for (Transfers& state : moments) route(Verb::write_back, state, rows().moments, Kind::moment);
    if (!table().weights_are_master())
      route(Verb::write_back, masters, table().master.placement, Kind::master);
    route(Verb::write_back, weights, rows().parameters, Kind::weights);
  }

 private:
  StepPlan const& plan_;
  Program& program_;
  bool training_;
  StepBuffers buffers_{plan_, program_};
  WorkOrder order_{plan_, training_};
  int micro_ = 0;
  bool last_ = false;
  Flats in_use_;
  List gathered_;                             // by flat group: the buffer of its latest gathered weights
  std::array<List, verb_count> copies_made_;  // by verb and flat group: the number of copies made
  Flats bucket_;
  // The buffer with the host's copy of the statistics. The last accumulate entries write norms there. -1: the
  // statistics are not copied to the host yet.
  int host_partials_ = -1;
  std::int64_t bucket_bytes_ = 0;
};

}  // namespace detail

/// Returns the plan of one rank. Needs milliseconds and no device. `units` must be the model's list for
/// {shape.batch, shape.sequence}. If `with_body` is false, arena_bytes are correct, but the schedules have
/// only the last micro-batch and no waits. `optimizer` lists the optimizer's states; an empty list means
/// AdamW. Throws Error(config) for an invalid unit list or optimizer state, or if every parameter is frozen.
inline StepPlan make_plan(std::vector<UnitSpec> units, RecipeTable const& recipe, StepShape const& shape,
                          bool with_body = true, std::vector<OptimizerState> optimizer = {}) {
  check_units(units);
  auto const adamw = adamw_states(recipe.types.master);
  if (optimizer.empty()) optimizer = std::vector<OptimizerState>(adamw.begin(), adamw.end());
  check_states(optimizer);
  StepPlan plan;
  plan.units = std::move(units);
  plan.recipe = recipe;
  plan.recipe.placement = at_world(recipe.placement, shape.world, shape.shards());
  plan.shape = shape;
  plan.lay_out();
  plan.optimizer = std::move(optimizer);
  if (!plan.flats().empty() && plan.trainable().empty())
    throw Error(ErrorKind::config, "model: every parameter is frozen; leave one to train");
  plan.table = step_table(plan.recipe, shape.world, shape.accumulation);
  for (Program* program : {&plan.train, &plan.evaluate})
    detail::Generator(plan, *program, program == &plan.train).run(with_body);
  for (std::size_t tier = 0; tier < tier_count; ++tier)
    plan.arena_bytes[tier] = std::max(plan.train.arena_bytes[tier], plan.evaluate.arena_bytes[tier]);
  return plan;
}

}  // namespace v0
}  // namespace tessera
