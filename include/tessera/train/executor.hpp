// SPDX-License-Identifier: Apache-2.0
// Runs a planned training step, which is a list of entries (computations and transfers). Makes the tensor
// views of each computation once, then runs the entries in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/accumulate.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/parameter_store.hpp"

namespace tessera {
inline namespace v0 {

/// Runs one program (train or evaluate) of a plan, entry by entry in the order of the list. The context
/// implements lanes (CUDA streams) and the waits between them. On the CPU there are no lanes and no waits,
/// because each call returns when its work is done.
template <class Place, class T>
class Executor {
 public:
  using S = compute_t<T>;
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

  /// Enqueues the whole program: each entry on its lane (CUDA stream), after the entries for which it waits.
  /// Throws the errors of collectives.
  void run(Context<Place>& context, Store& store, comm::Transport& transport,
           StepObserver const& observer = {}) {
    struct OffStream {
      comm::Transport& transport;
      ~OffStream() { transport.on_stream(nullptr); }
    } const off_stream{transport};
    Schedule const& schedule = program_.schedule;
    for (std::int64_t index = 0; index < schedule.instances(); ++index) {
      Instance const instance = schedule.instance(index);
      transport.heartbeat();
      context.begin(instance.index, instance.entry.lane, instance.waits);
      transport.on_stream(context.native_stream());
      run(instance, context, store);
      context.end(instance.index, instance.entry.signals);
      if (!observer) continue;
      Entry entry = instance.entry;
      entry.micro_batch = instance.micro_batch;
      observer(plan_, entry, memory_.of(program_));
    }
  }

 private:
  template <class U>
  U* pointer(int buffer) const {
    return reinterpret_cast<U*>(memory_.of(program_)[static_cast<std::size_t>(buffer)]);
  }
  template <class U>
  Tensor<U, Place> tensor(int buffer, Shape const& shape) const {
    return {pointer<U>(buffer), shape};
  }
  /// Returns a view of a parameter, or of its gradient, that begins at element `begin` of a buffer.
  template <class U>
  Tensor<U, Place> view(int buffer, std::int64_t begin, Borrow const& what) const {
    return {pointer<U>(buffer) + begin, plan_.parameter(what).in_memory()};
  }
  /// Sets the view of a saved tensor. If the tensor is a statistic, such as a row's mean, sets `statistic`,
  /// which has the format of sums. Otherwise sets `value`.
  void bind(ActivationSpec const& activation, int buffer, Tensor<T, Place>& value,
            Tensor<S, Place>& statistic) const {
    if (activation.statistic)
      statistic = tensor<S>(buffer, activation.shape);
    else
      value = tensor<T>(buffer, activation.shape);
  }

  /// Prepares `pass`, the argument of the model's function for this entry: sets the tensor views of the
  /// entry's operands. All other views of `pass` stay empty.
  void bind(Pass<Place, T>& pass, Entry const& entry) {
    UnitSpec const& spec = plan_.unit(entry.unit);
    std::size_t const parameters = spec.parameters.size(), borrows = spec.borrows.size();
    pass.training = &program_ == &plan_.train && entry.unit >= plan_.lowest_trainable();
    pass.adapters = spec.adapters;
    pass.adapting = functions_.adapting;
    pass.weights.resize(parameters);
    pass.borrowed.resize(borrows);
    if (entry.verb == Verb::backward_weight) {
      pass.gradients.resize(parameters);
      pass.tied_sums.resize(parameters);
      pass.tied_gradients.resize(borrows);
    }
    pass.saved_values.resize(spec.saved.size());
    pass.saved_statistics.resize(spec.saved.size());
    pass.backward_values.resize(spec.backward.size());
    pass.backward_statistics.resize(spec.backward.size());
    for (Operand const& operand : entry.operands) bind(pass, entry.unit, operand);
  }
  void bind(Pass<Place, T>& pass, int unit, Operand const& operand) {
    int const buffer = operand.buffer;
    auto const index = static_cast<std::size_t>(operand.index);
    UnitSpec const& spec = plan_.unit(unit);
    switch (operand.role) {
      case Role::weights:
        bind_flat(pass.weights, unit, operand);
        for (std::size_t borrow = 0; borrow < spec.borrows.size(); ++borrow)
          if (Borrow const& what = spec.borrows[borrow]; plan_.flat_of(what) == operand.of)
            pass.borrowed[borrow] = view<T const>(buffer, plan_.elements_of(what).begin, what);
        return;
      case Role::gradient:
        return bind_flat(pass.gradients, unit, operand);
      case Role::tied_gradient:
        if (operand.writes())
          pass.tied_gradients[index] = view<S>(buffer, operand.begin, spec.borrows[index]);
        else
          pass.tied_sums[index] = view<S>(buffer, operand.begin, {unit, operand.index});
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
        pass.losses = tensor<S>(buffer, {samples()});
        return;
      case Role::scalars:
        if (unit + 1 == plan_.units_count())
          pass.gradient_scale = backward_scale_of<S>(pointer<StepState>(buffer));
        return;
      default:
        return;  // the model's code does not use this operand
    }
  }
  /// Makes the views of the unit's own parameters that are in the operand's buffer.
  template <class U>
  void bind_flat(std::vector<Tensor<U, Place>>& views, int unit, Operand const& operand) {
    for (std::size_t own = 0; own < views.size(); ++own)
      if (Borrow const what{unit, static_cast<int>(own)}; plan_.flat_of(what) == operand.of)
        views[own] = view<U>(operand.buffer, plan_.elements_of(what).begin, what);
  }

  void run(Instance const& instance, Context<Place>& context, Store& store) {
    Entry const& entry = instance.entry;
    switch (entry.verb) {
      case Verb::forward:
      case Verb::recompute:
        return compute(instance, context, functions_.forward);
      case Verb::restore:
        return compute(instance, context, functions_.recompute);
      case Verb::backward_input:
        return compute(instance, context, functions_.backward_input);
      case Verb::backward_weight:
        return compute(instance, context, functions_.backward_weight);
      case Verb::release:
        return;
      case Verb::sum_losses: {
        LossSum* const slot = store.loss_slot(instance.micro_batch);
        return ops::sum_losses(context, tensor<S>(entry.at(Role::losses), {samples()}),
                               targets(instance.micro_batch).reshaped({samples()}), &slot->loss,
                               &slot->valid_tokens);
      }
      case Verb::add_tied: {
        Operand const &from = entry.operands[0], &to = entry.operands[1];
        Borrow const& what = plan_.unit(entry.unit).borrows[static_cast<std::size_t>(to.index)];
        Tensor<S, Place> const sum = view<S>(to.buffer, to.begin, what);
        return ops::accumulate(context, sum.reshaped({sum.elements()}), pointer<S>(from.buffer), 1,
                               sum.elements(), false);
      }
      case Verb::clear_gaps:
        for (Operand const& operand : entry.operands)
          for (Range const& gap : plan_.flat(operand.of).gaps)
            if (gap.size())
              ops::fill(context, Tensor<T, Place>{pointer<T>(operand.buffer) + gap.begin, {gap.size()}},
                        static_cast<T>(0.0f));
        return;
      default:
        return store.run(program_, entry, instance.micro_batch);
    }
  }

  void compute(Instance const& instance, Context<Place>& context,
               typename UnitFunctions<Place, T>::Function function) {
    Entry const& entry = instance.entry;
    Pass<Place, T>& pass = passes_[static_cast<std::size_t>(instance.index)];
    pass.device = &context;
    pass.tokens = tokens(instance.micro_batch);
    pass.targets = targets(instance.micro_batch);
    try {
      function(model_, entry.unit, entry.segment, pass);
    } catch (Error const& error) {
      std::string const& unit = plan_.unit(entry.unit).name;
      throw_error(error.kind(), {unit, ", ", name_of(entry.verb), ": ", error.what()}, error.rank(), unit);
    }
  }
  std::int64_t samples() const { return plan_.shape.batch * plan_.shape.sequence; }
  Tensor<std::int32_t const, Place> tokens(int micro_batch) const {
    auto const* const first = pointer<std::int32_t>(program_.find(BufferKind::batch, -1));
    return {first + micro_batch * samples(), {plan_.shape.batch, plan_.shape.sequence}};
  }
  /// Returns the targets of a micro-batch. The batch's buffer holds first the tokens and then the targets of
  /// all micro-batches.
  Tensor<std::int32_t const, Place> targets(int micro_batch) const {
    return tokens(plan_.shape.accumulation + micro_batch);
  }

  StepPlan const& plan_;
  Program const& program_;
  StepMemory<Place> const& memory_;
  UnitFunctions<Place, T> functions_;
  void const* model_;
  std::vector<Pass<Place, T>> passes_;  // one per entry; empty for entries that do not call the model
};

}  // namespace v0
}  // namespace tessera
