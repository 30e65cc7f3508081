// SPDX-License-Identifier: Apache-2.0
// What tests of lists share: each wait of a list, left out.
#pragma once

#include <cstddef>

#include "tessera/plan/check.hpp"
#include "tessera/plan/step_plan.hpp"

namespace support {

/// How many waits some lists have, and without how many of them the checker finds a mistake.
struct WaitsLeftOut {
  int waits = 0, found = 0;

  void take(tessera::StepPlan plan) {
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
