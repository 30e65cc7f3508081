// SPDX-License-Identifier: Apache-2.0
// Defines TrainingLoop, which feeds batches to a trainer, reads reports late, and ends on all ranks after the
// same step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// Work between steps, such as validation or saving. The loop calls `run` if `due` returns true. Both
/// functions get the number of completed steps.
struct LoopTask {
  std::function<bool(std::int64_t done)> due;  ///< must return the same value on all ranks
  std::function<void(std::int64_t done)> run = {};
};

/// Returns a task that is due after every `interval`-th step. Throws Error(usage) for an interval below 1.
inline LoopTask every(std::int64_t interval, std::function<void(std::int64_t done)> run) {
  if (interval < 1)
    throw Error(ErrorKind::usage, "training loop: a task is due after every " + std::to_string(interval) +
                                      " steps; give 1 or more, or leave the task out");
  return {[interval](std::int64_t done) { return done % interval == 0; }, std::move(run)};
}

/// Selects steps that run while no other step is enqueued, for measurements. The loop calls `begin` before
/// and `end` after a step for which `due` returns true. `step` is the number of the step, counted from 0.
struct IsolatedSteps {
  std::function<bool(std::int64_t step)> due = {};  ///< must return the same value on all ranks
  std::function<void(std::int64_t step)> begin = {};
  std::function<void(std::int64_t step, StepReport const& report)> end = {};
};

/// The settings of a TrainingLoop. Each rank has its own functions. `batch` and LoopTask::due must be set,
/// and all other functions may be empty.
struct TrainingLoopOptions {
  std::int64_t first_step = 0;  ///< the number of steps that an earlier run completed, as in a checkpoint
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();  ///< the number of steps after which to end
  /// Returns this rank's batch for a step, as Loader::load does. Steps count from 0. With several ranks on
  /// GPUs, the loop calls this function up to max_steps_in_flight + 1 steps early. If the function throws
  /// Error(data) for a step, the loop ends before this step on all ranks.
  std::function<Batch(std::int64_t step)> batch;
  /// Called before each step with the step's number, counted from 0. If it returns true on any rank, the loop
  /// ends on all ranks.
  std::function<bool(std::int64_t step)> stop = {};
  /// Called with the report of each step, in the order of the steps. The call for a step is up to
  /// max_steps_in_flight steps late.
  std::function<void(StepReport const& report)> report = {};
  /// The tasks, in the order in which the loop runs them after a step. Before a task runs, the loop reads the
  /// reports of all steps so far.
  std::vector<LoopTask> tasks = {};
  IsolatedSteps isolated = {};
};

/// Trains until a number of steps is done, a rank requests to stop, or a rank's data ends. Reads each report
/// StepShape::max_steps_in_flight steps late, so that a device never waits for the host.
///
/// All ranks end after the same step. If no step is in flight, the ranks agree on the last step before they
/// start the next step, by one all_gather of 8 bytes in host memory. If steps are in flight, a rank sends its
/// request to end with the statistics of a step, which the ranks exchange in any case. This costs no
/// synchronisation. At most max_steps_in_flight more steps then follow until the ranks agree.
class TrainingLoop {
 public:
  /// `trainer` must outlive the loop.
  TrainingLoop(AnyTrainer& trainer, comm::Comm comm, TrainingLoopOptions options)
      : trainer_(trainer),
        comm_(std::move(comm)),
        options_(std::move(options)),
        max_in_flight_(static_cast<std::size_t>(trainer.plan().shape.max_steps_in_flight)),
        votes_in_steps_(comm_.world() > 1 && max_in_flight_ > 0),
        batches_(votes_in_steps_ ? max_in_flight_ + 2 : 1),
        ends_(static_cast<std::size_t>(comm_.world())),
        loaded_(options_.first_step),
        done_(options_.first_step),
        end_(options_.steps) {
    if (!options_.batch)
      throw Error(ErrorKind::usage,
                  "training loop: options.batch is not set; set it to a function that returns batches");
  }

  /// Runs the loop once and returns the number of completed steps, `first_step` included. All ranks must call
  /// it. No step is in flight when it returns. Throws the errors of steps, tasks and functions. After an
  /// error, a step is possibly still in flight.
  std::int64_t run() {
    while (done_ < end_) {
      load();
      stop_ = stop_ || (options_.stop && options_.stop(done_));
      if (stop_requested_) read_until(0);
      if (!votes_in_steps_ || in_flight_.empty()) {
        agree_on_end();
        if (done_ >= end_) break;
      }
      bool const isolated = options_.isolated.due && options_.isolated.due(done_);
      if (isolated) {
        read_until(0);
        if (options_.isolated.begin) options_.isolated.begin(done_);
      }
      in_flight_.push_back(trainer_.step(batch_of(done_), stop_ || data_error_));
      std::int64_t const step = done_++;
      read_until(isolated ? 0 : max_in_flight_);
      if (isolated && options_.isolated.end) options_.isolated.end(step, last_);
      for (LoopTask const& task : options_.tasks) {
        if (!task.due(done_)) continue;
        read_until(0);
        if (task.run) task.run(done_);
      }
    }
    read_until(0);
    return done_;
  }

  /// Whether the loop ended early because a rank requested it or because a rank's data ended. The result is
  /// the same on all ranks.
  bool stopped() const { return end_ < options_.steps; }
  /// The error that ended the data of this rank; nullopt if its data has not ended.
  std::optional<Error> const& data_error() const { return data_error_; }

 private:
  Batch& batch_of(std::int64_t step) { return batches_[static_cast<std::size_t>(step) % batches_.size()]; }

  /// Loads the batches of the next steps before they are needed. If the data of this rank ends, the rank
  /// requests to end. Some more steps then run until the other ranks know of the request, and this rank must
  /// already have batches for these steps.
  void load() {
    auto const ahead = static_cast<std::int64_t>(batches_.size());
    try {
      for (; !data_error_ && loaded_ < options_.steps && loaded_ < done_ + ahead; ++loaded_)
        batch_of(loaded_) = options_.batch(loaded_);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::data) throw;
      data_error_ = error;
    }
  }

  /// Sets the number of steps after which all ranks end: the smallest number of any rank. A rank's own number
  /// is limited by its data, by its request to stop and by options.steps.
  void agree_on_end() {
    stop_requested_ = false;
    std::int64_t const own = stop_ ? done_ : data_error_ ? loaded_ : end_;
    comm_.transport().all_gather(&own, ends_.data(), sizeof own, {"vote"});
    for (std::int64_t const end : ends_) end_ = std::min(end_, end);
  }

  void read_until(std::size_t remaining) {
    for (; in_flight_.size() > remaining; in_flight_.pop_front()) {
      last_ = in_flight_.front().get();
      stop_requested_ = stop_requested_ || last_.stop;
      if (options_.report) options_.report(last_);
    }
  }

  AnyTrainer& trainer_;
  comm::Comm comm_;
  TrainingLoopOptions options_;
  std::size_t max_in_flight_;  // number of steps that the loop leaves in flight
  bool votes_in_steps_;
  std::vector<Batch> batches_;      // ring buffer, indexed by step
  std::vector<std::int64_t> ends_;  // index: rank
  std::int64_t loaded_, done_, end_;
  std::list<Ticket> in_flight_;  // oldest first
  StepReport last_;
  bool stop_ = false;            // this rank requests to end
  bool stop_requested_ = false;  // a report that was read says that a rank requested to end
  std::optional<Error> data_error_;
};

}  // namespace v0
}  // namespace tessera
