// SPDX-License-Identifier: Apache-2.0
// Tests the statistics of an epoch (one pass over the data), and the lines that `compare` writes to the log
// for each epoch.
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "row_support.hpp"
#include "workload/data.hpp"

namespace ts = tessera;
namespace cli = programs::cli;
namespace compare = programs::compare;
using namespace row_support;

TEST_CASE("epochs are sums of their steps, weighed by the tokens that count") {
  cli::EpochSums sums(5, 2, 8);  // 5 samples, 2 samples per step, 8 tokens per sample: 3 steps per epoch
  std::vector<programs::results::EpochLogRow> epochs;
  for (int step = 1; step <= 6; ++step) {
    ts::StepReport report;
    report.step = step;
    report.interval = 0.25 * step;
    report.tokens = 16;
    report.valid_tokens = step % 3 == 0 ? 4 : 8;
    CHECK(sums.positions(step) == (step % 3 == 0 ? 8 : 16));
    report.loss = step;
    if (auto const ended = sums.add(report)) epochs.push_back(*ended);
  }
  REQUIRE(epochs.size() == 2);
  CHECK(epochs[0].seconds == 1.5);
  CHECK(epochs[1].epoch == 2);
  CHECK(epochs[1].steps == 3);
  CHECK(epochs[1].samples == 5);
  CHECK(epochs[1].seconds == 3.75);
  CHECK(epochs[1].samples_per_sec == 5 / 3.75);
  CHECK(epochs[1].loss == (4 * 8 + 5 * 8 + 6 * 4) / 20.0);
  CHECK(epochs[1].loss_with_padding == (4 * 8 + 5 * 8 + 6 * 4) / 40.0);
  CHECK(cli::epoch_text(epochs[1]) ==
        "epoch 2 | 3 steps | 3.75 s | 1.3 samples/s | loss 4.8000 | with padding 2.4000");
}

TEST_CASE("an epoch within which a run goes on is whole, or not known") {
  auto const report = [](int step) {
    ts::StepReport of;
    of.step = step;
    of.interval = of.loss = step;
    of.valid_tokens = 8;
    return of;
  };
  cli::EpochSums whole(5, 2, 8);  // 3 steps per epoch
  CHECK_FALSE(whole.add(report(1)));
  cli::EpochSums resumed(5, 2, 8, 1, whole.part()), unknown(5, 2, 8, 1);
  CHECK_FALSE(unknown.part());
  std::optional<programs::results::EpochLogRow> ended[3];
  for (int step = 2; step <= 3; ++step) {
    ended[0] = whole.add(report(step));
    ended[1] = resumed.add(report(step));
    ended[2] = unknown.add(report(step));
  }
  for (auto const& epoch : ended) {
    REQUIRE(epoch);
    CHECK(epoch->steps == 3);
    CHECK(epoch->samples == 5);
  }
  CHECK(ended[1]->seconds == 6.0);
  CHECK(ended[1]->loss == ended[0]->loss);
  CHECK(ended[1]->loss_with_padding == ended[0]->loss_with_padding);
  CHECK(std::isnan(ended[2]->loss));
  CHECK(cli::epoch_text(*ended[2]) == "epoch 1 | 3 steps | - s | - samples/s | loss -");
  // `unknown` resumed in epoch 1 without the sums of step 1, so its loss of epoch 1 is unknown. It has all
  // steps of epoch 2, so its loss of epoch 2 is known.
  for (int step = 4; step <= 6; ++step) ended[2] = unknown.add(report(step));
  CHECK(ended[2]->loss == 5.0);
}

TEST_CASE("a row of epochs has medians over repeats as times and the losses of the first") {
  compare::Settings settings = asked(lists());
  settings.epochs = 2;
  std::vector<compare::Measured> rows = measured(settings, 4, 3);
  for (std::size_t repeat = 0; repeat < 3; ++repeat)
    for (int epoch = 1; epoch <= 2; ++epoch)
      rows[0].repeats[repeat].epochs.push_back({.epoch = epoch,
                                                .steps = 2,
                                                .samples = 8,
                                                .seconds = epoch * (1.0 + static_cast<double>(repeat)),
                                                .loss = 5.0 - epoch,
                                                .loss_with_padding = 2.0});
  rows[0].repeats[0].tokens = 100;
  rows[0].repeats[0].valid_tokens = 75;
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row.at("epochs") == 2);
  CHECK(row.at("samples") == 8);
  CHECK(row.at("epoch_times_s") == programs::results::Row({2.0, 4.0}));
  CHECK(row.at("epoch_samples_per_sec") == programs::results::Row({4.0, 2.0}));
  CHECK(row.at("avg_epoch_time_s") == 3.0);
  CHECK(row.at("epoch_losses") == programs::results::Row({4.0, 3.0}));
  CHECK(row.at("final_epoch_loss") == 3.0);
  CHECK(row.at("padding_pct") == 25.0);
  CHECK(has(squeezed(table(rows, settings)), " s/epoch "));
}
