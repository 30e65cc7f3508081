// SPDX-License-Identifier: Apache-2.0
// Provides functions that plant faults in schedules, for tests of the schedule checker.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/plan/check.hpp"
#include "tessera/plan/step_plan.hpp"

namespace support {

/// Changes `entry`, one operation of a schedule, so that it no longer declares any buffer as written.
inline void erase_writes(tessera::Entry& entry) {
  auto const erase = [](std::vector<tessera::Operand>& operands) {
    std::erase_if(operands, [](tessera::Operand const& one) { return one.writes(); });
  };
  erase(entry.operands);
  for (tessera::Item& item : entry.items) erase(item.operands);
}

/// Tests that the schedule checker detects every missing wait. For each wait of the schedule, check() removes
/// the wait, runs the checker, and puts the wait back. `waits` counts the removed waits. `found` counts the
/// missing waits that the checker detected.
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
