// SPDX-License-Identifier: Apache-2.0
// Tests how `compare` computes the training rate in tokens per second. On a GPU, the host can start further
// steps while the device still computes earlier steps. The host then reads the reports of the earlier steps
// late, but the rate must not change.
#include "compare/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include <doctest/doctest.h>

#include "results/statistics.hpp"

namespace ts = tessera;
namespace cli = programs::cli;
namespace compare = programs::compare;

namespace {

constexpr double step_s = 0.5;

struct Seen {
  compare::TimedSteps by_device, by_host;
};

/// Simulates a device that needs `step_s` seconds for each of `warmup + timed` steps. The host starts a step
/// at the moment at which the device begins this step. The host reads the report of a step only after it has
/// started `late` further steps. Returns the rates of the timed steps by the device's clock and by the host's
/// clock.
Seen trained(std::size_t warmup, std::size_t timed, std::size_t late) {
  Seen seen;
  double host = 0.0, last_read = 0.0;
  std::size_t read = 0;
  auto const read_next = [&] {
    host = std::max(host, static_cast<double>(read + 1) * step_s);  // waits for the end of the step
    ts::StepReport report;
    report.tokens = 1000;
    report.interval = step_s;
    if (read >= warmup) seen.by_device.add(report);
    report.interval = host - last_read;
    if (read >= warmup) seen.by_host.add(report);
    last_read = host;
    ++read;
  };
  for (std::size_t begun = 0; begun < warmup + timed;) {
    host = std::max(host, static_cast<double>(begun++) * step_s);
    while (begun - read > late) read_next();
  }
  while (read < warmup + timed) read_next();
  return seen;
}

}  // namespace

TEST_CASE("reports that are read late and in a bunch change no rate") {
  for (std::size_t const late : {0, 1, 2, 8})
    for (std::size_t const steps : {1, 2, 3, 9, 20}) {
      INFO("late ", late, ", steps ", steps);
      compare::TimedSteps const timed = trained(1, steps, late).by_device;
      CHECK(timed.seconds.size() == steps);
      CHECK(timed.rate() == doctest::Approx(2000.0));
      CHECK(cli::median(timed.seconds) == step_s);
    }
  // At the end, the host reads the reports of the last `late` steps at the same moment. The rate by the
  // host's clock is therefore too high.
  CHECK(trained(1, 3, 0).by_host.rate() == doctest::Approx(2000.0));
  CHECK(trained(1, 3, 2).by_host.rate() == doctest::Approx(3000.0));
  CHECK(trained(1, 2, 2).by_host.rate() == doctest::Approx(4000.0));
}

TEST_CASE("steps of different length weigh by their time") {
  compare::TimedSteps timed;
  CHECK(timed.rate() == 0.0);
  for (double const seconds : {0.1, 0.7, 0.1, 0.7}) {
    ts::StepReport report;
    report.interval = seconds;
    report.tokens = 400;
    timed.add(report);
  }
  CHECK(timed.rate() == doctest::Approx(1000.0));
  CHECK(cli::mean(timed.seconds) == doctest::Approx(0.4));
  CHECK(cli::deviation(timed.seconds) == doctest::Approx(0.34641));
}
