// SPDX-License-Identifier: Apache-2.0
// One rank's state as bytes between steps, whatever device and format its engine has: what checkpoints read
// and write.
#pragma once

#include <cstddef>

#include "tessera/comm/communicator.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

/// Parts of buffers of `plan().train` that hold state. A part begins and ends at multiples of
/// shard_alignment; what pads it stays zero. Local: no rank waits for another.
class StateAccess {
 public:
  virtual ~StateAccess() = default;

  virtual StepPlan const& plan() const = 0;
  virtual TrainerOptions const& options() const = 0;
  virtual comm::Transport& transport() const = 0;

  /// Waits for the steps under way. Throws what went wrong in one.
  virtual StepState scalars() = 0;
  /// The next step is number `state.attempted` + 1.
  virtual void set_scalars(StepState const& state) = 0;

  /// SaveStaging::bytes of host memory: the plan's, or where it has none this object's own.
  virtual std::byte* staging() = 0;
  /// The bytes as the host reads them, up to checkpoint_chunk elements; valid until the next call of this
  /// object.
  virtual std::byte const* view(Buffer const& buffer, Range part) = 0;
  /// Host memory in which they are formed anew, all but the padding, until `put`.
  virtual std::byte* stage(Buffer const& buffer, Range part) = 0;
  virtual void put(Buffer const& buffer, Range part, std::byte* staged) = 0;

  /// Begins a copy of all that this rank writes, after the steps under way; later steps may begin at once.
  /// The plan has a snapshot.
  virtual void take_snapshot() = 0;
  /// These two may be called by another thread: whether the copy is there, and then its bytes.
  virtual bool has_snapshot() const = 0;
  virtual std::byte const* snapshot(Buffer const& buffer, Range part) const = 0;
};

}  // namespace v0
}  // namespace tessera
