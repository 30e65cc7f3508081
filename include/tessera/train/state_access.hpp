// SPDX-License-Identifier: Apache-2.0
// Provides one rank's state as bytes between steps, for any device and format. Checkpoints read and write
// through it.
#pragma once

#include <cstddef>

#include "tessera/comm/communicator.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

/// Reads and writes the parts of `plan().train`'s buffers that hold state. A part begins and ends at
/// multiples of shard_alignment. Its padding stays zero. Local: no rank waits for another.
class StateAccess {
 public:
  virtual ~StateAccess() = default;

  virtual StepPlan const& plan() const = 0;
  virtual TrainerOptions const& options() const = 0;
  virtual comm::Transport& transport() const = 0;

  /// Waits for running steps. Throws the error of a step that failed.
  virtual StepState scalars() = 0;
  /// After this, the next step is number `state.attempted` + 1.
  virtual void set_scalars(StepState const& state) = 0;

  /// SaveStaging::bytes of host memory, from the plan or else from this object.
  virtual std::byte* staging() = 0;
  /// Returns the bytes in host memory, up to checkpoint_chunk elements. They are valid until the next call on
  /// this object.
  virtual std::byte const* view(Buffer const& buffer, Range part) = 0;
  /// Returns host memory in which to write all new bytes, except the padding, until `put`.
  virtual std::byte* stage(Buffer const& buffer, Range part) = 0;
  virtual void put(Buffer const& buffer, Range part, std::byte* staged) = 0;

  /// Starts a copy of everything that this rank writes, after the enqueued steps. Later steps may begin at
  /// once. The plan must have a snapshot.
  virtual void take_snapshot() = 0;
  /// Another thread may call these two: whether the copy is complete, and then its bytes.
  virtual bool has_snapshot() const = 0;
  virtual std::byte const* snapshot(Buffer const& buffer, Range part) const = 0;
};

}  // namespace v0
}  // namespace tessera
