// SPDX-License-Identifier: Apache-2.0
// From a model's units, a recipe's table and a step's shape to a program: schedule, buffers and their
// offsets. Pure: no device, no allocation of model memory; the executor, `plan` and the tests read the same
// result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/memory.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/policy/table.hpp"

namespace tessera::inline v0 {

namespace detail {

/// Writes one program. `run` is the readable step: read it first.
class Generator {
 public:
  Generator(StepPlan const& plan, bool training) : plan_(plan), training_(training) {}

  /// Not `whole`: the last micro-batch alone, without waits. It has every buffer at its place.
  Program run(bool whole) {
    add_persistent();
    int const micro_batches = training_ ? plan_.shape.accumulation : 1;
    for (micro_ = whole ? 0 : micro_batches - 1; micro_ < micro_batches; ++micro_) {
      last_ = micro_ + 1 == micro_batches;
      acquisitions_.assign(plan_.units.size(), -1);
      program_.schedule.last_micro_batch = program_.schedule.entries.size();
      std::vector<Work> const works = list_works();
      for (std::size_t index = 0; index < works.size(); ++index) {
        acquire(works[index]);
        compute(works[index]);
        release(index + 1 < works.size() ? &works[index + 1] : nullptr);
        if (works[index].verb == Verb::backward_weight) finish_contribution(works[index].unit);
      }
    }
    if (training_) {
      micro_ = -1;
      for (int unit = 0; unit < units(); ++unit)
        emit(Verb::norm, unit, Lane::compute, {gradient(unit)}, {partials()});
      emit(Verb::norm, -1, Lane::communication, {partials()}, {partials(), state()});
      if (plan_.streams()) emit(Verb::stream, -1, Lane::copy, {state()}, {host_state()});
      for (int unit = 0; unit < units(); ++unit) update(unit);
    }
    place();
    if (whole) connect(program_.schedule, sharing());
    return std::move(program_);
  }

 private:
  using Kind = BufferKind;
  using List = std::vector<int>;

  /// One compute entry to be, with the units whose weights it reads.
  struct Work {
    Verb verb{};
    int unit = 0;
    List weights;
  };

  int units() const { return plan_.units_count(); }
  PlacementTable const& placement() const { return plan_.recipe.placement; }
  int world() const { return plan_.shape.world; }
  bool ordered() const { return plan_.recipe.reduction == ReductionKind::ordered; }
  bool to_root() const { return placement().exchange == Exchange::reduce_to_root; }
  bool gathers_weights() const { return placement().parameters == Sharding::sharded; }
  bool gradients_sharded() const { return placement().gradients == Sharding::sharded; }

  // ---- the order of the compute entries -------------------------------------------------------------------

  bool rebuilt(int unit) const {
    RecomputeKind const kind = plan_.recipe.recompute;
    return training_ && (kind == RecomputeKind::block || kind == RecomputeKind::every) &&
           plan_.unit(unit).recomputable && !plan_.unit(unit).saved.empty();
  }
  bool drops(int unit, std::size_t saved) const {
    if (!training_ || rebuilt(unit)) return true;
    return plan_.recipe.recompute == RecomputeKind::gelu && plan_.unit(unit).saved[saved].cheap;
  }
  bool drops_some(int unit) const {
    for (std::size_t index = 0; index < plan_.unit(unit).saved.size(); ++index)
      if (drops(unit, index)) return true;
    return false;
  }
  /// The first unit of the stretch of rebuilt units that `unit` belongs to: stretches of `recompute_every`.
  int stretch_begin(int unit) const {
    int first = unit;
    while (first > 0 && rebuilt(first - 1)) --first;
    int const length = plan_.recipe.recompute == RecomputeKind::every ? plan_.shape.recompute_every : 1;
    return first + (unit - first) / length * length;
  }
  bool stretch_ends(int unit) const {
    return unit + 1 >= units() || !rebuilt(unit + 1) || stretch_begin(unit + 1) != stretch_begin(unit);
  }

  List weights_of(int unit) const {
    List list{unit};
    for (Borrow const& borrow : plan_.unit(unit).borrows)
      if (std::find(list.begin(), list.end(), borrow.unit) == list.end()) list.push_back(borrow.unit);
    return list;
  }

  std::vector<Work> list_works() const {
    std::vector<Work> works;
    for (int unit = 0; unit < units(); ++unit) works.push_back({Verb::forward, unit, weights_of(unit)});
    if (!training_) return works;
    for (int unit = units() - 1; unit >= 0; --unit) {
      if (rebuilt(unit)) {
        if (stretch_ends(unit))
          for (int again = stretch_begin(unit); again <= unit; ++again)
            works.push_back({Verb::recompute, again, weights_of(again)});
      } else if (drops_some(unit)) {
        works.push_back({Verb::recompute, unit, {}});
      }
      works.push_back(
          {Verb::backward_input, unit, plan_.unit(unit).backward_reads_weights ? weights_of(unit) : List{}});
      works.push_back({Verb::backward_weight, unit, {}});
    }
    return works;
  }

  // ---- entries --------------------------------------------------------------------------------------------

  void emit(Verb verb, int unit, Lane lane, List reads, List writes) {
    program_.schedule.entries.push_back(
        {verb, unit, micro_, lane, std::move(reads), std::move(writes), {}, false});
  }

  void acquire(Work const& work) {
    if (!gathers_weights()) return;
    for (int owner : work.weights) {
      if (std::find(acquired_.begin(), acquired_.end(), owner) != acquired_.end()) continue;
      acquired_.push_back(owner);
      ++acquisitions_[static_cast<std::size_t>(owner)];
      emit(Verb::acquire, owner, Lane::communication, {kept_weights(owner)}, {weights(owner)});
    }
  }

  void release(Work const* next) {
    if (!gathers_weights()) return;
    auto const needed = [&](int owner) {
      return next && std::find(next->weights.begin(), next->weights.end(), owner) != next->weights.end();
    };
    for (int owner : acquired_)
      if (!needed(owner)) emit(Verb::release, owner, Lane::compute, {weights(owner)}, {});
    std::erase_if(acquired_, [&](int owner) { return !needed(owner); });
  }

  void compute(Work const& work) {
    int const unit = work.unit;
    UnitSpec const& spec = plan_.unit(unit);
    bool const last_unit = unit + 1 == units();
    bool const backward = work.verb == Verb::backward_input || work.verb == Verb::backward_weight;
    bool const forward = work.verb == Verb::forward;
    List reads{batch(), state()}, writes{workspace()};
    for (int owner : work.weights) reads.push_back(weights(owner));
    if (unit > 0) reads.push_back(forward ? output(unit - 1) : input_again(unit));
    for (int index = 0; index < static_cast<int>(spec.saved.size()); ++index) {
      bool const dropped = drops(unit, static_cast<std::size_t>(index));
      if (forward) {
        writes.push_back(saved(dropped ? Kind::dropped : Kind::saved, unit, index));
      } else if (work.verb == Verb::recompute && dropped) {
        writes.push_back(saved(Kind::saved, unit, index));
      } else {
        reads.push_back(saved(Kind::saved, unit, index));
      }
    }
    if (forward) {
      if (spec.output.dims()) writes.push_back(output(unit));
      if (last_unit) writes.insert(writes.end(), {losses(), partials()});
    }
    if (work.verb == Verb::recompute && rebuilt(unit) && !stretch_ends(unit))
      writes.push_back(activation(Kind::spare_output, unit, 0, spec.output, false));
    if (backward) {
      if (!last_unit) reads.push_back(activation(Kind::output_gradient, unit, 0, spec.output, false));
      for (int index = 0; index < static_cast<int>(spec.backward.size()); ++index) {
        ActivationSpec const& kept = spec.backward[static_cast<std::size_t>(index)];
        int const buffer = activation(Kind::backward, unit, index, kept.shape, kept.statistic);
        (work.verb == Verb::backward_input ? writes : reads).push_back(buffer);
      }
      writes.push_back(contribution(unit));
      if (work.verb == Verb::backward_input && unit > 0 && spec.input_gradient)
        writes.push_back(activation(Kind::output_gradient, unit - 1, 0, plan_.unit(unit - 1).output, false));
      if (work.verb == Verb::backward_weight) {
        for (int borrow = 0; borrow < static_cast<int>(spec.borrows.size()); ++borrow)
          for (int buffer : lent(unit, borrow)) writes.push_back(buffer);
        for (int buffer : lent_to_me(unit)) reads.push_back(buffer);
      }
    }
    emit(work.verb, unit, Lane::compute, std::move(reads), std::move(writes));
  }

  /// A unit's contribution is complete: it joins the open bucket, and a full bucket travels.
  void finish_contribution(int unit) {
    bucket_.push_back(unit);
    bucket_bytes_ += plan_.layout(unit).padded * size(plan_.recipe.types.contribution);
    if (bucket_bytes_ < plan_.shape.bucket_bytes && unit > 0) return;
    for (int member : bucket_) exchange(member);
    bucket_.clear();
    bucket_bytes_ = 0;
  }

  void exchange(int unit) {
    Range const whole{0, plan_.layout(unit).padded};
    std::int64_t const contribution_size = size(plan_.recipe.types.contribution);
    if (world() == 1) {
      if (plan_.accumulates) emit(Verb::fold, unit, Lane::compute, {contribution(unit)}, {gradient(unit)});
    } else if (ordered() || to_root()) {
      bool const receives = !to_root() || plan_.is_root();
      std::int64_t const received = whole.size() * (to_root() ? world() : 1);
      int const staging = transient(Kind::staging, unit, 0, receives ? received * contribution_size : 0);
      emit(Verb::reduce, unit, Lane::communication, {contribution(unit)}, {staging});
      emit(Verb::fold, unit, Lane::compute, {staging, contribution(unit)}, {gradient(unit)});
      if (last_ && placement().exchange == Exchange::all_reduce)
        emit(Verb::gather, unit, Lane::communication, {gradient(unit)}, {gradient(unit)});
    } else if (gradients_sharded()) {
      int const staging = transient(Kind::staging, unit, 0, plan_.layout(unit).shard * contribution_size);
      emit(Verb::reduce, unit, Lane::communication, {contribution(unit)}, {staging});
      emit(Verb::fold, unit, Lane::compute, {staging}, {gradient(unit)});
    } else {
      if (plan_.accumulates) emit(Verb::fold, unit, Lane::compute, {contribution(unit)}, {gradient(unit)});
      if (last_) emit(Verb::reduce, unit, Lane::communication, {gradient(unit)}, {gradient(unit)});
    }
  }

  void update(int unit) {
    std::int64_t const elements = plan_.updated(unit).size();
    int source = gradient(unit);
    List writes = optimizer(unit);
    if (plan_.streams()) {
      int const landing = transient(Kind::landing, unit, 0, elements * size(plan_.gradient_type()),
                                    placement().optimizer_tier);
      emit(Verb::stream, unit, Lane::copy, {gradient(unit)}, {landing});
      source = landing;
    }
    int updated = -1;  // the weights as the device wants them, at the place of the optimizer
    if (!plan_.streams()) {
      writes.push_back(kept_weights(unit));
    } else if (plan_.recipe.types.parameter != plan_.recipe.types.master) {
      updated = transient(Kind::updated, unit, 0, elements * size(plan_.recipe.types.parameter),
                          placement().optimizer_tier);
      writes.push_back(updated);
    }
    emit(Verb::update, unit, plan_.streams() ? Lane::host : Lane::compute,
         {source, plan_.streams() ? host_state() : state()}, std::move(writes));
    bool const travels = world() > 1 && !gathers_weights() && placement().optimizer != Sharding::replicated;
    if (travels || plan_.streams()) {
      List reads = updated >= 0 ? List{updated} : plan_.streams() ? optimizer(unit) : List{};
      reads.push_back(kept_weights(unit));
      emit(Verb::publish, unit, Lane::communication, std::move(reads), {kept_weights(unit)});
    }
  }

  // ---- buffers --------------------------------------------------------------------------------------------

  static std::int64_t size(DType type) { return static_cast<std::int64_t>(size_of(type)); }

  int persistent(Kind kind, int unit, int index, std::int64_t bytes, Tier tier = Tier::device) {
    return program_.add({kind, unit, index, bytes, tier, true, -1});
  }
  int transient(Kind kind, int unit, int index, std::int64_t bytes, Tier tier = Tier::device) {
    return program_.add({kind, unit, index, bytes, tier, false, -1});
  }
  int activation(Kind kind, int unit, int index, Shape const& shape, bool statistic) {
    DType const type = statistic ? plan_.recipe.types.accumulator : plan_.recipe.types.activation;
    return transient(kind, unit, index, shape.elements() * size(type));
  }

  int state() { return program_.find(Kind::state, -1); }
  int host_state() { return program_.find(Kind::host_state, -1); }
  int partials() { return program_.find(Kind::partials, -1); }
  int batch() { return program_.find(Kind::batch, -1); }
  int losses() { return program_.find(Kind::losses, -1); }
  int workspace() { return program_.find(Kind::workspace, -1); }
  int kept_weights(int unit) { return program_.find(Kind::parameters, unit); }
  /// What the compute entries read. Each acquisition of a micro-batch has a buffer of its own life.
  int weights(int unit) {
    if (!gathers_weights()) return kept_weights(unit);
    return transient(Kind::gathered, unit, acquisitions_[static_cast<std::size_t>(unit)],
                     plan_.layout(unit).padded * size(plan_.recipe.types.parameter));
  }
  int output(int unit) { return activation(Kind::output, unit, 0, plan_.unit(unit).output, false); }
  int input_again(int unit) {
    bool const inside = rebuilt(unit) && stretch_begin(unit) != unit;
    return inside ? activation(Kind::spare_output, unit - 1, 0, plan_.unit(unit - 1).output, false)
                  : output(unit - 1);
  }
  int saved(Kind kind, int unit, int index) {
    ActivationSpec const& spec = plan_.unit(unit).saved[static_cast<std::size_t>(index)];
    return activation(kind, unit, index, spec.shape, spec.statistic);
  }
  int contribution(int unit) {
    std::int64_t const bytes = plan_.layout(unit).padded * size(plan_.recipe.types.contribution);
    return plan_.accumulates ? transient(Kind::contribution, unit, 0, bytes)
                             : persistent(Kind::contribution, unit, 0, bytes);
  }
  int gradient(int unit) { return program_.find(plan_.gradient_kind(), unit); }
  List optimizer(int unit) {
    List list;
    for (auto [kind, index] : {std::pair{Kind::master, 0}, {Kind::moments, 0}, {Kind::moments, 1}})
      if (int const found = program_.find(kind, unit, index); found >= 0) list.push_back(found);
    return list;
  }

  /// Where a borrower leaves its gradient: the owner's contribution itself when the formats agree and it is
  /// the first to borrow, else a buffer of its own (and the first one's, to which it is added).
  List lent(int unit, int borrow) {
    Borrow const& what = plan_.unit(unit).borrows[static_cast<std::size_t>(borrow)];
    std::int64_t const bytes =
        plan_.unit(what.unit).parameters[static_cast<std::size_t>(what.parameter)].in_memory().elements() *
        size(plan_.recipe.types.accumulator);
    auto const [first_unit, first_borrow] = first_backward_borrower(what);
    bool const first = first_unit == unit && first_borrow == borrow;
    bool const in_place = plan_.recipe.types.contribution == plan_.recipe.types.accumulator;
    List list;
    if (!first || !in_place) list.push_back(transient(Kind::lent, unit, borrow, bytes));
    if (in_place) {
      list.push_back(contribution(what.unit));
    } else if (!first) {
      list.push_back(transient(Kind::lent, first_unit, first_borrow, bytes));
    }
    return list;
  }
  /// The borrower whose backward runs first: the one in the last unit.
  std::pair<int, int> first_backward_borrower(Borrow const& what) const {
    for (int unit = units() - 1; unit >= 0; --unit)
      for (std::size_t index = 0; index < plan_.unit(unit).borrows.size(); ++index) {
        Borrow const& other = plan_.unit(unit).borrows[index];
        if (other.unit == what.unit && other.parameter == what.parameter)
          return {unit, static_cast<int>(index)};
      }
    return {-1, -1};
  }
  List lent_to_me(int owner) {
    List list;
    for (int unit = owner + 1; unit < units(); ++unit)
      for (int index = 0; index < static_cast<int>(plan_.unit(unit).borrows.size()); ++index)
        if (plan_.unit(unit).borrows[static_cast<std::size_t>(index)].unit == owner)
          if (int const found = program_.find(Kind::lent, unit, index); found >= 0) list.push_back(found);
    return list;
  }

  /// Persistent buffers come first and are the same in both programs, so they get the same offsets.
  void add_persistent() {
    RecipeTable const& recipe = plan_.recipe;
    StepShape const& shape = plan_.shape;
    for (int unit = 0; unit < units(); ++unit) {
      UnitLayout const& flat = plan_.layout(unit);
      std::int64_t const held = plan_.updated(unit).size();
      persistent(Kind::parameters, unit, 0,
                 plan_.held(placement().parameters, unit).size() * size(recipe.types.parameter));
      if (!plan_.weights_are_master())
        persistent(Kind::master, unit, 0, held * size(recipe.types.master), placement().optimizer_tier);
      for (int moment : {0, 1})
        persistent(Kind::moments, unit, moment, held * size(recipe.types.master), placement().optimizer_tier);
      if (plan_.accumulates) {
        persistent(Kind::accumulator, unit, 0,
                   plan_.gradient_range(unit).size() * size(recipe.types.accumulator),
                   placement().accumulator_tier);
      } else {
        persistent(Kind::contribution, unit, 0, flat.padded * size(recipe.types.contribution));
      }
    }
    std::int64_t const share = share_bytes(plan_.norm_blocks(), shape.accumulation);
    persistent(Kind::partials, -1, 0,
               share * (world() > 1 ? world() + 1 : 1) +
                   static_cast<std::int64_t>(sizeof(NormRange)) * plan_.units_count());
    persistent(Kind::state, -1, 0, static_cast<std::int64_t>(sizeof(StepState)));
    if (plan_.streams())
      persistent(Kind::host_state, -1, 0, static_cast<std::int64_t>(sizeof(StepState)), Tier::host);
    persistent(Kind::batch, -1, 0, 2 * 4 * shape.accumulation * shape.batch * shape.sequence);
    persistent(Kind::losses, -1, 0, shape.batch * shape.sequence * size(recipe.types.accumulator));
    persistent(Kind::workspace, -1, 0, shape.workspace_bytes);
  }

  void place() {
    auto& buffers = program_.buffers;
    for (Buffer& buffer : buffers) {
      if (!buffer.persistent) continue;
      std::int64_t& end = program_.persistent_bytes[static_cast<std::size_t>(buffer.tier)];
      buffer.offset = end;
      end += round_up(buffer.bytes, arena_alignment);
    }
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      std::vector<Interval> lives(buffers.size());
      for (std::size_t index = 0; index < buffers.size(); ++index) lives[index].bytes = buffers[index].bytes;
      auto const& entries = program_.schedule.entries;
      for (std::size_t entry = program_.schedule.last_micro_batch; entry < entries.size(); ++entry)
        for (auto const* list : {&entries[entry].reads, &entries[entry].writes})
          for (int const index : *list) {
            Interval& life = lives[static_cast<std::size_t>(index)];
            Buffer const& buffer = buffers[static_cast<std::size_t>(index)];
            if (buffer.persistent || buffer.tier != tier) continue;
            if (!life.used()) life.first = static_cast<int>(entry);
            life.last = static_cast<int>(entry);
          }
      IntervalPlan const placed = plan_intervals(lives);
      std::size_t const at = static_cast<std::size_t>(tier);
      for (std::size_t index = 0; index < buffers.size(); ++index)
        if (placed.offsets[index] >= 0)
          buffers[index].offset = program_.persistent_bytes[at] + placed.offsets[index];
      program_.arena_bytes[at] = program_.persistent_bytes[at] + placed.bytes;
    }
  }

  /// For each buffer the others that have some of its bytes at another time, where not one lane alone touches
  /// both.
  std::vector<List> sharing() const {
    auto const& buffers = program_.buffers;
    std::vector<unsigned> lanes(buffers.size(), 0u);
    for (Entry const& entry : program_.schedule.entries)
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
    std::vector<List> others(buffers.size());
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

 private:
  StepPlan const& plan_;
  bool training_;
  Program program_;
  int micro_ = 0;
  bool last_ = false;
  List acquired_;
  List acquisitions_;  // of each unit in this micro-batch, the last one's number
  List bucket_;
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
  plan.recipe.placement = at_world(recipe.placement, shape.world);
  plan.shape = shape;
  for (UnitSpec const& unit : plan.units) plan.layouts.push_back(layout_of(unit, shape.world));
  bool const mixed = recipe.types.contribution != recipe.types.accumulator;
  bool const ordered = recipe.reduction == ReductionKind::ordered ||
                       plan.recipe.placement.exchange == Exchange::reduce_to_root;
  plan.accumulates = shape.accumulation > 1 || plan.recipe.placement.gradients == Sharding::sharded ||
                     (mixed && shape.world > 1 && ordered);
  plan.train = detail::Generator(plan, true).run(whole);
  plan.evaluate = detail::Generator(plan, false).run(whole);
  for (std::size_t tier = 0; tier < 3; ++tier)
    plan.arena_bytes[tier] = std::max(plan.train.arena_bytes[tier], plan.evaluate.arena_bytes[tier]);
  return plan;
}

}  // namespace tessera::inline v0
