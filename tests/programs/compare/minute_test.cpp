// SPDX-License-Identifier: Apache-2.0
// Tests the comparison that the program `compare` runs if it gets no flags. This comparison needs about one
// minute. The tests check the number of training steps that `compare` chooses, the estimated duration, and
// the closing message.
#include "compare/minute.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "row_support.hpp"

namespace {

using namespace row_support;

cli::MatrixFlags many_lists() {
  cli::MatrixFlags matrix = lists();
  matrix.ranks = {1, 4};
  matrix.slots.of<tessera::slot::sharding>() = {"dp", "zs0", "zs1", "zs2", "zs3"};
  matrix.slots.of<tessera::slot::precision>() = {"fp32", "bf16"};
  matrix.slots.of<tessera::slot::offload>() = {"none", "cpu_optimizer", "cpu_full"};
  return matrix;
}

std::vector<cli::Point> first_minute() {
  compare::Settings const settings = asked(many_lists());
  return compare::minute_of(cli::make_matrix(settings.matrix, 0), settings);
}

/// Returns an artificial measurement of the first row of the result table: `start_s` seconds of startup, and
/// `step_s` seconds for the slower of the two timed steps.
compare::Measured first_row(double start_s, double step_s) {
  compare::Measured row;
  row.point = first_minute().front();
  row.status = "ok";
  row.repeats.emplace_back();
  set_steps(row, {1000.0 * step_s, 500.0 * step_s});
  row.repeats.back().total_s = start_s + 3.0 * step_s;
  return row;
}

}  // namespace

TEST_CASE("a first minute has as many rows and steps as fit") {
  auto const text = [](double start_s, double step_s, double left_s) {
    auto const length = compare::minute_length(8, start_s, step_s, left_s);
    return std::to_string(length.rows) + " x " + std::to_string(length.warmup) + " + " +
           std::to_string(length.steps) + (length.seconds <= left_s ? "" : ", too long");
  };
  CHECK(text(0.1, 0.04, 58) == "8 x 5 + 20");
  CHECK(text(0.1, 0.4, 58) == "8 x 5 + 12");
  CHECK(text(0.1, 0.6, 58) == "8 x 2 + 9");
  CHECK(text(0.1, 1.0, 58) == "8 x 2 + 5");
  CHECK(text(0.1, 1.2, 58) == "6 x 2 + 5");
  CHECK(text(0.1, 2.5, 58) == "6 x 1 + 2");
  CHECK(text(0.1, 6.0, 58) == "3 x 1 + 2");
  CHECK(text(0.1, 60.0, 58) == "2 x 1 + 2, too long");
}

TEST_CASE(
    "a first minute trains the stages and two offloads in bf16 on all ranks, the important ones first") {
  std::string names;
  for (cli::Point const& point : first_minute()) {
    CHECK(point.world() == 4);
    names += point.experiment + " ";
  }
  CHECK(names ==
        "zs0_bf16_ranks4_bs4_sl128 zs1_bf16_ranks4_bs4_sl128 zs2_bf16_ranks4_bs4_sl128 "
        "zs3_bf16_ranks4_bs4_sl128 zs3_bf16_ranks4_bs4_sl128_offcpu zs3_bf16_ranks4_bs4_sl128_offcpufull "
        "dp_bf16_ranks4_bs4_sl128 zs2_bf16_ranks4_bs4_sl128_offcpu ");
}

TEST_CASE("the first row says how much fits into what is left of the minute") {
  auto const chosen = [](compare::Measured const& first, double began_s) {
    std::vector<cli::Point> points = first_minute();
    compare::Settings settings = asked(many_lists());
    double const seconds = compare::choose_minute(points, settings, first, began_s);
    CHECK(points.front().experiment == first.point.experiment);
    return std::to_string(points.size()) + " x " + std::to_string(settings.warmup) + " + " +
           std::to_string(settings.steps) + ": " + cli::fixed(seconds, 1) + " s";
  };
  // Each expected text below has the form "number of rows x number of warm-up steps + number of timed steps:
  // seconds". The seconds are the estimated duration of all rows of the result table. The estimate uses the
  // slower of the two timed steps and adds 25 %.
  CHECK(chosen(first_row(0.1, 0.04), 0.0) == "8 x 5 + 20: 11.0 s");
  CHECK(chosen(first_row(0.1, 0.04), 50.0) == "8 x 5 + 12: 7.8 s");
  CHECK(chosen(first_row(0.1, 0.04), 57.0) == "3 x 1 + 2: 0.8 s");
  CHECK(chosen(first_row(20.0, 0.04), 0.0) == "2 x 1 + 2: 50.3 s");
  compare::Measured failed = first_row(0.1, 0.04);
  failed.status = "failed";
  CHECK(chosen(failed, 57.0) == "8 x 5 + 20: 0.0 s");

  compare::Settings const probe = compare::probe_of(asked(many_lists()));
  CHECK(probe.warmup + probe.steps == 3);
}

TEST_CASE("a first minute says what it left out") {
  compare::Settings settings = asked(many_lists());
  std::vector<cli::Point> const wanted = first_minute();
  cli::Terminal terminal;
  terminal.width = 0;
  CHECK(compare::left_out_text(settings, wanted, 8, 105, terminal) ==
        "left out of this minute: 97 of all 105 recipes\n");
  settings.steps = 12;
  CHECK(compare::left_out_text(settings, wanted, 6, 105, terminal) ==
        "left out of this minute: dp_bf16_ranks4_bs4_sl128, zs2_bf16_ranks4_bs4_sl128_offcpu, "
        "8 of 20 timed steps of each row, 97 of all 105 recipes\n");
}

TEST_CASE("a first minute names the commands to run next") {
  compare::Settings settings = asked(many_lists());
  std::vector<compare::Measured> rows(2, first_row(0.1, 0.04));
  for (compare::Measured& row : rows) row.repeats.back().total_s = 1.5;
  rows.push_back(rows.front());
  rows.back().status = "failed";
  CHECK(
      squeezed(compare::next_text(settings, "results/report.html", "bin/compare", " --seed 7", rows, 105)) ==
      "\nnext:\n"
      " bin/compare --seed 7 --full all 105 recipes, about 2:38 min\n"
      " xdg-open results/report.html this comparison as a page, with figures\n"
      " bin/compare --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 2 --warmup-steps 1"
      " a published comparison, with its figures and yours; takes minutes on a CPU\n");
  settings.matrix.device = "cuda";
  settings.steps = 5;
  CHECK(squeezed(compare::next_text(settings, {}, "compare", "", {}, 105)) ==
        "\nnext:\n"
        " compare --full all 105 recipes\n"
        " compare --device cuda --model gpt2 --batch-size 4 --stages 0 1 2 3"
        " a published comparison, with its figures and yours\n");
}
