// SPDX-License-Identifier: Apache-2.0
// Tests how the program `train` computes its rate (tokens per second) from the rates of its steps. The steps
// of these tests are artificial.
#include "train/rates.hpp"

#include <vector>

#include <doctest/doctest.h>

namespace ts = tessera;
namespace cli = programs::cli;

namespace {

/// Returns the report of a step of 1000 tokens. The step lasted `seconds` seconds. It ended `interval`
/// seconds after the end of the previous step.
ts::StepReport step(double interval, double seconds) {
  ts::StepReport report;
  report.tokens = 1000;
  report.interval = interval;
  report.seconds = seconds;
  return report;
}

}  // namespace

TEST_CASE("the rate of a run is over the time from step to step, but for what lay between") {
  cli::RunRates rates;
  CHECK(rates.rate() == 0.0);
  CHECK(rates.text() == "- tok/s");
  CHECK_FALSE(rates.unsteady());
  // Each step began 0.1 s after the end of the previous step, because its data came late.
  for (int each = 0; each < 3; ++each) rates.add(step(0.5, 0.4));
  CHECK(rates.rate() == doctest::Approx(2000.0));
  rates.pause();  // the next step follows a validation of 60 s
  rates.add(step(60.0, 0.5));
  CHECK(rates.rate() == doctest::Approx(2000.0));
  rates.add(step(0.5, 0.4));
  CHECK(rates.seconds() == doctest::Approx(2.5));
}

TEST_CASE("the spread of a run is that of its steps, kept as sums") {
  cli::RunRates rates;
  std::vector<double> const seconds = {0.1, 0.12, 0.09, 0.13, 0.1, 0.11};
  for (double const each : seconds) rates.add(step(each, each));
  CHECK(*rates.deviation() == doctest::Approx(cli::deviation(seconds)));
  CHECK(*rates.spread() == doctest::Approx(cli::deviation(seconds) / cli::mean(seconds)));
  CHECK(rates.unsteady() == true);
  CHECK(rates.text() == "~9,231 tok/s, steps vary by 14%");
  cli::Json summary;
  rates.add_to(summary);
  CHECK(summary["unsteady"] == true);
  CHECK(summary["avg_step_time_s"].get<double>() == doctest::Approx(0.65 / 6));
  CHECK(summary["avg_tokens_per_sec"].get<double>() == doctest::Approx(6000 / 0.65));
  cli::RunRates steady;
  for (double const each : {0.1, 0.101, 0.099}) steady.add(step(each, each));
  CHECK(steady.unsteady() == false);
  CHECK(steady.text() == "10,000 tok/s");
  cli::RunRates one;
  one.add(step(0.1, 0.1));
  one.add_to(summary);
  for (char const* field : {"step_to_step_std_s", "spread_pct", "unsteady"}) CHECK(summary[field].is_null());
}

TEST_CASE("a run on the CPU has no figures of GPUs") {
  cli::RunFigures figures;
  ts::SlotNames names;
  names.device = "cpu";
  figures.prepare(ts::parse_recipe(names), 2);
  figures.begin();
  figures.rates.add(step(0.1, 0.1));
  figures.end();
  CHECK_FALSE(figures.mfu_pct(1e9));
  cli::Json summary;
  figures.add_to(summary, 1e9);
  for (char const* field :
       {"mfu_pct", "mfu_against", "avg_gpu_util_pct", "avg_power_w", "peak_power_w", "energy_j",
        "temp_start_c", "temp_end_c", "temp_min_c", "temp_max_c", "allocated_mb", "library_mb"})
    CHECK(summary.at(field).is_null());
}
