// SPDX-License-Identifier: Apache-2.0
// What each entry of a step computes, reads and carries, as its operations say.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/core/operation.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

/// Of one entry. Entries with equal `what` run the same code.
struct Cost {
  std::string what;            ///< its operations, each once, or the move: "copy upload", "all_gather"
  bool is_move = false;        ///< it carries values and computes nothing
  double flops = 0;            ///< but for those of attention
  double attention_flops = 0;  ///< whose rate differs
  double bytes = 0;            ///< of a move what it carries, of work what it reads and writes at least
  double operations = 0;       ///< how many
};

/// Records a step: AnyTrainer::record or record_step.
using RecordedStep = std::function<void(Recorder& recorder, StepObserver const& observer)>;

/// The costs of the entries of the training schedule, in its order.
std::vector<Cost> costs_of(RecordedStep const& record);

/// For each entry the one whose work it completes: sum_losses, add_tied and clear_gaps follow a forward or a
/// backward_weight of their unit. All others complete themselves. Times of machines are of these together.
std::vector<std::size_t> completed_by(Schedule const& schedule);

/// The costs with each entry's added to the one that it completes; what follows costs nothing then.
std::vector<Cost> joined(Schedule const& schedule, std::vector<Cost> costs);

}  // namespace cli
}  // namespace v0
}  // namespace tessera
