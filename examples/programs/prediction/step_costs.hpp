// SPDX-License-Identifier: Apache-2.0
// Computes the cost of each schedule entry of a step: its operations, FLOPs and bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/core/operation.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The cost of one schedule entry. Entries with equal `what` run the same code.
struct Cost {
  std::string what;            ///< its distinct operations, or the move: "copy upload", "all_gather"
  bool is_move = false;        ///< moves values and computes nothing
  double flops = 0;            ///< except attention
  double attention_flops = 0;  ///< separate, since attention runs at another rate
  double bytes = 0;            ///< carried by a move; least read and written by work
  double operations = 0;       ///< number of operations
};

/// A function that records a training step without running it, such as AnyTrainer::record or record_step.
using RecordedStep = std::function<void(Recorder& recorder, StepObserver const& observer)>;

/// Returns the costs of the entries of the training schedule, in the order of the schedule.
std::vector<Cost> costs_of(RecordedStep const& record);

/// Returns for each entry the index of the entry with which it is timed. That is the entry itself, with three
/// exceptions: sum_losses, add_tied and clear_gaps are timed with the forward or backward_weight that
/// precedes them in the same unit.
std::vector<std::size_t> completed_by(Schedule const& schedule);

/// Adds the cost of each entry to the entry with which it is timed (`completed_by`), and sets its own cost to
/// zero.
std::vector<Cost> joined(Schedule const& schedule, std::vector<Cost> costs);

}  // namespace cli
}  // namespace programs
