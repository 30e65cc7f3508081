// SPDX-License-Identifier: Apache-2.0
// Reads and writes one rank's training state as bytes, between steps, for any device and number format.
// Checkpoints use it.
#pragma once

#include <cstddef>

#include "tessera/comm/communicator.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

/// Reads and writes parts of the buffers that hold training state (in `plan().train`). A part begins and ends
/// at multiples of shard_alignment elements. Padding in a part stays zero. No rank waits for another.
class StateAccess {
 public:
  virtual ~StateAccess() = default;

  virtual StepPlan const& plan() const = 0;
  virtual TrainerOptions const& options() const = 0;
  virtual comm::Transport& transport() const = 0;

  /// Waits for running steps, then returns the scalars, such as the step counts. Throws the error of a step
  /// that failed.
  virtual StepState scalars() = 0;
  /// Replaces the scalars. The next step then has the number `state.attempted` + 1.
  virtual void set_scalars(StepState const& state) = 0;

  /// Returns SaveStaging::bytes bytes of host memory. Allocates them on the first call if the plan reserves
  /// none.
  virtual std::byte* staging() = 0;
  /// Returns the bytes of a part in host memory. A part has at most checkpoint_chunk elements. The bytes are
  /// valid until the next call on this object.
  virtual std::byte const* view(Buffer const& buffer, Range part) = 0;
  /// Returns host memory for the new bytes of a part. The caller writes all bytes except the padding, then
  /// calls `put`, which copies them to the buffer.
  virtual std::byte* stage(Buffer const& buffer, Range part) = 0;
  virtual void put(Buffer const& buffer, Range part, std::byte* staged) = 0;

  /// Starts a copy of the state that this rank writes to a checkpoint, after the enqueued steps. The caller
  /// may enqueue later steps at once. The plan must have memory for the copy (CheckpointMemory::snapshot).
  virtual void take_snapshot() = 0;
  /// `has_snapshot` returns whether the copy is complete. `snapshot` returns bytes of a complete copy.
  /// Another thread may call these two functions.
  virtual bool has_snapshot() const = 0;
  virtual std::byte const* snapshot(Buffer const& buffer, Range part) const = 0;
};

}  // namespace v0
}  // namespace tessera
