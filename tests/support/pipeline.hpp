// SPDX-License-Identifier: Apache-2.0
// Provides StageGenerator, which generates the step plan of one stage of pipeline parallelism. Its schedule
// has the order 1F1B: one forward, one backward (Narayanan et al., SC 2021). Only the tests of the schedule
// checker use it. No engine runs pipeline stages.
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

/// Describes the pipeline stage whose schedule is generated: stage number `stage` of `stages` stages, for
/// `micro_batches` micro-batches. `sends_first` and `spared_slots` plant faults for tests of the checker. If
/// `sends_first` is true, this stage sends an output before it receives the gradient that the next stage is
/// sending. Each of the two stages then waits until its neighbor receives, so the two stages never continue.
/// `spared_slots` is the number of necessary activation buffers that the step plan leaves out.
struct Stage {
  int stages = 1, stage = 0, micro_batches = 1;
  bool sends_first = false;
  int spared_slots = 0;

  /// Returns the number of buffers (slots) that the step plan has for each activation. This is the largest
  /// number of micro-batches whose forward has run and whose backward has not, minus the buffers that
  /// `spared_slots` leaves out.
  int slots() const { return std::min(stages - stage, micro_batches) - spared_slots; }
};

/// Generates the step plan of one stage. run() returns this plan. The units (layers) of the model are divided
/// evenly among the stages, and each unit has weights and gradients only on its stage. Several micro-batches
/// are in flight at once: forward has run for them and backward has not. An activation therefore has one
/// buffer, called a slot, for each micro-batch in flight. The repeated part of the schedule has one forward
/// and one backward for each slot, so each repetition uses the slots in the same way.
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
  /// Returns the buffer of the output gradient of unit `unit` for micro-batch `micro`. If this gradient is
  /// sent between two stages, it has one buffer (slot) for each micro-batch in flight. Otherwise it is used
  /// only within one backward, so one buffer is enough.
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
    // Engines use the role of an operand to find the arguments of an operation. No engine runs this schedule,
    // so every input has the role `source` and every output the role `target`.
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
