// SPDX-License-Identifier: Apache-2.0
// Simulates a training step from the times of its schedule entries.
#pragma once

#include <vector>

#include "tessera/plan/step_plan.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Says which entries of a schedule slow each other down on GPUs. Each list has one value for each entry of
/// the schedule, or is empty if the values of all entries are false.
struct Contention {
  /// The collectives. If k of them transfer at the same time, each runs at 1/k of its speed, because they
  /// share the link between devices.
  std::vector<bool> collectives;
  /// The computations. They run at 1 - `slowdown` of their speed while a collective runs.
  std::vector<bool> slowed;
  double slowdown = 0;
  /// The share of its speed that a collective loses while one of these computations runs.
  double collective_slowdown = 0;
  /// If a collective starts while one of these computations runs, it first waits for `wait` seconds. In
  /// reality it waits until the kernels of all ranks leave multiprocessors free. The wait ends early if no
  /// computation runs.
  double wait = 0;
};

/// The times of a simulated training step in seconds.
struct SimulatedStep {
  double seconds = 0;      ///< the duration of the step
  double with_chosen = 0;  ///< the part of the step in which at least one of the chosen entries runs
};

/// Simulates one training step in which entry i of the schedule needs took[i] seconds if no other
/// entry runs. An
/// entry starts when the previous entry of its lane and the entries for which it waits have ended. On the
/// CPU, all entries share one lane. `chosen` has one value for each entry; if it is empty, no entry is
/// chosen.
SimulatedStep simulated(StepPlan const& plan, std::vector<double> const& took, Contention const& contention,
                        std::vector<bool> const& chosen);
/// Returns the duration in seconds of a step that is simulated as by `simulated`.
double on_paper(StepPlan const& plan, std::vector<double> const& took, Contention const& contention = {});
/// Returns the entry times `took`, reduced so that the simulated step needs `seconds` seconds. Multiplies the
/// times of the busiest lane by one factor between 0.5 and 1. If no factor in this range fits, returns `took`
/// unchanged.
std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took);

}  // namespace cli
}  // namespace programs
