// SPDX-License-Identifier: Apache-2.0
// Plants faults in schedules, for tests of the schedule checker.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/plan/check.hpp"
#include "tessera/plan/step_plan.hpp"

namespace support {

/// Removes from an entry every declaration that it writes a buffer.
inline void erase_writes(tessera::Entry& entry) {
  auto const erase = [](std::vector<tessera::Operand>& operands) {
    std::erase_if(operands, [](tessera::Operand const& one) { return one.writes(); });
  };
  erase(entry.operands);
  for (tessera::Item& item : entry.items) erase(item.operands);
}

/// Tests the schedule checker. check() removes one wait of the schedule, runs the checker, and restores the
/// wait. It does this for every wait. `waits` counts the removed waits, and `found` counts the removals that
/// the checker detects.
struct WaitsLeftOut {
  int waits = 0, found = 0;

  void check(tessera::StepPlan plan) {
    for (tessera::Entry& entry : plan.train.schedule.entries)
      for (std::size_t wait = 0; wait < entry.waits.size(); ++wait) {
        int const left_out = entry.waits[wait];
        entry.waits.erase(entry.waits.begin() + static_cast<std::ptrdiff_t>(wait));
        ++waits;
        found += mistake_in(plan, plan.train) != "";
        entry.waits.insert(entry.waits.begin() + static_cast<std::ptrdiff_t>(wait), left_out);
      }
  }
};

}  // namespace support
