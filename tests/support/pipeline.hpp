// SPDX-License-Identifier: Apache-2.0
// Generates the schedule of one stage of pipeline parallelism, in the order 1F1B: one forward, one backward
// (Narayanan et al., SC 2021). The tests only check this schedule. No engine runs pipeline stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/nn/model.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/placing.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace support {

using namespace tessera;

/// Names the stage whose schedule is generated: stage number `stage` of `stages` stages. Two further members
/// plant a fault in the schedule, for tests of the checker. With `sends_first`, this stage sends an output
/// before it receives the gradient that the next stage is sending. Each stage waits until the other one
/// receives, so neither ever continues. `spared_slots` is the number of activation buffers that the plan
/// leaves out.
struct Stage {
  int stages = 1, stage = 0, micro_batches = 1;
  bool sends_first = false;
  int spared_slots = 0;

  /// Returns the number of micro-batches that are in flight (forward has run and backward has not), less the
  /// buffers that are missing on purpose.
  int slots() const { return std::min(stages - stage, micro_batches) - spared_slots; }
};

/// Generates the plan of one stage; run() returns this plan. The units (layers) of the model are divided
/// evenly among the stages. Only one stage has the weights of a unit and accumulates its gradients. Several
/// micro-batches are in flight at once, and each of them keeps activations from its forward until its
/// backward. An activation therefore has several buffers, called slots: one for each micro-batch in flight.
/// The repeated part of the schedule has one forward and one backward for each slot. Its entries therefore
/// use the same slots in every repetition.
class StageGenerator {
 public:
  StageGenerator(std::vector<UnitSpec> units, Stage const& by) : by_(by) {
    plan_.units = std::move(units);
    plan_.lay_out();
    plan_.shape.accumulation = by.micro_batches;
    int const count = plan_.units_count();
    begin_ = count * by.stage / by.stages;
    end_ = count * (by.stage + 1) / by.stages;
  }

  StepPlan run() {
    Schedule& schedule = plan_.train.schedule;
    int const warm = std::min(by_.stages - 1 - by_.stage, by_.micro_batches);
    int const pairs = by_.micro_batches - warm;
    for (int micro = 0; micro < warm; ++micro) {
      forward(micro);
      send_output(micro);
    }
    schedule.body_begin = schedule.body_end = static_cast<int>(schedule.entries.size());
    schedule.times = std::max(1, pairs / by_.slots());
    schedule.stride = by_.slots();
    for (int pair = 0; pair < pairs; ++pair) {
      if (schedule.times > 1 && pair == by_.slots()) {
        schedule.body_end = static_cast<int>(schedule.entries.size());
        pair = schedule.times * by_.slots();
        if (pair == pairs) break;
      }
      forward(warm + pair);
      if (by_.sends_first) send_output(warm + pair);
      receive_gradient(pair);
      if (!by_.sends_first) send_output(warm + pair);
      backward(pair);
    }
    for (int micro = pairs; micro < by_.micro_batches; ++micro) {
      receive_gradient(micro);
      backward(micro);
    }
    for (int unit = begin_; unit < end_; ++unit)
      work(Verb::update, unit, -1, {state(BufferKind::gradient, unit)}, {state(BufferKind::weights, unit)});
    tessera::detail::place_buffers(plan_.train);
    connect(schedule, tessera::detail::sharing_of(plan_.train));
    return std::move(plan_);
  }

 private:
  using List = std::vector<int>;

  int state(BufferKind kind, int unit) {
    std::int64_t const bytes = unit < 0 ? 1000 : 4 * plan_.layout(unit).flats.front().padded;
    return plan_.train.add({.kind = kind, .unit = unit, .bytes = bytes, .persistent = true});
  }
  int micro_gradient(int unit) {
    return plan_.train.add({.kind = BufferKind::micro_gradient,
                            .unit = unit,
                            .bytes = 4 * plan_.layout(unit).flats.front().padded});
  }
  int activation(BufferKind kind, int unit, int index, Shape const& shape, int slot) {
    return plan_.train.add({.kind = kind,
                            .unit = unit,
                            .index = index,
                            .slot = slot,
                            .bytes = 4 * shape.elements(),
                            .range = {0, shape.elements()}});
  }
  int slot(int micro) const { return micro % by_.slots(); }
  int output(int unit, int micro) {
    return activation(BufferKind::output, unit, 0, plan_.unit(unit).output, slot(micro));
  }
  /// Returns the buffer of a unit's output gradient. A gradient that is sent between stages has one slot for
  /// each micro-batch in flight. The other gradients are used only within one backward, so one slot is
  /// enough.
  int output_gradient(int unit, int micro) {
    bool const crosses = unit + 1 == begin_ || unit + 1 == end_;
    return activation(BufferKind::output_gradient, unit, 0, plan_.unit(unit).output,
                      crosses ? slot(micro) : 0);
  }
  List saved(int unit, int micro) {
    List list;
    for (ActivationSpec const& spec : plan_.unit(unit).saved)
      list.push_back(
          activation(BufferKind::saved, unit, static_cast<int>(list.size()), spec.shape, slot(micro)));
    return list;
  }
  List left_for_weights(int unit) {
    List list;
    for (ActivationSpec const& spec : plan_.unit(unit).backward)
      list.push_back(activation(BufferKind::backward, unit, static_cast<int>(list.size()), spec.shape, 0));
    return list;
  }

  Entry& work(Verb verb, int unit, int micro, List reads, List writes) {
    Entry entry;
    entry.verb = verb;
    entry.unit = unit;
    entry.micro_batch = micro;
    // Roles do not matter, because no engine runs the schedule. All inputs are `source` and all outputs are
    // `target`.
    for (int const buffer : reads) entry.operands.push_back({Role::source, Access::read, buffer});
    for (int const buffer : writes) entry.operands.push_back({Role::target, Access::write, buffer});
    plan_.train.schedule.entries.push_back(std::move(entry));
    return plan_.train.schedule.entries.back();
  }
  void cross(Move move, Group with, int unit, int micro, int buffer) {
    bool const sends = move == Move::send;
    Entry& entry =
        work(Verb::cross, unit, micro, sends ? List{buffer} : List{}, sends ? List{} : List{buffer});
    entry.move = move;
    entry.group = with;
    entry.lane = Lane::communication;
    entry.items.push_back({unit, plan_.train.at(buffer).range, -1, std::exchange(entry.operands, {})});
  }

  void forward(int micro) {
    if (begin_ > 0) cross(Move::receive, Group::previous, begin_ - 1, micro, output(begin_ - 1, micro));
    for (int unit = begin_; unit < end_; ++unit) {
      List reads{state(BufferKind::batch, -1), state(BufferKind::weights, unit)};
      List writes = saved(unit, micro);
      writes.push_back(state(BufferKind::workspace, -1));
      if (unit > 0) reads.push_back(output(unit - 1, micro));
      if (plan_.unit(unit).output.dims()) writes.push_back(output(unit, micro));
      work(Verb::forward, unit, micro, std::move(reads), std::move(writes));
    }
  }
  void send_output(int micro) {
    if (end_ < plan_.units_count()) cross(Move::send, Group::next, end_ - 1, micro, output(end_ - 1, micro));
  }
  void receive_gradient(int micro) {
    if (end_ < plan_.units_count())
      cross(Move::receive, Group::next, end_ - 1, micro, output_gradient(end_ - 1, micro));
  }
  void backward(int micro) {
    for (int unit = end_ - 1; unit >= begin_; --unit) {
      List reads = saved(unit, micro);
      reads.insert(reads.end(), {state(BufferKind::batch, -1), state(BufferKind::weights, unit)});
      if (unit > 0) reads.push_back(output(unit - 1, micro));
      if (unit + 1 < plan_.units_count()) reads.push_back(output_gradient(unit, micro));
      List writes = left_for_weights(unit);
      writes.push_back(state(BufferKind::workspace, -1));
      if (unit > 0) writes.push_back(output_gradient(unit - 1, micro));
      work(Verb::backward_input, unit, micro, reads, std::move(writes));
      for (int const buffer : left_for_weights(unit)) reads.push_back(buffer);
      work(Verb::backward_weight, unit, micro, std::move(reads),
           {micro_gradient(unit), state(BufferKind::workspace, -1)});
      work(Verb::accumulate, unit, micro, {micro_gradient(unit)}, {state(BufferKind::gradient, unit)})
          .operands.back()
          .role = Role::gradient;
    }
    if (begin_ > 0) cross(Move::send, Group::previous, begin_ - 1, micro, output_gradient(begin_ - 1, micro));
  }

  Stage by_;
  StepPlan plan_;
  int begin_ = 0, end_ = 0;  // the stage has the units [begin_, end_)
};

}  // namespace support
