// SPDX-License-Identifier: Apache-2.0
// From a model's units, a recipe's table and a step's shape to a program: schedule, buffers and their
// offsets. Pure: no device, no allocation of model memory; the executor, `plan` and the tests read the same
// result.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/moves.hpp"
#include "tessera/plan/overlap.hpp"
#include "tessera/plan/placing.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_buffers.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/policy/table.hpp"

namespace tessera::inline v0 {

namespace detail {

/// Writes one program. `run` is the readable step: read it first.
class Generator {
 public:
  Generator(StepPlan const& plan, bool training) : plan_(plan), training_(training) {}
  Generator(Generator const&) = delete;
  Generator& operator=(Generator const&) = delete;

  /// Not `whole`: the last micro-batch alone, without waits. It has every buffer at its place.
  Program run(bool whole) {
    int const micro_batches = training_ ? plan_.shape.accumulation : 1;
    for (micro_ = whole ? 0 : micro_batches - 1; micro_ < micro_batches; ++micro_) {
      last_ = micro_ + 1 == micro_batches;
      acquisitions_.assign(plan_.flats().size(), -1);
      for (List& stops : stops_) stops.assign(plan_.flats().size(), 0);
      program_.schedule.last_micro_batch = program_.schedule.entries.size();
      std::vector<Work> const works = list_works();
      for (std::size_t index = 0; index < works.size(); ++index) {
        for (Flat const of : works[index].weights) acquire(of);
        compute(works[index]);
        release(index + 1 < works.size() ? &works[index + 1] : nullptr);
        if (works[index].verb == Verb::backward_weight) finish_contribution(works[index].unit);
      }
    }
    if (training_) {
      micro_ = -1;
      norms();
      for (Flat const of : plan_.trainable()) update(of);
    }
    overlap(program_.schedule, plan_.shape.prefetch);
    place_buffers(program_);
    if (whole) connect(program_.schedule, sharing_of(program_));
    return std::move(program_);
  }

 private:
  using Kind = BufferKind;
  using List = std::vector<int>;
  using Flats = std::vector<Flat>;

  /// One compute entry to be, with the weights it reads.
  struct Work {
    Verb verb{};
    int unit = 0;
    Flats weights;
  };
  /// Values of a flat group: the buffer that holds them, and how they lie.
  struct Values {
    int buffer = -1;
    Placement lies{};
  };

  int units() const { return plan_.units_count(); }
  DTypes const& types() const { return plan_.recipe.types; }
  PlacementTable const& rows() const { return plan_.placement(); }
  bool ordered() const { return plan_.recipe.reduction == ReductionKind::ordered; }
  bool several() const { return plan_.shape.world > 1; }

  // The order of the compute entries.

  bool rebuilt(int unit) const {
    RecomputeKind const kind = plan_.recipe.recompute;
    return training_ && unit >= lowest_ && (kind == RecomputeKind::block || kind == RecomputeKind::every) &&
           plan_.unit(unit).recomputable && !plan_.unit(unit).saved.empty();
  }
  bool drops(int unit, std::size_t saved) const {
    if (!training_ || unit < lowest_ || rebuilt(unit)) return true;
    return plan_.recipe.recompute == RecomputeKind::gelu && plan_.unit(unit).saved[saved].cheap;
  }
  bool drops_some(int unit) const {
    for (std::size_t index = 0; index < plan_.unit(unit).saved.size(); ++index)
      if (drops(unit, index)) return true;
    return false;
  }
  /// The first unit of the segment of rebuilt units that `unit` belongs to: segments of `recompute_every`.
  int segment_begin(int unit) const {
    int first = unit;
    while (first > 0 && rebuilt(first - 1)) --first;
    int const length = plan_.recipe.recompute == RecomputeKind::every ? plan_.shape.recompute_every : 1;
    return first + (unit - first) / length * length;
  }
  bool segment_ends(int unit) const {
    return unit + 1 >= units() || !rebuilt(unit + 1) || segment_begin(unit + 1) != segment_begin(unit);
  }

  Flats weights_of(int unit) const {
    Flats list = plan_.flats(unit);
    for (Borrow const& borrow : plan_.unit(unit).borrows) {
      Flat const lent = plan_.flat_of(borrow.unit, borrow.parameter);
      if (std::find(list.begin(), list.end(), lent) == list.end()) list.push_back(lent);
    }
    return list;
  }

  std::vector<Work> list_works() const {
    std::vector<Work> works;
    for (int unit = 0; unit < units(); ++unit) works.push_back({Verb::forward, unit, weights_of(unit)});
    if (!training_) return works;
    for (int unit = units() - 1; unit >= lowest_; --unit) {
      if (rebuilt(unit)) {
        if (segment_ends(unit))
          for (int again = segment_begin(unit); again <= unit; ++again)
            works.push_back({Verb::recompute, again, weights_of(again)});
      } else if (drops_some(unit)) {
        works.push_back({Verb::restore, unit, {}});
      }
      works.push_back(
          {Verb::backward_input, unit, plan_.unit(unit).backward_reads_weights ? weights_of(unit) : Flats{}});
      if (plan_.trains(unit)) works.push_back({Verb::backward_weight, unit, {}});
    }
    return works;
  }

  // Entries.

  Entry& emit(Verb verb, Flat of, Lane lane, List reads, List writes) {
    Entry entry;
    entry.verb = verb;
    entry.unit = of.unit;
    entry.flat = of.group;
    entry.micro_batch = micro_;
    entry.lane = lane;
    entry.reads = std::move(reads);
    entry.writes = std::move(writes);
    program_.schedule.entries.push_back(std::move(entry));
    return program_.schedule.entries.back();
  }
  /// Work of this rank on state, where that lies.
  void work(Verb verb, Flat of, int from, int to, Range part, List reads, List writes) {
    Lane const lane = buffers_[to].tier == Tier::device ? Lane::compute : Lane::host;
    reads.push_back(from);
    writes.push_back(to);
    Entry& entry = emit(verb, of, lane, std::move(reads), std::move(writes));
    entry.from = from;
    entry.to = to;
    entry.part = part;
  }
  void move(Verb verb, Move move, Flat of, int from, int to, Range part, Group group = Group::all) {
    Tier const here = buffers_[from].tier, there = buffers_[to].tier;
    Lane const lane = move != Move::copy     ? Lane::communication
                      : here == there        ? Lane::compute
                      : here == Tier::device ? Lane::download
                                             : Lane::upload;
    Entry& entry = emit(verb, of, lane, {from}, {to});
    entry.move = move;
    entry.group = group;
    entry.from = from;
    entry.to = to;
    entry.part = part;
  }

  /// The one way in which state travels: a chain of moves, each to `into` where that is on the tier and has
  /// the room, in place where it can be, else to a buffer of kind `passing`. Returns the buffer that then
  /// holds the values.
  int carry(Verb verb, Flat of, Values values, Placement const& to, Kind passing, int into = -1) {
    std::vector<Hop> const hops = moves_between(values.lies, to, {ordered(), plan_.shape.replicas});
    for (Hop const& hop : hops) {
      Buffer const here = buffers_[values.buffer];
      bool const summands =
          hop.move == Move::all_to_all || (hop.move == Move::gather && values.lies.over == Sharding::partial);
      int const pieces = summands ? plan_.shape.world : here.pieces;
      auto const fits = [&](int buffer) {
        return pieces == 1 && buffer >= 0 && buffers_[buffer].tier == hop.after.tier &&
               holds(buffers_[buffer].over, hop.after.over);
      };
      bool const last = &hop == &hops.back();
      Placement lies = hop.after;  // summands, and what rank 0 is about to broadcast, have room for all
      if (lies.over == Sharding::partial || (lies.over == Sharding::root && !last))
        lies.over = Sharding::replicated;
      int const next = fits(into) ? into
                       : fits(values.buffer)
                           ? values.buffer
                           : buffers_.room(passing, of, stop(passing, of)++, here.type, lies, pieces);
      if (hop.move == Move::broadcast && next != values.buffer) {  // it works in place
        move(verb, Move::copy, of, values.buffer, next, part_of(verb, Move::copy, of, values.lies.over));
        values.buffer = next;
      }
      bool const from_all = hop.move == Move::all_gather || hop.move == Move::gather;
      Sharding const over = from_all ? values.lies.over : hop.after.over;
      move(verb, hop.move, of, values.buffer, next, part_of(verb, hop.move, of, over), hop.group);
      values = {next, hop.after};
    }
    if (into >= 0 && values.buffer != into)
      move(verb, Move::copy, of, values.buffer, into, part_of(verb, Move::copy, of, to.over));
    return into >= 0 ? into : values.buffer;
  }
  int& stop(Kind passing, Flat of) {
    std::size_t const kind = passing == Kind::staging   ? 0
                             : passing == Kind::landing ? 1
                             : passing == Kind::working ? 2
                                                        : 3;
    return stops_[kind][static_cast<std::size_t>(plan_.flat(of).number)];
  }
  /// What a move takes or leaves here. Of updated weights only those of parameters are copied: what pads
  /// stays zero.
  Range part_of(Verb verb, Move move, Flat of, Sharding over) const {
    FlatLayout const& layout = plan_.flat(of);
    if (move == Move::broadcast) return {0, layout.padded};
    Range const part = plan_.held(over, of);
    return verb == Verb::publish && move == Move::copy ? intersect(part, {0, layout.undecayed.end}) : part;
  }

  void acquire(Flat of) {
    if (rows().parameters == Placement{}) return;
    if (std::find(acquired_.begin(), acquired_.end(), of) != acquired_.end()) return;
    acquired_.push_back(of);
    ++acquisitions_[static_cast<std::size_t>(plan_.flat(of).number)];
    carry(Verb::acquire, of, {buffers_.parameters(of), rows().parameters}, {}, Kind::transit, weights(of));
  }

  void release(Work const* next) {
    auto const needed = [&](Flat owner) {
      return next && std::find(next->weights.begin(), next->weights.end(), owner) != next->weights.end();
    };
    for (Flat const owner : acquired_)
      if (!needed(owner)) emit(Verb::release, owner, Lane::compute, {weights(owner)}, {});
    std::erase_if(acquired_, [&](Flat owner) { return !needed(owner); });
  }

  /// What the compute entries read. Each acquisition of a micro-batch has a buffer of its own life.
  int weights(Flat of) {
    if (rows().parameters == Placement{}) return buffers_.parameters(of);
    return buffers_.room(Kind::gathered, of, acquisitions_[static_cast<std::size_t>(plan_.flat(of).number)],
                         types().parameter, {});
  }

  void compute(Work const& work) {
    int const unit = work.unit;
    UnitSpec const& spec = plan_.unit(unit);
    bool const last_unit = unit + 1 == units();
    bool const backward = work.verb == Verb::backward_input || work.verb == Verb::backward_weight;
    bool const forward = work.verb == Verb::forward;
    bool const again = work.verb == Verb::recompute || work.verb == Verb::restore;
    List reads{buffers_.batch(), buffers_.state()}, writes{buffers_.workspace()};
    for (Flat const owner : work.weights) reads.push_back(weights(owner));
    if (unit > 0) reads.push_back(forward ? buffers_.output(unit - 1) : input_again(unit));
    for (int index = 0; index < static_cast<int>(spec.saved.size()); ++index) {
      bool const dropped = drops(unit, static_cast<std::size_t>(index));
      if (forward) {
        writes.push_back(buffers_.saved(dropped ? Kind::dropped : Kind::saved, unit, index));
      } else if (again && dropped) {
        writes.push_back(buffers_.saved(Kind::saved, unit, index));
      } else {
        reads.push_back(buffers_.saved(Kind::saved, unit, index));
      }
    }
    if (forward) {
      if (spec.output.dims()) writes.push_back(buffers_.output(unit));
      if (last_unit) writes.insert(writes.end(), {buffers_.losses(), buffers_.partials()});
    }
    if (work.verb == Verb::recompute && rebuilt(unit) && !segment_ends(unit))
      writes.push_back(buffers_.spare_output(unit));
    if (backward) {
      if (!last_unit) reads.push_back(buffers_.output_gradient(unit));
      for (int index = 0; index < static_cast<int>(spec.backward.size()); ++index)
        if (plan_.wanted(unit, spec.backward[static_cast<std::size_t>(index)]))
          (work.verb == Verb::backward_input ? writes : reads).push_back(buffers_.backward(unit, index));
      if (work.verb == Verb::backward_input && unit > lowest_ && spec.input_gradient)
        writes.push_back(buffers_.output_gradient(unit - 1));
      if (work.verb == Verb::backward_weight) {
        for (Flat const of : plan_.flats(unit))
          if (plan_.flat(of).trainable) writes.push_back(buffers_.contribution(of));
        for (int borrow = 0; borrow < static_cast<int>(spec.borrows.size()); ++borrow)
          for (int buffer : buffers_.lent(unit, borrow)) writes.push_back(buffer);
        for (int buffer : buffers_.lent_to_me(unit)) reads.push_back(buffer);
      }
    }
    emit(work.verb, unit, Lane::compute, std::move(reads), std::move(writes));
  }

  int input_again(int unit) {
    bool const inside = rebuilt(unit) && segment_begin(unit) != unit;
    return inside ? buffers_.spare_output(unit - 1) : buffers_.output(unit - 1);
  }

  /// A unit's contribution is complete: it joins the open bucket, and a full bucket travels.
  void finish_contribution(int unit) {
    for (Flat const of : plan_.flats(unit)) {
      if (!plan_.flat(of).trainable) continue;
      bucket_.push_back(of);
      bucket_bytes_ += buffers_[buffers_.contribution(of)].bytes;
    }
    if (bucket_bytes_ < plan_.shape.bucket_bytes && unit > lowest_) return;
    for (Flat const member : bucket_) add_to_gradient(member);
    bucket_.clear();
    bucket_bytes_ = 0;
  }

  /// Contributions travel to where the gradient is summed. Where sums may have any order and every rank has
  /// room for all, each rank sums its own first, and ranks meet after the last micro-batch.
  void add_to_gradient(Flat of) {
    Placement const& kept = rows().gradients;
    int const gradient = buffers_.gradient(of);
    Placement meets = kept;
    if (kept.over == Sharding::replicated && several())
      meets.over = ordered() ? Sharding::sharded : Sharding::partial;
    Values const contribution{buffers_.contribution(of),
                              {several() ? Sharding::partial : Sharding::replicated, Tier::device}};
    int const arrived = carry(Verb::reduce, of, contribution, meets, Kind::staging);
    if (arrived != gradient) work(Verb::fold, of, arrived, gradient, plan_.held(meets.over, of), {}, {});
    if (last_) carry(Verb::reduce, of, {gradient, meets}, plan_.gradients(), Kind::transit, gradient);
  }

  /// The end of the gradient: norms where it lies, what every rank found, and the decision.
  void norms() {
    bool const apart = rows().gradients.tier != Tier::device;
    int const partials = buffers_.partials(), found = apart ? buffers_.host_partials() : partials;
    Range const all = buffers_[partials].range;
    if (apart) move(Verb::share, Move::copy, -1, partials, found, all);
    for (Flat const of : plan_.trainable())
      work(Verb::norm, of, buffers_.gradient(of), found, plan_.held(plan_.normed_over(), of), {}, {});
    if (apart) move(Verb::share, Move::copy, -1, found, partials, all);
    if (several()) move(Verb::share, Move::all_gather, -1, partials, buffers_.shares(), all);
    emit(Verb::decide, -1, Lane::compute, {several() ? buffers_.shares() : partials}, {buffers_.state()});
    if (plan_.streams())
      move(Verb::brief, Move::copy, -1, buffers_.state(), buffers_.host_state(),
           buffers_[buffers_.state()].range);
  }

  /// The optimizer works where its moments lie: gradient and master weights come there, and what it made goes
  /// back to where it is kept.
  void update(Flat of) {
    Placement const& at = rows().moments;
    int const kept = buffers_.parameters(of), master = buffers_.master(of);
    bool const apart = !plan_.weights_are_master();
    Placement const& master_lies = apart ? rows().master : rows().parameters;
    int const gradient =
        carry(Verb::stream, of, {buffers_.gradient(of), plan_.gradients()}, at, Kind::landing);
    int const working = carry(Verb::stream, of, {master, master_lies}, at, Kind::working);
    List writes = buffers_.moments(of);
    int weights = working;  // those that are kept on the device come from here
    if (apart) {
      if (at.tier == rows().parameters.tier && holds(rows().parameters.over, at.over))
        weights = kept;
      else if (types().parameter != types().master)
        weights = buffers_.room(Kind::updated, of, 0, types().parameter, at);
      if (weights != working) writes.push_back(weights);
    }
    work(Verb::update, of, gradient, working, plan_.updated(of),
         {plan_.streams() ? buffers_.host_state() : buffers_.state()}, std::move(writes));
    if (apart) carry(Verb::publish, of, {working, at}, master_lies, Kind::working, master);
    carry(Verb::publish, of, {weights, at}, rows().parameters, Kind::transit, kept);
  }

 private:
  StepPlan const& plan_;
  bool training_;
  Program program_;
  StepBuffers buffers_{plan_, program_};
  int lowest_ = plan_.lowest_trainable();  // backward ends there, and nothing below it is kept
  int micro_ = 0;
  bool last_ = false;
  Flats acquired_;
  List acquisitions_;          // of each flat group in this micro-batch, the last one's number
  std::array<List, 4> stops_;  // of each on the ways of this micro-batch: how many, by kind
  Flats bucket_;
  std::int64_t bucket_bytes_ = 0;
};

}  // namespace detail

/// The plan of one rank. Takes milliseconds and touches no device. `units` must be what the model lists for
/// {shape.batch, shape.sequence}. Not `whole`: the bytes are the same, but the schedules hold the last
/// micro-batch alone, without waits. Throws Error(config) for a defective unit list.
inline StepPlan make_plan(std::vector<UnitSpec> units, RecipeTable const& recipe, StepShape const& shape,
                          bool whole = true) {
  check_units(units);
  StepPlan plan;
  plan.units = std::move(units);
  plan.recipe = recipe;
  plan.recipe.placement = at_world(recipe.placement, shape.world, shape.shards());
  plan.shape = shape;
  for (UnitSpec const& unit : plan.units) plan.layouts.push_back(layout_of(unit, shape.shards()));
  auto const states = adamw_states(recipe.types.master);
  plan.optimizer.assign(states.begin(), states.end());
  int number = 0, normed = 0;
  for (UnitLayout& layout : plan.layouts)
    for (FlatLayout& flat : layout.flats) {
      flat.number = number++;
      if (flat.trainable) flat.normed = normed++;
    }
  if (number > 0 && normed == 0)
    throw Error(ErrorKind::config, "model: every parameter is frozen; leave one to train");
  Placement const& gradients = plan.recipe.placement.gradients;
  bool const mixed = recipe.types.contribution != recipe.types.accumulator;
  bool const folds = recipe.reduction == ReductionKind::ordered || gradients.over == Sharding::root;
  plan.accumulates = shape.accumulation > 1 || gradients.over == Sharding::sharded ||
                     gradients.tier != Tier::device || (mixed && shape.world > 1 && folds);
  plan.train = detail::Generator(plan, true).run(whole);
  plan.evaluate = detail::Generator(plan, false).run(whole);
  for (std::size_t tier = 0; tier < tier_count; ++tier)
    plan.arena_bytes[tier] = std::max(plan.train.arena_bytes[tier], plan.evaluate.arena_bytes[tier]);
  return plan;
}

}  // namespace tessera::inline v0
