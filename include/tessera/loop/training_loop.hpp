// SPDX-License-Identifier: Apache-2.0
// Folder loop: the training loop. TrainingLoop feeds batches to a trainer, reads reports late, and ends on
// all ranks after the same step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
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

/// Work between steps, such as validation or saving. Both functions get the number of steps done.
struct LoopTask {
  std::function<bool(std::int64_t done)> due;  ///< must give the same answer on all ranks
  std::function<void(std::int64_t done)> run = {};
};

/// A task after every `interval`-th step. Throws Error(usage) for an interval below 1.
inline LoopTask every(std::int64_t interval, std::function<void(std::int64_t done)> run) {
  if (interval < 1)
    throw Error(ErrorKind::usage, "training loop: a task is due after every " + std::to_string(interval) +
                                      " steps; give 1 or more, or leave the task out");
  return {[interval](std::int64_t done) { return done % interval == 0; }, std::move(run)};
}

/// Steps that run while no other step is enqueued, for measurements. Steps count from 0.
struct LoneSteps {
  std::function<bool(std::int64_t step)> due = {};  ///< must give the same answer on all ranks
  std::function<void(std::int64_t step)> begin = {};
  std::function<void(std::int64_t step, StepReport const& report)> end = {};
};

/// Each rank has its own functions. All may be empty, except `batch` and the `due` of a task.
struct TrainingLoopOptions {
  std::int64_t first_step = 0;  ///< the number of steps done before, as in a checkpoint
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();  ///< the number of steps after which to end
  /// Returns this rank's batch of a step, counted from 0, as Loader::load does. With several ranks on GPUs it
  /// is called up to max_steps_in_flight + 1 steps early. If it throws Error(data), no rank takes that step,
  /// and the loop ends up to as many steps before it.
  std::function<Batch(std::int64_t step)> batch;
  /// Called before each step, counted from 0. True on any rank ends the loop on all ranks.
  std::function<bool(std::int64_t step)> stop = {};
  /// Called for each step in order, up to max_steps_in_flight steps late.
  std::function<void(StepReport const& report)> report = {};
  /// Called after a step in this order, when all reports so far were read.
  std::vector<LoopTask> tasks = {};
  LoneSteps lone = {};
};

/// Trains until a number of steps is done, a rank asks to stop, or a rank's data ends. Reads each report
/// StepShape::max_steps_in_flight steps late, so that a device never waits for the host.
///
/// All ranks end after the same step. If no step is in flight, ranks vote before the step
/// (comm::unanimous), and no rank takes the step. Otherwise the vote is a part of the statistics that ranks
/// exchange in the step: it costs no synchronisation, and at most max_steps_in_flight more steps follow.
class TrainingLoop {
 public:
  /// `trainer` must outlive the loop.
  TrainingLoop(AnyTrainer& trainer, comm::Comm comm, TrainingLoopOptions options)
      : trainer_(trainer),
        comm_(std::move(comm)),
        options_(std::move(options)),
        late_(static_cast<std::size_t>(trainer.plan().shape.max_steps_in_flight)),
        votes_in_steps_(comm_.world() > 1 && late_ > 0),
        batches_(votes_in_steps_ ? late_ + 2 : 1),
        loaded_(options_.first_step),
        done_(options_.first_step) {
    if (!options_.batch)
      throw Error(ErrorKind::usage, "training loop: there is no function for batches; set options.batch");
  }

  /// Runs the loop once and returns the number of steps done, `first_step` included. Collective. No step is
  /// in flight when it returns. Throws what steps, tasks and functions throw; after that a step may be in
  /// flight.
  std::int64_t run() {
    while (!stopped_ && done_ < options_.steps) {
      bool const stop = !load() || (options_.stop && options_.stop(done_));
      bool const votes_in_step = votes_in_steps_ && !in_flight_.empty();
      if (!votes_in_step && !comm::unanimous(comm_, !stop)) {
        stopped_ = true;
        break;
      }
      bool const lone = options_.lone.due && options_.lone.due(done_);
      if (lone) {
        read_all_but(0);
        if (options_.lone.begin) options_.lone.begin(done_);
      }
      in_flight_.push_back(trainer_.step(batch_of(done_), votes_in_step && stop));
      std::int64_t const step = done_++;
      read_all_but(lone ? 0 : late_);
      if (lone && options_.lone.end) options_.lone.end(step, last_);
      for (LoopTask const& task : options_.tasks) {
        if (!task.due(done_)) continue;
        read_all_but(0);
        if (task.run) task.run(done_);
      }
    }
    read_all_but(0);
    return done_;
  }

  /// Whether a rank's vote or missing data ended the loop. The same on all ranks.
  bool stopped() const { return stopped_; }
  /// The error that ended the data of this rank; nullopt if its data has not ended.
  std::optional<Error> const& data_error() const { return data_error_; }

 private:
  Batch& batch_of(std::int64_t step) { return batches_[static_cast<std::size_t>(step) % batches_.size()]; }

  /// Loads the batches that this rank needs if it votes now. Returns false if one of them does not exist.
  bool load() {
    auto const ahead = static_cast<std::int64_t>(batches_.size());
    try {
      for (; !data_error_ && loaded_ < options_.steps && loaded_ < done_ + ahead; ++loaded_)
        batch_of(loaded_) = options_.batch(loaded_);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::data) throw;
      data_error_ = error;
    }
    return !data_error_;
  }

  void read_all_but(std::size_t kept) {
    for (; in_flight_.size() > kept; in_flight_.pop_front()) {
      last_ = in_flight_.front().get();
      stopped_ = stopped_ || last_.stop;
      if (options_.report) options_.report(last_);
    }
  }

  AnyTrainer& trainer_;
  comm::Comm comm_;
  TrainingLoopOptions options_;
  std::size_t late_;  // steps that stay in flight
  bool votes_in_steps_;
  std::vector<Batch> batches_;  // a ring, by step
  std::int64_t loaded_, done_;
  std::deque<Ticket> in_flight_;
  StepReport last_;
  bool stopped_ = false;
  std::optional<Error> data_error_;
};

}  // namespace v0
}  // namespace tessera
