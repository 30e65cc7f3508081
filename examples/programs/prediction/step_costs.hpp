// SPDX-License-Identifier: Apache-2.0
// Computes the cost of each schedule entry of a training step: its operations, FLOPs and bytes.
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
  std::string what;            ///< names of its operations, or its move: "copy upload", "all_gather"
  bool is_move = false;        ///< whether it moves values and computes nothing
  double flops = 0;            ///< FLOPs without attention
  double attention_flops = 0;  ///< FLOPs of attention, which runs at another rate
  double bytes = 0;            ///< bytes that a move carries, or the minimum that other work reads and writes
  double operations = 0;       ///< number of operations
};

/// The type of a function that records a training step without running it, such as AnyTrainer::record or
/// record_step.
using RecordedStep = std::function<void(Recorder& recorder, StepObserver const& observer)>;

/// Returns the cost of each entry of the training schedule, in the order of the schedule.
std::vector<Cost> costs_of(RecordedStep const& record);

/// Returns for each entry the index of the entry with which it is timed. Most entries are timed separately.
/// Their index is the index of the entry itself. The verbs sum_losses, add_tied and clear_gaps are timed
/// together with an earlier entry of the same unit: sum_losses with the last forward, the others with the
/// last backward_weight.
std::vector<std::size_t> completed_by(Schedule const& schedule);

/// Returns the costs after entries that are timed together (see `completed_by`) are added up. The cost of an
/// entry is added to the cost of the entry with which it is timed, and then set to zero.
std::vector<Cost> joined(Schedule const& schedule, std::vector<Cost> costs);

}  // namespace cli
}  // namespace programs
