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
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera::inline v0 {

/// The arenas of one rank and the addresses of every buffer of a plan in them.
template <class Place>
class StepMemory {
 public:
  explicit StepMemory(StepPlan const& plan)
      : device_(plan.arena_bytes[static_cast<std::size_t>(Tier::device)]),
        host_(plan.arena_bytes[static_cast<std::size_t>(Tier::host)]) {
    for (Program const* program : {&plan.train, &plan.evaluate}) {
      std::vector<std::byte*>& addresses = program == &plan.train ? train_ : evaluate_;
      for (Buffer const& buffer : program->buffers) {
        if (buffer.offset < 0)
          addresses.push_back(nullptr);
        else if (buffer.tier == Tier::device)
          addresses.push_back(device_.view(buffer.offset, buffer.bytes));
        else
          addresses.push_back(host_.view(buffer.offset, buffer.bytes));
      }
    }
  }

  std::byte* train(int buffer) const { return at(train_, buffer); }
  std::byte* evaluate(int buffer) const { return at(evaluate_, buffer); }
  /// The addresses of all buffers of the training program.
  std::span<std::byte* const> train() const { return train_; }
  /// The highest byte that was handed out, by tier.
  std::int64_t high_water(Tier tier) const {
    return tier == Tier::device ? device_.high_water() : tier == Tier::host ? host_.high_water() : 0;
  }

 private:
  static std::byte* at(std::vector<std::byte*> const& addresses, int buffer) {
    return buffer < 0 ? nullptr : addresses[static_cast<std::size_t>(buffer)];
  }

  DeviceArena<Place> device_;
  OffloadArena<Place> host_;
  std::vector<std::byte*> train_, evaluate_;
};

/// Carries out the verbs that move or change state. Every member but `fill`, `collect` and `settle` only
/// enqueues (collectives block on the CPU) and allocates nothing. Host tasks refer to it: it stays where it
/// is.
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
    shares_.unit_count = plan_.units_count();
    shares_.ranks = world;
    shares_.norm_ranks = plan_.recipe.placement.optimizer == Sharding::root ? 1 : world;
    shares_.accumulation = plan_.shape.accumulation;
    std::byte* const own = pointer<std::byte>(plan_.train.find(Kind::partials, -1));
    shares_.first = world > 1 ? own + shares_.bytes : own;
    std::byte* const table = shares_.first + world * shares_.bytes;
    shares_.units = reinterpret_cast<NormRange const*>(table);
    own_ = shares_;
    own_.first = own;
    for (int unit = 0; unit < plan_.units_count(); ++unit) {
      norm_offset_.push_back(ranges[static_cast<std::size_t>(unit)].offset);
      host_updates_.push_back({this, unit});
    }
    if (context_.recorder()) return;
    std::size_t const bytes = ranges.size() * sizeof(NormRange);
    std::byte* const draft = context_.draft(table, bytes);
    std::memcpy(draft, ranges.data(), bytes);
    context_.commit(table, draft, bytes);
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
  StepState* state_address() const { return pointer<StepState>(plan_.train.find(Kind::state, -1)); }

  // ---- verbs ----------------------------------------------------------------------------------------------

  /// Gathers a sharded unit's weights into `gathered`, the buffer that the entry writes.
  void acquire(int unit, std::byte* gathered, int micro_batch) {
    transport_.all_gather(weights(unit), gathered, bytes_of<T>(plan_.layout(unit).shard),
                          tag("acquire", unit, micro_batch));
  }

  /// Exchanges this micro-batch's contribution, or, where contributions were folded locally, the sums.
  void reduce(int unit, int micro_batch) {
    UnitLayout const& layout = plan_.layout(unit);
    comm::CollectiveId const by = tag("reduce", unit, micro_batch);
    PlacementTable const& placement = plan_.recipe.placement;
    std::byte* const contribution = bytes(Kind::contribution, unit);
    std::byte* const staging = bytes(Kind::staging, unit);
    if (placement.exchange == Exchange::reduce_to_root) {
      transport_.gather(0, contribution, staging, bytes_of<T>(layout.padded), by);
    } else if (plan_.recipe.reduction == ReductionKind::ordered) {
      transport_.all_to_all(contribution, staging, bytes_of<T>(layout.shard), by);
    } else if (placement.gradients == Sharding::sharded) {
      transport_.reduce_scatter(dtype_of<T>, contribution, staging, layout.shard, by);
    } else {
      std::byte* const sums = bytes(plan_.gradient_kind(), unit);
      std::int64_t const own = plan_.shape.rank * layout.shard * size_of_gradient();
      if (placement.exchange == Exchange::all_reduce)
        transport_.all_reduce(plan_.gradient_type(), sums, layout.padded, by);
      else
        transport_.reduce_scatter(plan_.gradient_type(), sums, sums + own, layout.shard, by);
    }
  }

  /// Adds what was exchanged, in rank order, to the gradient: acc = c_0, acc = acc + c_m.
  void fold(int unit, int micro_batch) {
    UnitLayout const& layout = plan_.layout(unit);
    PlacementTable const& placement = plan_.recipe.placement;
    bool const first = micro_batch == 0;
    bool const to_root = placement.exchange == Exchange::reduce_to_root;
    bool const exchanged =
        plan_.shape.world > 1 && (to_root || plan_.recipe.reduction == ReductionKind::ordered ||
                                  placement.gradients == Sharding::sharded);
    if (to_root && exchanged && !plan_.is_root()) return;
    Range const target = !exchanged || to_root ? Range{0, layout.padded} : layout.shard_of(plan_.shape.rank);
    int pieces = 1;
    if (exchanged && (to_root || plan_.recipe.reduction == ReductionKind::ordered))
      pieces = plan_.shape.world;
    T const* const from =
        reinterpret_cast<T const*>(bytes(exchanged ? Kind::staging : Kind::contribution, unit));
    S* const to = gradient_as_sums(unit, target.begin);
    ops::fold(context_, Tensor<S, Place>{to, {target.size()}}, from, pieces, target.size(), first);
  }

  /// Hands folded gradients back to every rank.
  void gather(int unit) {
    UnitLayout const& layout = plan_.layout(unit);
    std::byte* const sums = bytes(plan_.gradient_kind(), unit);
    std::int64_t const shard = layout.shard * size_of_gradient();
    transport_.all_gather(sums + plan_.shape.rank * shard, sums, shard, tag("gather", unit, -1));
  }

  /// Square sums of this rank's part of a unit's gradient, and where its first value lies that is not finite.
  void norm(int unit) {
    Range const part = plan_.normed(unit);
    if (part.size() == 0) return;
    std::int64_t const at = part.begin - plan_.gradient_range(unit).begin;
    Tensor<float, Place> const partials{own_.partials(0) + norm_offset_[static_cast<std::size_t>(unit)],
                                        {part.size() / shard_alignment}};
    if (plan_.accumulates)
      norm_of(unit, part, Tensor<S const, Place>{pointer<S>(Kind::accumulator, unit) + at, {part.size()}},
              partials);
    else
      norm_of(unit, part, Tensor<T const, Place>{pointer<T>(Kind::contribution, unit) + at, {part.size()}},
              partials);
  }

  /// The end of the gradient: exchanges norm partials, losses and counts, and decides the update
  /// (finish_step).
  void finish() {
    if (plan_.shape.world > 1)
      transport_.all_gather(own_.first, shares_.first, shares_.bytes, tag("norm", -1, -1));
    ops::finish_step(context_, shares_, state_address(), rule_);
  }

  /// Moves the gradient to the place of the optimizer; with unit -1 the scalars.
  void stream(int unit) {
    if (unit < 0) {
      copy(reinterpret_cast<std::byte const*>(state_address()), bytes(Kind::host_state, -1),
           static_cast<std::int64_t>(sizeof(StepState)));
      return;
    }
    Range const part = plan_.updated(unit);
    if (part.size() == 0) return;
    std::int64_t const at = part.begin - plan_.gradient_range(unit).begin;
    if (plan_.accumulates)
      copy(pointer<S>(Kind::accumulator, unit) + at, pointer<S>(Kind::landing, unit), part.size());
    else
      copy(pointer<T>(Kind::contribution, unit) + at, pointer<T>(Kind::landing, unit), part.size());
  }

  /// AdamW on this rank's part of a unit, where its optimizer is.
  void update(int unit) {
    if (plan_.updated(unit).size() == 0) return;
    if (!plan_.streams()) {
      update_on(context_, state_address(), unit);
      return;
    }
    double const elements = static_cast<double>(plan_.updated(unit).size());
    bool const apart = plan_.recipe.types.parameter != plan_.recipe.types.master;
    double const bytes = static_cast<double>(size_of_gradient()) + 6.0 * sizeof(S) + (apart ? sizeof(T) : 0);
    context_.host_task({"host_adamw", 14.0 * elements, bytes * elements}, &ParameterStore::run_host_update,
                       &host_updates_[static_cast<std::size_t>(unit)]);
  }

  /// Brings updated weights back from the place of the optimizer, and to every rank that holds them.
  void publish(int unit) {
    PlacementTable const& placement = plan_.recipe.placement;
    UnitLayout const& layout = plan_.layout(unit);
    Range const part = plan_.updated(unit);
    Range const changed = intersect(part, {0, layout.undecayed.end});  // the rest is frozen or padding
    if (plan_.streams() && changed.size()) {
      T* const to = weights_as<T>(unit) + (changed.begin - plan_.held(placement.parameters, unit).begin);
      bool const same = plan_.recipe.types.parameter == plan_.recipe.types.master;
      copy(pointer<T>(same ? Kind::master : Kind::updated, unit) + (changed.begin - part.begin), to,
           changed.size());
    }
    if (plan_.shape.world == 1 || placement.parameters == Sharding::sharded) return;
    if (placement.optimizer == Sharding::root)
      transport_.broadcast(0, weights(unit), bytes_of<T>(layout.padded), tag("publish", unit, -1));
    else if (placement.optimizer == Sharding::sharded)
      transport_.all_gather(weights(unit) + plan_.shape.rank * bytes_of<T>(layout.shard), weights(unit),
                            bytes_of<T>(layout.shard), tag("publish", unit, -1));
  }

  /// Where one micro-batch leaves its loss sum and token count: memory of the place.
  LossSum* loss_slot(int micro_batch) const { return own_.losses(0) + micro_batch; }
  /// Before a step: fixes its scalars; no value is known to be bad yet.
  void begin_step(double learning_rate) {
    ops::begin_step(context_, state_address(), own_.bad(0), rule_, learning_rate);
  }

  // ---- outside steps --------------------------------------------------------------------------------------

  /// Waits for what steps left under way; throws PeerLost when another rank keeps it from ending. On the CPU
  /// every step ends complete.
  void settle() {
    transport_.await([this] { return context_.finished(); }, "the end of its steps");
  }

  /// Sets all weights this rank holds (and its master weights) from a source; moments and scale start anew.
  /// Local: no rank waits for another.
  void fill(ParameterSource const& source) {
    PlacementTable const& placement = plan_.recipe.placement;
    for (int unit = 0; unit < plan_.units_count(); ++unit) {
      Range const kept = plan_.held(placement.parameters, unit);
      Range const updated = plan_.updated(unit);
      bool const apart = !plan_.weights_are_master() && updated.size() > 0;
      std::size_t const weight_bytes = static_cast<std::size_t>(bytes_of<T>(kept.size()));
      std::size_t const master_bytes = static_cast<std::size_t>(apart ? bytes_of<S>(updated.size()) : 0);
      std::byte* const master_place = apart ? bytes(Kind::master, unit) : nullptr;
      std::byte* const weight_draft = context_.draft(weights(unit), weight_bytes);
      std::byte* const master_draft = apart ? context_.draft(master_place, master_bytes) : nullptr;
      form(source, unit, kept, reinterpret_cast<T*>(weight_draft), updated,
           reinterpret_cast<S*>(master_draft));
      context_.commit(weights(unit), weight_draft, weight_bytes);
      if (apart) context_.commit(master_place, master_draft, master_bytes);
    }
  }

  /// Hands every parameter's logical master values to `sink` on rank 0, in the order of names. All ranks call
  /// it together; the others' sinks are not called. Waits for everything enqueued; takes host memory for one
  /// unit and one parameter at a time, outside the arenas.
  void collect(ParameterSink const& sink) {
    settle();
    struct Named {
      std::string const* name;
      int unit, parameter;
    };
    std::vector<Named> order;
    for (int unit = 0; unit < plan_.units_count(); ++unit)
      for (int parameter = 0; parameter < static_cast<int>(plan_.unit(unit).parameters.size()); ++parameter)
        order.push_back(
            {&plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)].name, unit, parameter});
    std::sort(order.begin(), order.end(), [](Named const& a, Named const& b) { return *a.name < *b.name; });

    std::vector<S> gathered;
    std::vector<float> values;
    S const* whole = nullptr;
    int in_memory = -1;
    for (Named const& next : order) {
      UnitLayout const& layout = plan_.layout(next.unit);
      if (in_memory != next.unit) {
        whole = reinterpret_cast<S const*>(context_.host_view(
            master_of(next.unit), static_cast<std::size_t>(bytes_of<S>(plan_.updated(next.unit).size()))));
        if (plan_.recipe.placement.optimizer == Sharding::sharded) {
          gathered.resize(plan_.is_root() ? static_cast<std::size_t>(layout.padded) : 0);
          transport_.gather(0, whole, gathered.data(), bytes_of<S>(layout.shard),
                            tag("collect", next.unit, -1));
          whole = gathered.data();
        }
        in_memory = next.unit;
      }
      if (!plan_.is_root()) continue;
      Range const part = layout.parameters[static_cast<std::size_t>(next.parameter)];
      values.resize(static_cast<std::size_t>(part.size()));
      for (std::int64_t i = 0; i < part.size(); ++i)
        values[static_cast<std::size_t>(i)] = static_cast<float>(whole[part.begin + i]);
      sink(plan_.unit(next.unit).parameters[static_cast<std::size_t>(next.parameter)], values);
      transport_.heartbeat();  // a slow disk is no dead rank
    }
  }

  /// "h.3.mlp.c_fc.weight": the parameter that holds an element of a unit's flat buffer, or the unit's name.
  std::string name_at(std::int64_t unit, std::int64_t element) const {
    if (unit < 0 || unit >= plan_.units_count()) return {};
    UnitLayout const& layout = plan_.layout(static_cast<int>(unit));
    for (std::size_t index = 0; index < layout.parameters.size(); ++index)
      if (layout.parameters[index].begin <= element && element < layout.parameters[index].end)
        return plan_.unit(static_cast<int>(unit)).parameters[index].name;
    return plan_.unit(static_cast<int>(unit)).name;
  }

 private:
  template <class U>
  static std::int64_t bytes_of(std::int64_t elements) {
    return elements * static_cast<std::int64_t>(sizeof(U));
  }
  std::int64_t size_of_gradient() const { return static_cast<std::int64_t>(size_of(plan_.gradient_type())); }

  template <class U>
  void copy(U const* from, U* to, std::int64_t elements) {
    ops::copy(context_, Tensor<U const, Place>{from, {elements}}, Tensor<U, Place>{to, {elements}});
  }

  comm::CollectiveId tag(char const* verb, int unit, int micro_batch) const {
    return {verb, unit < 0 ? "all units" : plan_.unit(unit).name.c_str(), micro_batch};
  }

  template <class U>
  U* pointer(int buffer) const {
    return reinterpret_cast<U*>(memory_.train(buffer));
  }
  template <class U>
  U* pointer(Kind kind, int unit, int index = 0) const {
    return pointer<U>(plan_.train.find(kind, unit, index));
  }
  std::byte* bytes(Kind kind, int unit) const { return pointer<std::byte>(kind, unit); }
  std::byte* weights(int unit) const { return bytes(Kind::parameters, unit); }
  template <class U>
  U* weights_as(int unit) const {
    return reinterpret_cast<U*>(weights(unit));
  }

  /// This rank's part of the master weights.
  S* master_of(int unit) const {
    if (!plan_.weights_are_master()) return pointer<S>(Kind::master, unit);
    Range const kept = plan_.held(plan_.recipe.placement.parameters, unit);
    return weights_as<S>(unit) + (plan_.updated(unit).begin - kept.begin);
  }

  /// The sums of a fold from element `begin` of the unit on. Contributions are sums only where T is S.
  S* gradient_as_sums(int unit, std::int64_t begin) const {
    return pointer<S>(plan_.gradient_kind(), unit) + (begin - plan_.gradient_range(unit).begin);
  }

  template <class U>
  void norm_of(int unit, Range part, Tensor<U const, Place> values, Tensor<float, Place> partials) {
    ops::norm_partials(context_, values, partials);
    ops::find_bad(context_, values, partials, unit, part.begin, own_.bad(0));
  }

  /// What a host task needs to know of its unit.
  struct HostUpdate {
    ParameterStore* store;
    int unit;
  };
  static void run_host_update(Context<Cpu>& host, void* data) {
    HostUpdate const& task = *static_cast<HostUpdate const*>(data);
    StepState* const state = reinterpret_cast<StepState*>(task.store->bytes(Kind::host_state, -1));
    task.store->update_on(host, state, task.unit);
  }

  /// The update on the context of its place, with that place's copy of the scalars.
  template <class P>
  void update_on(Context<P>& context, StepState* state, int unit) {
    if (plan_.accumulates)
      update_from<S>(context, state, unit);
    else
      update_from<T>(context, state, unit);
  }

  template <class G, class P>
  void update_from(Context<P>& context, StepState* state, int unit) {
    UnitLayout const& layout = plan_.layout(unit);
    Range const part = plan_.updated(unit);
    G const* const gradient = plan_.streams() ? pointer<G const>(Kind::landing, unit)
                                              : pointer<G const>(plan_.gradient_kind(), unit) +
                                                    (part.begin - plan_.gradient_range(unit).begin);
    S* const master = master_of(unit);
    T* weights = nullptr;
    if (!plan_.weights_are_master()) {
      if (!plan_.streams())
        weights =
            weights_as<T>(unit) + (part.begin - plan_.held(plan_.recipe.placement.parameters, unit).begin);
      else if (plan_.recipe.types.parameter != plan_.recipe.types.master)
        weights = pointer<T>(Kind::updated, unit);
    }
    for (int group : {0, 1}) {
      Range const now = intersect(part, group == 0 ? layout.decayed : layout.undecayed);
      if (!now.size()) continue;
      std::int64_t const at = now.begin - part.begin;
      ops::adamw(context, now.size(), gradient + at, master + at, pointer<S>(Kind::moments, unit, 0) + at,
                 pointer<S>(Kind::moments, unit, 1) + at, weights ? weights + at : nullptr,
                 static_cast<AdamWFactors<S> const*>(factors_of<S>(state) + group),
                 static_cast<std::int64_t const*>(&state->skipped));
    }
  }

  /// Fills the parts of a unit that this rank keeps as weights and as master weights (or null).
  void form(ParameterSource const& source, int unit, Range kept, T* weights, Range updated, S* master) {
    constexpr std::int64_t chunk = 16384;
    std::exception_ptr thrown;
    std::mutex mutex;
    for (int parameter = 0; parameter < static_cast<int>(plan_.unit(unit).parameters.size()); ++parameter) {
      Range const whole = plan_.layout(unit).parameters[static_cast<std::size_t>(parameter)];
      context_.host().pool().parallel_for((whole.size() + chunk - 1) / chunk, [&](std::int64_t task, int) {
        Range const part = intersect(whole, {whole.begin + task * chunk, whole.begin + (task + 1) * chunk});
        Range const in_weights = intersect(part, kept),
                    in_master = master ? intersect(part, updated) : Range{};
        if (!in_weights.size() && !in_master.size()) return;
        std::array<float, chunk> values;
        try {
          source(unit, parameter, part.begin - whole.begin,
                 std::span(values).first(static_cast<std::size_t>(part.size())));
        } catch (...) {
          std::lock_guard const lock(mutex);
          if (!thrown) thrown = std::current_exception();
          return;
        }
        for (std::int64_t i = in_weights.begin; i < in_weights.end; ++i)
          weights[i - kept.begin] = static_cast<T>(values[static_cast<std::size_t>(i - part.begin)]);
        for (std::int64_t i = in_master.begin; i < in_master.end; ++i)
          master[i - updated.begin] = static_cast<S>(values[static_cast<std::size_t>(i - part.begin)]);
      });
      if (thrown) std::rethrow_exception(thrown);
    }
  }

  StepPlan const& plan_;
  StepMemory<Place> const& memory_;
  Context<Place>& context_;
  comm::Transport& transport_;
  StepRule const& rule_;
  StepShares shares_;  // of all ranks
  StepShares own_;     // this rank's, as a world of one
  std::vector<std::int64_t> norm_offset_;
  std::vector<HostUpdate> host_updates_;
};

}  // namespace tessera::inline v0
