// SPDX-License-Identifier: Apache-2.0
// Computes what each entry of a step computes, reads and moves, as declared by its operations.
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

/// The cost of one entry. Entries with equal `what` run the same code.
struct Cost {
  std::string what;            ///< its distinct operations, or the move: "copy upload", "all_gather"
  bool is_move = false;        ///< moves values and computes nothing
  double flops = 0;            ///< except attention
  double attention_flops = 0;  ///< separate, since attention runs at another rate
  double bytes = 0;            ///< carried by a move; least read and written by work
  double operations = 0;       ///< number of operations
};

/// Records a step: AnyTrainer::record or record_step.
using RecordedStep = std::function<void(Recorder& recorder, StepObserver const& observer)>;

/// Returns the costs of the entries of the training schedule, in its order.
std::vector<Cost> costs_of(RecordedStep const& record);

/// Returns, for each entry, the index of the entry that it completes. sum_losses, add_tied and clear_gaps
/// complete a forward or backward_weight of their unit; every other entry completes itself. The
/// measured times of a machine count an entry together with the entries that complete it.
std::vector<std::size_t> completed_by(Schedule const& schedule);

/// Adds the cost of each entry to the entry that it completes, and sets its own cost to zero.
std::vector<Cost> joined(Schedule const& schedule, std::vector<Cost> costs);

}  // namespace cli
}  // namespace programs
