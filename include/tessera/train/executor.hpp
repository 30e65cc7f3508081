// SPDX-License-Identifier: Apache-2.0
// Runs a program: binds each compute entry's buffers to a Pass once, then takes the entries in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/parameter_store.hpp"

namespace tessera {
inline namespace v0 {

/// Executes one program (train or evaluate) of a plan, entry by entry in list order: lanes and waits are the
/// context's to keep, and a device whose work is done when a call returns needs neither.
template <class Place, class T>
class Executor {
 public:
  using S = compute_t<T>;
  using Kind = BufferKind;
  using Store = ParameterStore<Place, T>;

  Executor(StepPlan const& plan, Program const& program, StepMemory<Place> const& memory,
           UnitFunctions<Place, T> functions, void const* model)
      : plan_(plan),
        program_(program),
        memory_(memory),
        functions_(functions),
        model_(model),
        passes_(program.schedule.entries.size()) {
    for (std::size_t index = 0; index < passes_.size(); ++index)
      if (Entry const& entry = program.schedule.entries[index]; computes(entry.verb))
        bind(passes_[index], entry);
  }

  /// Enqueues the whole program, each entry on its lane after those it waits for. Throws what a collective
  /// throws.
  void run(Context<Place>& context, Store& store, comm::Transport& transport,
           StepObserver const& observer = {}) {
    struct OffStream {
      comm::Transport& transport;
      ~OffStream() { transport.on_stream(nullptr); }
    } const off_stream{transport};
    Schedule const& schedule = program_.schedule;
    std::int64_t end = 0;  // of the bucket
    for (std::int64_t index = 0; index < schedule.turns(); ++index) {
      Turn const turn = schedule.turn(index);
      transport.heartbeat();
      context.begin(turn.index, turn.entry.lane, turn.waits);
      transport.on_stream(context.native_stream());
      if (index == end) {
        end = index + bucket_size(schedule.entries, turn.index);
        if (end > index + 1) transport.begin_group();
      }
      run(turn, context, store);
      if (index + 1 == end) transport.end_group();
      context.end(turn.index, turn.entry.signals);
      if (observer) show(turn, observer);
    }
  }

 private:
  bool training() const { return &program_ == &plan_.train; }

  std::byte* address(int buffer) const {
    return buffer < 0 ? nullptr : memory_.of(program_)[static_cast<std::size_t>(buffer)];
  }
  template <class U>
  U* pointer(int buffer) const {
    return reinterpret_cast<U*>(address(buffer));
  }
  template <class U>
  U* pointer(Kind kind, Flat of, int index = 0) const {
    return pointer<U>(program_.find(kind, of, index));
  }

  /// An observer sees the entry as it has run.
  void show(Turn const& turn, StepObserver const& observer) const {
    Entry entry = turn.entry;
    entry.micro_batch = turn.micro_batch;
    observer(plan_, entry, memory_.of(program_));
  }

  /// The buffer of a kind that this entry touches for a unit or one of its flat groups, or null.
  std::byte* touched(Entry const& entry, Kind kind, Flat of, int index) const {
    for (auto const* list : {&entry.reads, &entry.writes})
      for (int const buffer : *list) {
        Buffer const& about = program_.at(buffer);
        if (about.kind == kind && about.unit == of.unit && about.flat == of.group &&
            (index < 0 || about.index == index))
          return address(buffer);
      }
    return nullptr;
  }
  template <class U>
  Tensor<U, Place> tensor(std::byte* data, Shape const& shape) const {
    return data ? Tensor<U, Place>{reinterpret_cast<U*>(data), shape} : Tensor<U, Place>{};
  }

  /// A parameter, or its gradient, in the buffer of its flat group; empty where there is none.
  template <class U>
  Tensor<U, Place> view_of(std::byte* base, Borrow const& what) const {
    std::int64_t const begin =
        plan_.layout(what.unit).parameters[static_cast<std::size_t>(what.parameter)].begin;
    return base ? Tensor<U, Place>{reinterpret_cast<U*>(base) + begin, shape_of(what)} : Tensor<U, Place>{};
  }
  /// A weight as this entry may read it: empty outside an acquired region.
  Tensor<T const, Place> weight(Entry const& entry, Borrow const& what) const {
    Flat const of = plan_.flat_of(what.unit, what.parameter);
    std::byte* const gathered = touched(entry, Kind::gathered, of, -1);
    return view_of<T const>(gathered ? gathered : touched(entry, Kind::parameters, of, -1), what);
  }

  void bind(Pass<Place, T>& pass, Entry const& entry) {
    int const unit = entry.unit;
    UnitSpec const& spec = plan_.unit(unit);
    pass.training = training() && unit >= plan_.lowest_trainable();
    pass.weights = std::vector<Tensor<T const, Place>>(spec.parameters.size());
    for (std::size_t index = 0; index < spec.parameters.size(); ++index)
      pass.weights[index] = weight(entry, {unit, static_cast<int>(index)});
    pass.borrowed = std::vector<Tensor<T const, Place>>(spec.borrows.size());
    for (std::size_t index = 0; index < spec.borrows.size(); ++index)
      pass.borrowed[index] = weight(entry, spec.borrows[index]);

    pass.adapters = spec.adapters;
    pass.adapting = functions_.adapting;

    if (unit > 0) {
      Shape const& shape = plan_.unit(unit - 1).output;
      std::byte* input = touched(entry, Kind::spare_output, unit - 1, 0);
      if (!input) input = touched(entry, Kind::output, unit - 1, 0);
      pass.input = tensor<T const>(input, shape);
      if (entry.verb == Verb::backward_input)
        pass.input_gradient = tensor<T>(touched(entry, Kind::output_gradient, unit - 1, 0), shape);
    }
    pass.output =
        tensor<T>(touched(entry, entry.verb == Verb::recompute ? Kind::spare_output : Kind::output, unit, 0),
                  spec.output);
    pass.output_gradient = tensor<T const>(touched(entry, Kind::output_gradient, unit, 0), spec.output);

    auto const activations = [&](std::vector<ActivationSpec> const& specs, Kind kind, auto& values,
                                 auto& statistics) {
      values = std::vector<Tensor<T, Place>>(specs.size());
      statistics = std::vector<Tensor<S, Place>>(specs.size());
      for (std::size_t index = 0; index < specs.size(); ++index) {
        std::byte* data = touched(entry, kind, unit, static_cast<int>(index));
        if (!data && kind == Kind::saved) data = touched(entry, Kind::dropped, unit, static_cast<int>(index));
        if (specs[index].statistic)
          statistics[index] = tensor<S>(data, specs[index].shape);
        else
          values[index] = tensor<T>(data, specs[index].shape);
      }
    };
    activations(spec.saved, Kind::saved, pass.saved_values, pass.saved_statistics);
    activations(spec.backward, Kind::backward, pass.backward_values, pass.backward_statistics);

    if (unit + 1 == plan_.units_count()) {
      Shape const tokens{plan_.shape.batch * plan_.shape.sequence};
      pass.losses = Tensor<S, Place>(pointer<S>(Kind::losses, -1), tokens);
      pass.gradient_scale = backward_scale_of<S>(pointer<StepState>(Kind::state, -1));
    }
    if (entry.verb == Verb::backward_weight) bind_gradients(pass, entry);
  }

  void bind_gradients(Pass<Place, T>& pass, Entry const& entry) {
    int const unit = entry.unit;
    UnitSpec const& spec = plan_.unit(unit);
    pass.lent = std::vector<Tensor<S, Place>>(spec.borrows.size());
    for (std::size_t borrow = 0; borrow < spec.borrows.size(); ++borrow) {
      Borrow const& what = spec.borrows[borrow];
      std::byte* data = touched(entry, Kind::lent, unit, static_cast<int>(borrow));
      if (!data) data = lent_in_place(entry, what);
      pass.lent[borrow] = tensor<S>(data, shape_of(what));
    }
    pass.gradients = std::vector<Tensor<T, Place>>(spec.parameters.size());
    pass.partials = std::vector<Tensor<S, Place>>(spec.parameters.size());
    for (std::size_t index = 0; index < spec.parameters.size(); ++index) {
      int const parameter = static_cast<int>(index);
      std::byte* const group = touched(entry, Kind::contribution, plan_.flat_of(unit, parameter), 0);
      pass.gradients[index] = view_of<T>(group, {unit, parameter});
      pass.partials[index] = left_by_borrowers(entry, unit, parameter);
    }
  }

  Shape shape_of(Borrow const& what) const {
    return plan_.unit(what.unit).parameters[static_cast<std::size_t>(what.parameter)].in_memory();
  }
  /// The owner's contribution as the place where its first borrower writes; only where T is S.
  std::byte* lent_in_place(Entry const& entry, Borrow const& what) const {
    Flat const of = plan_.flat_of(what.unit, what.parameter);
    return reinterpret_cast<std::byte*>(view_of<S>(touched(entry, Kind::contribution, of, 0), what).data());
  }
  /// What borrowers left of an owned parameter's gradient: in place, or in the buffer of the last unit's
  /// borrow.
  Tensor<S, Place> left_by_borrowers(Entry const& entry, int unit, int parameter) const {
    for (int other = plan_.units_count() - 1; other > unit; --other)
      for (int borrow = 0; borrow < static_cast<int>(plan_.unit(other).borrows.size()); ++borrow) {
        Borrow const& what = plan_.unit(other).borrows[static_cast<std::size_t>(borrow)];
        if (what.unit != unit || what.parameter != parameter) continue;
        std::byte* data = touched(entry, Kind::lent, other, borrow);
        if (!data) data = lent_in_place(entry, what);
        return tensor<S>(data, shape_of(what));
      }
    return {};
  }

  void run(Turn const& turn, Context<Place>& context, Store& store) {
    switch (turn.entry.verb) {
      case Verb::forward:
      case Verb::recompute:
        return compute(turn, context, store, functions_.forward);
      case Verb::restore:
        return compute(turn, context, store, functions_.recompute);
      case Verb::backward_input:
        return compute(turn, context, store, functions_.backward_input);
      case Verb::backward_weight:
        return compute(turn, context, store, functions_.backward_weight);
      case Verb::release:
        return;
      case Verb::acquire:
      case Verb::reduce:
      case Verb::fold:
      case Verb::norm:
      case Verb::stream:
      case Verb::update:
      case Verb::publish:
      case Verb::share:
      case Verb::decide:
      case Verb::brief:
      case Verb::cross:
        return store.run(program_, turn.entry, turn.micro_batch);
    }
  }

  void compute(Turn const& turn, Context<Place>& context, Store& store,
               typename UnitFunctions<Place, T>::Function function) {
    Entry const& entry = turn.entry;
    Pass<Place, T>& pass = passes_[static_cast<std::size_t>(turn.index)];
    StepShape const& shape = plan_.shape;
    std::int64_t const elements = shape.batch * shape.sequence;
    auto const* const tokens = pointer<std::int32_t>(Kind::batch, -1);
    pass.device = &context;
    pass.tokens = {tokens + turn.micro_batch * elements, {shape.batch, shape.sequence}};
    pass.targets = {tokens + (shape.accumulation + turn.micro_batch) * elements,
                    {shape.batch, shape.sequence}};
    bool const ends =
        entry.unit + 1 == plan_.units_count() && entry.segment + 1 == plan_.unit(entry.unit).segments();
    try {
      function(model_, entry.unit, entry.segment, pass);
    } catch (Error const& error) {
      std::string const& unit = plan_.unit(entry.unit).name;
      v0::detail::throw_error(error.kind(), {unit, ", ", name_of(entry.verb), ": ", error.what()},
                              error.rank(), unit);
    }
    if (entry.verb == Verb::backward_weight && entry.segment == 0) complete(entry, pass, context);
    if (entry.verb == Verb::forward && ends) {
      LossSum* const slot = store.loss_slot(turn.micro_batch);
      ops::sum_losses(context, pass.losses, pass.targets.reshaped({elements}), &slot->loss, &slot->unmasked);
    }
  }

  /// After a unit's last backward_weight: later borrowers join the first, and what is no parameter's stays
  /// zero.
  void complete(Entry const& entry, Pass<Place, T> const& pass, Context<Place>& context) {
    UnitSpec const& spec = plan_.unit(entry.unit);
    for (std::size_t borrow = 0; borrow < spec.borrows.size(); ++borrow) {
      if (!pass.lent[borrow]) continue;
      Tensor<S, Place> const left =
          left_by_borrowers(entry, spec.borrows[borrow].unit, spec.borrows[borrow].parameter);
      if (left.data() != pass.lent[borrow].data())
        ops::fold(context, left.reshaped({left.elements()}), pass.lent[borrow].data(), 1, left.elements(),
                  false);
    }
    auto const& flats = plan_.layout(entry.unit).flats;
    for (int group = 0; group < static_cast<int>(flats.size()); ++group) {
      FlatLayout const& layout = flats[static_cast<std::size_t>(group)];
      if (!layout.trainable) continue;
      T* const contribution = pointer<T>(Kind::contribution, {entry.unit, group});
      auto const clear = [&](Range range) {
        if (range.size())
          ops::fill(context, Tensor<T, Place>{contribution + range.begin, {range.size()}},
                    static_cast<T>(0.0f));
      };
      for (Range const& gap : layout.gaps) clear(gap);
    }
  }

  StepPlan const& plan_;
  Program const& program_;
  StepMemory<Place> const& memory_;
  UnitFunctions<Place, T> functions_;
  void const* model_;
  std::vector<Pass<Place, T>> passes_;  // of each entry; empty where it computes nothing
};

}  // namespace v0
}  // namespace tessera
