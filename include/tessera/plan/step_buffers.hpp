// SPDX-License-Identifier: Apache-2.0
// Makes the descriptions of a planned step's buffers: first the persistent buffers, then each other buffer
// when an entry first uses it. Allocates no memory for the buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/backend/operations.hpp"
#include "tessera/config.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Finds the buffers of one program by their purpose, or adds them to the program. A function that returns an
/// int returns the index of a buffer in Program::buffers, or -1 if the program has no such buffer.
class StepBuffers {
 public:
  using Kind = BufferKind;
  using List = std::vector<int>;

  StepBuffers(StepPlan const& plan, Program& program) : plan_(plan), program_(program) { add_persistent(); }

  Buffer const& operator[](int buffer) const { return program_.at(buffer); }

  // ---- state ----------------------------------------------------------------------------------------------

  int weights(Flat of) { return program_.find(Kind::weights, of); }
  int gradient(Flat of) { return program_.find(plan_.table.gradient.kind, of); }
  int master(Flat of) { return program_.find(plan_.master_kind(of), of); }
  /// Returns the buffers of all optimizer states of a flat group.
  List moments(Flat of) {
    List list(plan_.optimizer.size());
    for (std::size_t index = 0; index < list.size(); ++index)
      list[index] = program_.find(Kind::moment, of, static_cast<int>(index));
    return list;
  }
  /// Returns a buffer for this rank's part of a flat group under the placement `where`. The buffer has space
  /// for the values of `pieces` ranks, one rank after another. `block` is the number of elements that share
  /// one value.
  int state_buffer(Kind kind, Flat of, int index, Copy copy, DType type, Placement const& where,
                   int pieces = 1, std::int64_t block = 1) {
    Range const range = plan_.held(where.over, of);
    Buffer buffer{
        .kind = kind, .copy = copy, .unit = of.unit, .flat = of.group, .index = index, .tier = where.tier};
    buffer.type = type;
    buffer.over = where.over;
    buffer.range = range;
    buffer.block = block;
    buffer.pieces = pieces;
    buffer.bytes = buffer.bytes_of(range.size()) * pieces;
    return program_.add(buffer);
  }
  /// Returns the buffer of a flat group's micro-batch gradient. If gradients are not accumulated separately
  /// (StepTable::accumulates), this buffer is also the step's gradient.
  int micro_gradient(Flat of) {
    return state_buffer(Kind::micro_gradient, of, 0, {}, plan_.recipe.types.micro_gradient, {});
  }

  // ---- scalars, statistics, inputs and workspaces ---------------------------------------------------------

  int scalars() const { return scalars_; }
  int host_scalars() const { return host_scalars_; }
  int partials() const { return partials_; }
  int host_partials() const { return host_partials_; }
  int all_partials() const { return all_partials_; }
  int batch() const { return batch_; }
  int losses() const { return losses_; }
  /// Norms and updates read tables (ops::Rows) of the addresses of their arrays. Returns the buffer that
  /// contains these tables: on the device for Tier::device, and on the host for every other tier.
  int rows(Tier tier) const { return rows_[tier != Tier::device]; }
  /// Returns the scratch buffer of the compute lane (0) or of the lane for weight gradients (1).
  int workspace(int index = 0) const { return workspaces_[static_cast<std::size_t>(index)]; }

  // ---- activations ----------------------------------------------------------------------------------------

  /// Returns the buffer of a tensor of a unit: an output, a saved tensor or a tensor of backward. A statistic
  /// has the format of sums, and any other tensor has the format of activations.
  int activation(Kind kind, int unit, int index, Shape const& shape, bool statistic = false, Copy copy = {}) {
    DType const type = statistic ? plan_.recipe.types.accumulator : plan_.recipe.types.activation;
    return program_.add({.kind = kind,
                         .copy = copy,
                         .unit = unit,
                         .index = index,
                         .bytes = shape.elements() * size(type),
                         .type = type,
                         .range = {0, shape.elements()}});
  }
  int output(int unit) { return activation(Kind::output, unit, 0, plan_.unit(unit).output); }
  /// Returns the buffer to which recomputation writes a unit's output, as the input of the next recomputed
  /// unit.
  int rebuilt_output(int unit) {
    return activation(Kind::output, unit, 0, plan_.unit(unit).output, false, {Verb::recompute, 0});
  }
  int output_gradient(int unit) {
    return activation(Kind::output_gradient, unit, 0, plan_.unit(unit).output);
  }
  /// Returns the buffer of a saved tensor. If `dropped`, returns the temporary buffer to which forward writes
  /// a tensor that it does not keep.
  int saved(int unit, int index, bool dropped) {
    ActivationSpec const& spec = plan_.unit(unit).saved[static_cast<std::size_t>(index)];
    return activation(Kind::saved, unit, index, spec.shape, spec.statistic,
                      dropped ? Copy{Verb::forward, 0} : Copy{});
  }
  int backward(int unit, int index) {
    ActivationSpec const& spec = plan_.unit(unit).backward[static_cast<std::size_t>(index)];
    return activation(Kind::backward, unit, index, spec.shape, spec.statistic);
  }

  // ---- gradients of borrowed parameters -------------------------------------------------------------------

  /// Returns the buffer in which the gradients of a tied parameter are summed: the owner's micro-batch
  /// gradient if its number format is the one in which gradients are summed, otherwise a buffer of the
  /// borrower whose backward runs first. Returns -1 for a frozen parameter.
  int tied_sum(Borrow const& what) {
    if (!plan_.trains(what)) return -1;
    if (in_place()) return micro_gradient(plan_.flat_of(what.unit, what.parameter));
    auto const [unit, borrow] = first_backward_borrower(what);
    return unit < 0 ? -1 : tied(unit, borrow);
  }
  /// Returns the buffer to which a borrower writes its gradient of a tied parameter: `tied_sum` for the
  /// borrower whose backward runs first, and a separate buffer for each other borrower.
  int tied_gradient(int unit, int borrow) {
    Borrow const& what = plan_.unit(unit).borrows[static_cast<std::size_t>(borrow)];
    if (!plan_.trains(what)) return -1;
    return first_backward_borrower(what) == std::pair(unit, borrow) ? tied_sum(what) : tied(unit, borrow);
  }
  /// Returns the position of a tied parameter's gradient in `buffer`, in elements.
  std::int64_t tied_begin(int buffer, Borrow const& what) const {
    bool const in_owner = program_.at(buffer).kind == Kind::micro_gradient;
    return in_owner ? plan_.layout(what.unit).parameters[static_cast<std::size_t>(what.parameter)].begin : 0;
  }
  bool is_borrowed(int unit, int parameter) const {
    return first_backward_borrower({unit, parameter}).first >= 0;
  }

 private:
  /// Returns the Copy that marks a host buffer as a copy of scalars or statistics, made by the verb `by`.
  static constexpr Copy on_host(Verb by) { return {by, 0}; }
  static std::int64_t size(DType type) { return static_cast<std::int64_t>(size_of(type)); }

  /// Returns whether borrowers can add their gradients to the owner's micro-batch gradient.
  bool in_place() const { return plan_.recipe.types.micro_gradient == plan_.recipe.types.accumulator; }
  int tied(int unit, int borrow) {
    Borrow const& what = plan_.unit(unit).borrows[static_cast<std::size_t>(borrow)];
    std::int64_t const elements =
        plan_.unit(what.unit).parameters[static_cast<std::size_t>(what.parameter)].in_memory().elements();
    DType const type = plan_.recipe.types.accumulator;
    return program_.add({.kind = Kind::tied_gradient,
                         .unit = unit,
                         .index = borrow,
                         .bytes = elements * size(type),
                         .type = type,
                         .range = {0, elements}});
  }
  /// Returns the unit and the index in UnitSpec::borrows of the borrower whose backward runs first, which is
  /// the last unit that borrows the parameter. Returns {-1, -1} if there is none.
  std::pair<int, int> first_backward_borrower(Borrow const& what) const {
    for (int unit = plan_.units_count() - 1; unit >= 0; --unit)
      for (std::size_t index = 0; index < plan_.unit(unit).borrows.size(); ++index) {
        Borrow const& other = plan_.unit(unit).borrows[index];
        if (other.unit == what.unit && other.parameter == what.parameter)
          return {unit, static_cast<int>(index)};
      }
    return {-1, -1};
  }

  int keep(int buffer) {
    program_.buffers[static_cast<std::size_t>(buffer)].persistent = true;
    return buffer;
  }
  /// Adds a persistent buffer that belongs to no unit.
  int keep_bytes(Kind kind, DType type, std::int64_t bytes, Tier tier = Tier::device, int index = 0,
                 Copy copy = {}) {
    return keep(program_.add({.kind = kind,
                              .copy = copy,
                              .index = index,
                              .bytes = bytes,
                              .tier = tier,
                              .type = type,
                              .range = {0, bytes / size(type)}}));
  }

  /// Adds the persistent buffers. The training and the evaluation program have the same persistent buffers,
  /// in the same order and before all other buffers. So a persistent buffer has one offset in both programs.
  void add_persistent() {
    DTypes const& types = plan_.recipe.types;
    PlacementTable const& rows = plan_.placement();
    StepShape const& shape = plan_.shape;
    for (Flat const of : plan_.flats()) {
      keep(state_buffer(Kind::weights, of, 0, {}, types.parameter, rows.parameters));
      if (!plan_.flat(of).trainable) continue;
      if (!plan_.table.weights_are_master())
        keep(state_buffer(Kind::master, of, 0, {}, types.master, rows.master));
      int index = 0;
      for (OptimizerState const& state : plan_.optimizer)
        keep(state_buffer(Kind::moment, of, index++, {}, state.type, rows.moments, 1, state.block));
      keep(plan_.table.accumulates
               ? state_buffer(Kind::gradient, of, 0, {}, types.accumulator, rows.gradients)
               : micro_gradient(of));
    }
    std::int64_t const share = plan_.statistics().bytes;
    partials_ = keep_bytes(Kind::partials, DType::f32, share);
    if (plan_.table.norm_in_sum)
      host_partials_ = keep_bytes(Kind::partials, DType::f32, share, Tier::host, 0, on_host(Verb::exchange));
    if (shape.world > 1) all_partials_ = keep_bytes(Kind::all_partials, DType::f32, share * shape.world);
    keep_bytes(Kind::norm_ranges, DType::f32,
               static_cast<std::int64_t>(sizeof(NormRange) * plan_.norm_ranges().size()));
    auto const each = [&](std::size_t bytes) {
      return static_cast<std::int64_t>(bytes * plan_.trainable().size());
    };
    std::size_t const norm = plan_.table.norm_in_sum ? 0 : sizeof(ops::NormRow),
                      update = 2 * sizeof(ops::UpdateRow);  // one row with weight decay and one without
    bool const off_device = plan_.table.optimizer_off_device();
    rows_[0] = keep_bytes(Kind::rows, DType::f32, each(norm + (off_device ? 0 : update)));
    if (off_device) rows_[1] = keep_bytes(Kind::rows, DType::f32, each(update), Tier::host, 1);
    scalars_ = keep_bytes(Kind::scalars, DType::f32, static_cast<std::int64_t>(sizeof(StepState)));
    if (off_device)
      host_scalars_ = keep_bytes(Kind::scalars, DType::f32, static_cast<std::int64_t>(sizeof(StepState)),
                                 Tier::host, 0, on_host(Verb::copy_scalars));
    batch_ = keep_bytes(Kind::batch, DType::f32, 2 * 4 * shape.accumulation * shape.batch * shape.sequence);
    losses_ =
        keep_bytes(Kind::losses, types.accumulator, shape.batch * shape.sequence * size(types.accumulator));
    workspaces_[0] = keep_bytes(Kind::workspace, DType::f32, shape.workspace_bytes);
    if (shape.weight_lag > 0)
      workspaces_[1] = keep_bytes(Kind::workspace, DType::f32, shape.workspace_bytes, Tier::device, 1);
    add_checkpoint_memory();
  }

  void add_checkpoint_memory() {
    if (plan_.shape.checkpoints == CheckpointMemory::none) return;
    keep_bytes(Kind::saving, DType::f32, SaveStaging::bytes, Tier::host);
    if (plan_.shape.checkpoints != CheckpointMemory::snapshot) return;
    for (Flat const of : plan_.flats()) {
      keep(copy_of(master(of), 0));
      if (!plan_.flat(of).trainable) continue;
      int index = 0;
      for (int const state : moments(of)) keep(copy_of(state, ++index));
    }
  }
  /// Adds a host buffer for a copy of the part of a state buffer that this rank writes to a checkpoint.
  /// `buffer` is the index of the state buffer in Program::buffers. `index` becomes Buffer::index of the new
  /// buffer. Returns the index of the new buffer in Program::buffers.
  int copy_of(int buffer, int index) {
    Buffer copy = program_.at(buffer);
    copy.kind = Kind::snapshot;
    copy.index = index;
    copy.tier = Tier::host;
    copy.range = plan_.written(copy);
    copy.bytes = copy.bytes_of(copy.range.size());
    return program_.add(copy);
  }

  StepPlan const& plan_;
  Program& program_;
  // The persistent buffers that belong to no unit; -1: the program has none.
  int scalars_ = -1, host_scalars_ = -1, partials_ = -1, host_partials_ = -1, all_partials_ = -1;
  int batch_ = -1, losses_ = -1;
  std::array<int, 2> rows_{-1, -1}, workspaces_{-1, -1};
};

}  // namespace detail

}  // namespace v0
}  // namespace tessera
