// SPDX-License-Identifier: Apache-2.0
// The interface of one rank's trainer, and the function that makes one. Programs that link tessera::recipes
// compile no more of an engine than this.
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

/// The bytes that a rank's trainer has read from its file and written to it since it was made, running steps
/// included, and the I/O engine. Empty for a recipe that keeps nothing in a file.
struct FileUse {
  FileTraffic bytes{};
  std::string engine;  ///< NvmeFile::description
};

class StateAccess;

/// One rank's trainer of some model under some recipe; see BasicTrainer for what each call does and throws.
class AnyTrainer {
 public:
  virtual ~AnyTrainer() = default;

  Ticket step(Batch const& batch) { return step(batch, false); }
  /// If `stop` is set, requests that all ranks end the training. The step still runs, and its report says on
  /// every rank that a rank asked (StepReport::stop). Costs no synchronisation. Steps that were enqueued
  /// before the report is read run, too. TrainingLoop ends on all ranks after the same step.
  virtual Ticket step(Batch const& batch, bool stop) = 0;
  virtual double evaluate(Batch const& batch) = 0;
  virtual void fill(ParameterSource const& source) = 0;
  virtual void collect_pieces(ParameterSink const& sink) = 0;
  void collect(ParameterSink const& sink) { collect_pieces(whole_parameters(sink)); }
  virtual void settle() = 0;
  virtual void observe(StepObserver observer) = 0;
  /// Tells the timer when the entries of every later step ran, before the step's ticket is read. Null ends
  /// this. A timed step waits for the steps before it. The timer must outlive the timed steps.
  virtual void time_entries(EntryTimer* timer) = 0;
  /// The rank's state as bytes, for checkpoints (state_access.hpp).
  virtual StateAccess& state() = 0;

  virtual StepPlan const& plan() const = 0;
  /// The highest byte in use of this rank's arena of a tier. The plan predicts plan().arena_bytes.
  virtual std::int64_t peak_bytes(Tier tier) const = 0;
  /// The plan predicts plan().file_traffic() for each step.
  virtual FileUse file_use() const = 0;
  /// The attention that ran for the recipe's choice; `automatic` before the first step.
  virtual AttentionKind attention_ran() const = 0;
  /// Runs a step on a recording context. Reports operations and collectives, and computes nothing. Calls the
  /// observer after each entry.
  virtual void record(Recorder& recorder, StepObserver const& observer = {}) = 0;
};

/// A model without its type: what the engine needs of it.
template <class Place, class T>
struct ErasedModel {
  std::shared_ptr<void const> object;
  UnitFunctions<Place, T> functions;
  std::function<std::vector<UnitSpec>(MicroBatch)> units;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
};

namespace detail {

/// Makes the trainer of one place and element type. `open` opens the file of a recipe that keeps state in
/// one; it may be null otherwise. All ranks call it together. Throws what BasicTrainer's constructor throws.
/// Defined in engine.hpp, or compiled in tessera::recipes.
template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(ErasedModel<Place, T> model, RecipeTable const& recipe,
                                        comm::Comm comm, TrainerOptions const& options, OpenStateFile open);

}  // namespace detail

}  // namespace v0
}  // namespace tessera
