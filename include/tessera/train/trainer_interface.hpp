// SPDX-License-Identifier: Apache-2.0
// Declares AnyTrainer, the interface of one rank's trainer, and the function that makes one. Programs that
// link tessera::recipes compile this interface and not the engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/state_file.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/policy/table.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"

namespace tessera {
inline namespace v0 {

/// The bytes that a rank's trainer has read from its file and written to it, including running steps, and the
/// name of the I/O engine. Empty for a recipe that keeps no state in a file.
struct FileUse {
  FileTraffic bytes{};
  std::string engine;  ///< NvmeFile::description
};

class StateAccess;

/// One rank's trainer of any model under any recipe. BasicTrainer documents the functions that have no
/// comment here.
class AnyTrainer {
 public:
  virtual ~AnyTrainer() = default;

  Ticket step(Batch const& batch) { return step(batch, false); }
  /// Runs a step. If `stop` is true, also requests that all ranks end the training: StepReport::stop of this
  /// step is then true on every rank. This needs no synchronisation. Steps that were enqueued before the
  /// report is read run, too. TrainingLoop ends on all ranks after the same step.
  virtual Ticket step(Batch const& batch, bool stop) = 0;
  virtual double evaluate(Batch const& batch) = 0;
  virtual void fill(ParameterSource const& source) = 0;
  virtual void collect_pieces(ParameterSink const& sink) = 0;
  void collect(ParameterSink const& sink) { collect_pieces(whole_parameters(sink)); }
  virtual void synchronize() = 0;
  virtual void observe(StepObserver observer) = 0;
  /// Measures when each entry of every later step begins and ends. `timer` gets the times before the step's
  /// ticket returns its report. With a null `timer`, stops the measurement. A timed step waits for the steps
  /// before it. The timer must outlive the timed steps.
  virtual void time_entries(EntryTimer* timer) = 0;
  /// Returns access to the rank's state as bytes, for checkpoints (state_access.hpp).
  virtual StateAccess& state() = 0;

  virtual StepPlan const& plan() const = 0;
  /// Returns the largest number of bytes that this rank has used so far in the memory tier `tier`. The plan's
  /// prediction is plan().arena_bytes.
  virtual std::int64_t peak_bytes(Tier tier) const = 0;
  /// Returns the bytes read from and written to the rank's file. The plan's prediction for each step is
  /// plan().file_traffic().
  virtual FileUse file_use() const = 0;
  /// Returns the attention implementation that ran, or `automatic` before the first step.
  virtual AttentionKind attention_ran() const = 0;
  /// Passes the operations and collectives of one step to `recorder`, in order, and computes nothing. Calls
  /// the observer after each entry.
  virtual void record(Recorder& recorder, StepObserver const& observer = {}) = 0;
};

/// A model without its C++ type: its object, functions and sizes, for an engine.
template <class Place, class T>
struct ErasedModel {
  std::shared_ptr<void const> object;
  UnitFunctions<Place, T> functions;
  std::function<std::vector<UnitSpec>(MicroBatch)> units;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
};

namespace detail {

/// Makes the trainer of one device and number format. `open` opens the file for state on a disk; it may be
/// null if the recipe keeps no state on a disk. All ranks must call make_engine together. Throws the errors
/// of BasicTrainer's constructor. Defined in engine.hpp, or compiled in tessera::recipes.
template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(ErasedModel<Place, T> model, RecipeTable const& recipe,
                                        comm::Comm comm, TrainerOptions const& options, OpenStateFile open);

}  // namespace detail

}  // namespace v0
}  // namespace tessera
