// SPDX-License-Identifier: Apache-2.0
// Runs a program: binds the buffers of each compute entry to a Pass once, then runs the entries in order.
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

/// Runs one program (train or evaluate) of a plan, entry by entry in list order. The context implements lanes
/// and waits. A place whose calls return when their work is done needs neither.
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

  /// Enqueues the whole program, each entry on its lane and after the entries it waits for. Passes on the
  /// errors of collectives.
  void run(Context<Place>& context, Store& store, comm::Transport& transport,
           StepObserver const& observer = {}) {
    struct OffStream {
      comm::Transport& transport;
      ~OffStream() { transport.on_stream(nullptr); }
    } const off_stream{transport};
    Schedule const& schedule = program_.schedule;
    for (std::int64_t index = 0; index < schedule.turns(); ++index) {
      Turn const turn = schedule.turn(index);
      transport.heartbeat();
      context.begin(turn.index, turn.entry.lane, turn.waits);
      transport.on_stream(context.native_stream());
      run(turn, context, store);
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
  /// Shows an observer the entry with the micro-batch of its turn.
  void show(Turn const& turn, StepObserver const& observer) const {
    Entry entry = turn.entry;
    entry.micro_batch = turn.micro_batch;
    observer(plan_, entry, memory_.of(program_));
  }

  template <class U>
  Tensor<U, Place> tensor(int buffer, Shape const& shape) const {
    return {pointer<U>(buffer), shape};
  }
  Shape shape_of(Borrow const& what) const {
    return plan_.unit(what.unit).parameters[static_cast<std::size_t>(what.parameter)].in_memory();
  }
  /// A view of a parameter, or of its gradient, in a buffer of its flat group.
  template <class U>
  Tensor<U, Place> in_flat(int buffer, Borrow const& what) const {
    Range const range = plan_.layout(what.unit).parameters[static_cast<std::size_t>(what.parameter)];
    return {pointer<U>(buffer) + range.begin, shape_of(what)};
  }
  Tensor<S, Place> tied(Operand const& operand, Borrow const& what) const {
    return {pointer<S>(operand.buffer) + operand.begin, shape_of(what)};
  }

  /// Binds a tensor that a unit keeps to one of two views, by its format.
  void bind(ActivationSpec const& kept, int buffer, Tensor<T, Place>& value,
            Tensor<S, Place>& statistic) const {
    if (kept.statistic)
      statistic = tensor<S>(buffer, kept.shape);
    else
      value = tensor<T>(buffer, kept.shape);
  }

  /// Gives a unit's code the tensors of an entry's operands. All other tensors stay empty.
  void bind(Pass<Place, T>& pass, Entry const& entry) {
    int const unit = entry.unit;
    UnitSpec const& spec = plan_.unit(unit);
    std::size_t const parameters = spec.parameters.size(), borrows = spec.borrows.size();
    pass.training = training() && unit >= plan_.lowest_trainable();
    pass.adapters = spec.adapters;
    pass.adapting = functions_.adapting;
    pass.weights.resize(parameters);
    pass.borrowed.resize(borrows);
    if (entry.verb == Verb::backward_weight) {
      pass.gradients.resize(parameters);
      pass.partials.resize(parameters);
      pass.lent.resize(borrows);
    }
    pass.saved_values.resize(spec.saved.size());
    pass.saved_statistics.resize(spec.saved.size());
    pass.backward_values.resize(spec.backward.size());
    pass.backward_statistics.resize(spec.backward.size());
    for (Operand const& operand : entry.operands) bind(pass, entry, operand);
  }
  void bind(Pass<Place, T>& pass, Entry const& entry, Operand const& operand) {
    int const unit = entry.unit, buffer = operand.buffer;
    auto const index = static_cast<std::size_t>(operand.index);
    UnitSpec const& spec = plan_.unit(unit);
    switch (operand.role) {
      case Role::weights:
        for (int own = 0; own < static_cast<int>(spec.parameters.size()); ++own)
          if (plan_.flat_of(unit, own) == operand.of)
            pass.weights[static_cast<std::size_t>(own)] = in_flat<T const>(buffer, {unit, own});
        for (std::size_t borrow = 0; borrow < spec.borrows.size(); ++borrow)
          if (Borrow const& what = spec.borrows[borrow];
              plan_.flat_of(what.unit, what.parameter) == operand.of)
            pass.borrowed[borrow] = in_flat<T const>(buffer, what);
        return;
      case Role::gradient:
        for (int own = 0; own < static_cast<int>(spec.parameters.size()); ++own)
          if (plan_.flat_of(unit, own) == operand.of)
            pass.gradients[static_cast<std::size_t>(own)] = in_flat<T>(buffer, {unit, own});
        return;
      case Role::tied_gradient:
        if (operand.writes())
          pass.lent[index] = tied(operand, spec.borrows[index]);
        else
          pass.partials[index] = tied(operand, {unit, operand.index});
        return;
      case Role::input:
        pass.input = tensor<T const>(buffer, plan_.unit(unit - 1).output);
        return;
      case Role::input_gradient:
        pass.input_gradient = tensor<T>(buffer, plan_.unit(unit - 1).output);
        return;
      case Role::output:
        pass.output = tensor<T>(buffer, spec.output);
        return;
      case Role::output_gradient:
        pass.output_gradient = tensor<T const>(buffer, spec.output);
        return;
      case Role::saved:
        return bind(spec.saved[index], buffer, pass.saved_values[index], pass.saved_statistics[index]);
      case Role::backward:
        return bind(spec.backward[index], buffer, pass.backward_values[index],
                    pass.backward_statistics[index]);
      case Role::losses:
        pass.losses = tensor<S>(buffer, {plan_.shape.batch * plan_.shape.sequence});
        return;
      case Role::scalars:
        if (unit + 1 == plan_.units_count())
          pass.gradient_scale = backward_scale_of<S>(pointer<StepState>(buffer));
        return;
      default:
        return;  // unit code does not see it
    }
  }

  void run(Turn const& turn, Context<Place>& context, Store& store) {
    switch (turn.entry.verb) {
      case Verb::forward:
      case Verb::recompute:
        return compute(turn, context, functions_.forward);
      case Verb::restore:
        return compute(turn, context, functions_.recompute);
      case Verb::backward_input:
        return compute(turn, context, functions_.backward_input);
      case Verb::backward_weight:
        return compute(turn, context, functions_.backward_weight);
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
      case Verb::sum_losses: {
        std::int64_t const samples = plan_.shape.batch * plan_.shape.sequence;
        LossSum* const slot = store.loss_slot(turn.micro_batch);
        return ops::sum_losses(context, tensor<S>(turn.entry.at(Role::losses), {samples}),
                               targets(turn.micro_batch).reshaped({samples}), &slot->loss, &slot->unmasked);
      }
      case Verb::add_tied:
        return add_tied(turn.entry, context);
      case Verb::clear_gaps:
        for (Operand const& operand : turn.entry.operands)
          for (Range const& gap : plan_.flat(operand.of).gaps)
            if (gap.size())
              ops::fill(context, Tensor<T, Place>{pointer<T>(operand.buffer) + gap.begin, {gap.size()}},
                        static_cast<T>(0.0f));
        return;
    }
  }

  void compute(Turn const& turn, Context<Place>& context,
               typename UnitFunctions<Place, T>::Function function) {
    Entry const& entry = turn.entry;
    Pass<Place, T>& pass = passes_[static_cast<std::size_t>(turn.index)];
    pass.device = &context;
    pass.tokens = tokens(turn.micro_batch);
    pass.targets = targets(turn.micro_batch);
    try {
      function(model_, entry.unit, entry.segment, pass);
    } catch (Error const& error) {
      std::string const& unit = plan_.unit(entry.unit).name;
      v0::detail::throw_error(error.kind(), {unit, ", ", name_of(entry.verb), ": ", error.what()},
                              error.rank(), unit);
    }
  }
  Tensor<std::int32_t const, Place> tokens(int micro_batch) const {
    StepShape const& shape = plan_.shape;
    auto const* const first = pointer<std::int32_t>(program_.find(Kind::batch, -1));
    return {first + micro_batch * shape.batch * shape.sequence, {shape.batch, shape.sequence}};
  }
  /// The targets follow the tokens of all micro-batches.
  Tensor<std::int32_t const, Place> targets(int micro_batch) const {
    return tokens(plan_.shape.accumulation + micro_batch);
  }
  void add_tied(Entry const& entry, Context<Place>& context) {
    Operand const &own = entry.operands[0], &sum = entry.operands[1];
    Borrow const& what = plan_.unit(entry.unit).borrows[static_cast<std::size_t>(sum.index)];
    Tensor<S, Place> const left = tied(sum, what);
    ops::fold(context, left.reshaped({left.elements()}), pointer<S>(own.buffer), 1, left.elements(), false);
  }

  StepPlan const& plan_;
  Program const& program_;
  StepMemory<Place> const& memory_;
  UnitFunctions<Place, T> functions_;
  void const* model_;
  std::vector<Pass<Place, T>> passes_;  // by entry; empty if it runs no unit's code
};

}  // namespace v0
}  // namespace tessera
