// SPDX-License-Identifier: Apache-2.0
// Tests the tables of results and the sentences that `compare` prints below them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "compare/report.hpp"
#include "machine/machine.hpp"
#include "row_support.hpp"

namespace ts = tessera;
namespace cli = programs::cli;
namespace compare = programs::compare;
using namespace row_support;

TEST_CASE("lists that vary are columns of one table") {
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs2"};
  matrix.batches = {1, 2, 4, 8};
  matrix.ranks = {1, 2};
  compare::Settings settings = asked(matrix);
  auto const count = [](std::string const& text, std::string const& part) {
    std::size_t times = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++times;
    return times;
  };
  std::string text = table(measured(settings), settings);
  CHECK(text.starts_with(
      "tiny, bf16, sequence 128, accumulation 1, zs2, speedup against zs2_bf16_ranks1_bs1_sl128\n"));
  CHECK(count(text, "speedup against") == 1);
  CHECK(has(squeezed(text), "\nranks batch tok/s speedup "));
  CHECK(has(squeezed(text), "\n1 1 1280 1.00 "));
  CHECK(has(squeezed(text), "\n2 8 20480* 16.00 "));

  // `compare` prints one table for each precision. If each precision has only one row, `compare` prints all
  // rows in one table.
  settings.matrix.slots.of<ts::slot::precision>() = {"fp32", "bf16"};
  text = table(measured(settings), settings);
  CHECK(count(text, "speedup against") == 2);
  settings.matrix.batches = {4};
  settings.matrix.ranks = {2};
  text = table(measured(settings), settings);
  CHECK(has(squeezed(text), "\nprecision tok/s "));
  CHECK(count(text, "speedup against") == 1);
  settings.matrix.models = cli::model_list("--models", {"tiny", "layers=2,heads=2,channels=32"});
  settings.matrix.slots.of<ts::slot::precision>() = {"bf16"};
  auto const rows = compare::result_rows(measured(settings), settings);
  CHECK(rows[0]["speedup"] == 1.0);
  CHECK(rows[1]["speedup"].is_null());  // the two rows have different models, so no speedup

  // A slot is a kind of policy, such as sharding or loss scale. Every slot for which the rows have several
  // policies has a column. If the policy of one slot decides the policy of another, as the precision decides
  // the loss scale, the second slot has no column.
  settings = asked(lists());
  settings.matrix.slots.of<ts::slot::precision>() = {"fp16"};
  settings.matrix.slots.of<ts::slot::loss_scale>() = {"dynamic", "static"};
  text = table(measured(settings), settings);
  CHECK(has(squeezed(text), "\nloss scale stage tok/s "));
  CHECK(has(squeezed(text), "\nstatic zs2 "));
  settings.matrix.slots.of<ts::slot::sharding>() = {"zs0"};
  settings.matrix.slots.of<ts::slot::precision>() = {"fp16", "fp32"};
  settings.matrix.slots.of<ts::slot::loss_scale>() = {};
  CHECK_FALSE(has(table(measured(settings), settings), "loss scale"));

  // If a table has only one row, the heading of the table shows the recipe and the sizes of this row. The
  // table then has no columns for them.
  settings = asked(lists());
  settings.matrix.slots.of<ts::slot::sharding>() = {"zs3"};
  text = table(measured(settings), settings);
  CHECK(
      text.starts_with("tiny, bf16, 4 ranks, batch 4, sequence 128, accumulation 1, global batch 16, zs3\n"));
}

TEST_CASE("a table fits its terminal and says what it left out") {
  cli::MatrixFlags matrix = lists();
  matrix.batches = {1, 2, 4};
  compare::Settings const settings = asked(matrix);
  auto rows = measured(settings, 4, 3);
  for (auto& row : rows) {
    set_steps(row, {90, 95});
    row.repeats[0].peak_device = row.repeats[0].arena_host = 1 << 24;
    row.repeats[0].comm_bytes = 1e6;
    row.repeats[0].first_step_s = row.repeats[0].window_s = row.repeats[0].cpu_seconds = 0.5;
  }
  std::string const wide = table(rows, settings), narrow = table(rows, settings, 60);
  CHECK_FALSE(has(wide, "left out"));
  CHECK(has(wide, " +- "));  // the standard deviation over the repeats
  CHECK(has(narrow, "columns that do not fit the terminal: "));
  std::string const above = narrow.substr(0, narrow.find("\n\n"));
  for (std::size_t begin = 0; begin < above.size();) {
    std::size_t const end = std::min(above.find('\n', begin), above.size());
    INFO(above.substr(begin, end - begin));
    CHECK(end - begin <= 60);
    begin = end + 1;
  }
  // With only one repeat of each row, the deviation over repeats is unknown, so the table has no column for
  // it.
  for (auto& row : rows) row.repeats.resize(1);
  CHECK_FALSE(has(table(rows, settings).substr(0, 300), " +- "));
}

TEST_CASE("all speedups of a table have one base") {
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs2", "zs0"};
  matrix.slots.of<ts::slot::offload>() = {"cpu_optimizer", "none"};
  compare::Settings const settings = asked(matrix);
  auto rows = measured(settings);
  set_steps(rows[0], {200, 200});  // ZeRO stage 2, offload
  set_steps(rows[1], {400, 400});  // ZeRO stage 0, offload
  set_steps(rows[2], {80, 80});    // ZeRO stage 2, no offload
  auto known = compare::result_rows(rows, settings);
  for (auto const& row : known) CHECK(row["speedup_against"] == "zs0_bf16_ranks4_bs4_sl128");
  CHECK(known[0]["speedup"] == doctest::Approx(0.5));
  // known[3], the reference of all speedups, is ZeRO stage 0 without offload. known[1] differs from it only
  // in the offload.
  CHECK(known[1]["speedup"] == doctest::Approx(0.25));
  CHECK(known[2]["speedup"] == doctest::Approx(1.25));
  CHECK(known[3]["speedup"] == 1.0);
  CHECK(has(table(rows, settings), "speedup against zs0_bf16_ranks4_bs4_sl128\n"));
  // If ZeRO stage 0 without offload runs out of memory, ZeRO stage 2 without offload is the reference.
  rows[3].status = "oom";
  known = compare::result_rows(rows, settings);
  CHECK(known[1]["speedup_against"] == "zs2_bf16_ranks4_bs4_sl128");
  CHECK(known[3]["speedup"].is_null());
}

TEST_CASE("a difference within what rows vary by makes no winner") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  set_steps(rows[0], {90, 110, 100, 100});
  set_steps(rows[1], {88, 108, 98, 98});
  std::string text = table(rows, settings);
  CHECK(has(text, "fastest: 2 rows differ by less than they vary, up to 20,898 +- "));
  CHECK(has(text, "tok/s: zs2_bf16_ranks4_bs4_sl128, zs0_bf16_ranks4_bs4_sl128\n"));
  CHECK_FALSE(has(text, "*"));
  set_steps(rows[1], {50, 51, 50, 51});
  text = table(rows, settings);
  CHECK(has(text, "fastest: zs2_bf16_ranks4_bs4_sl128 with 40,554 +- 464 tok/s and 0.00 MB a rank\n"));
  CHECK(has(text, " 40554* "));
  // If a row has several repeats, its uncertainty is the variation between the repeats, not the variation
  // between steps.
  for (std::size_t row = 0; row < 2; ++row) {
    rows[row].repeats.push_back(rows[row].repeats.back());
    set_steps(rows[row], {row == 0 ? 10.0 : 200.0});
  }
  CHECK(has(table(rows, settings), "fastest: 2 rows differ"));
  // If each row has only one timed step, the variation is unknown.
  rows = measured(settings, 1);
  set_steps(rows[1], {50});
  text = table(rows, settings);
  CHECK(has(text, "fastest: unknown, because each row has only one timed step"));
  CHECK_FALSE(has(text, "*"));
  CHECK(has(squeezed(text), "zs2 40960 ~1.0 "));
  CHECK(compare::result_rows(rows, settings)[1]["speedup_uncertainty"].is_null());
}

TEST_CASE("a row whose steps or repeats vary by more than five per cent is marked") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4);
  set_steps(rows[0], {96, 104, 96, 104});  // in ms; the standard deviation is 4.6 % of the mean
  auto known = compare::result_rows(rows, settings);
  CHECK(known[0]["unsteady"] == false);
  CHECK(known[0]["spread_pct"].get<double>() == doctest::Approx(4.6188));
  CHECK(known[0]["step_to_step_std_s"].get<double>() == doctest::Approx(4.6188e-3));
  CHECK(known[0]["std_step_time_s"].is_null());
  CHECK_FALSE(has(table(rows, settings), "step to step"));
  set_steps(rows[0], {95, 105, 95, 105});  // the standard deviation is 5.8 % of the mean
  rows[0].repeats[0].peak_device = 1 << 30;
  CHECK(has(squeezed(table(rows, settings)), " 1024.00 ~20480 "));  // the peak, and the rate for each GB
  rows[0].repeats[0].peak_device = 0;
  known = compare::result_rows(rows, settings);
  CHECK(known[0]["unsteady"] == true);
  CHECK(known[1]["unsteady"] == false);
  std::string const text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs0 ~20480 1.00 ~100.0 "));
  CHECK(has(squeezed(text), "\nzs2 20480 ~1.0 100.0 "));
  CHECK(has(
      text,
      "~ 1 row varies by more than 5% from step to step or repeat to repeat; a speedup of ~1.0 is within"));
  // A row is unsteady in two more cases: if only the means of its repeats vary, and if only the steps within
  // each repeat vary.
  rows = measured(settings, 2, 3);
  set_steps(rows[0], {120, 120});
  CHECK(compare::result_rows(rows, settings)[0]["unsteady"] == true);
  rows = measured(settings, 2, 2);
  for (compare::Repeat& repeat : rows[0].repeats) repeat.timed = steps_of(rows[0], {80, 120});
  known = compare::result_rows(rows, settings);
  CHECK(known[0]["spread_pct"] == 0.0);
  CHECK(known[0]["unsteady"] == true);
  rows = measured(settings, 1);
  CHECK(compare::result_rows(rows, settings)[0]["unsteady"].is_null());
}

TEST_CASE("a row whose timed steps updated nothing is marked and is not the fastest") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4);
  auto const log_of = [&](std::size_t row, std::vector<bool> const& skipped) {
    compare::Repeat& repeat = rows[row].repeats.back();
    repeat.log.clear();
    repeat.untimed = static_cast<std::int64_t>(skipped.size()) - 4;
    for (bool const skip : skipped)
      repeat.log.push_back({.global_step = static_cast<std::int64_t>(repeat.log.size()) + 1,
                            .step_time_s = 0.1,
                            .tokens_per_sec = 1.0,
                            .loss = 5.0,
                            .skipped = skip});
  };
  for (std::size_t row = 0; row < rows.size(); ++row) log_of(row, {true, true, false, false, false, false});
  CHECK(compare::result_rows(rows, settings)[0]["timed_skipped_steps"] == 0);
  CHECK(compare::result_rows(rows, settings)[0]["skipped_steps"] == 2);
  CHECK_FALSE(has(table(rows, settings), "skipped the update"));
  set_steps(rows[0], {50, 50, 50, 50});
  std::string const fast = "fastest: " + rows[0].point.experiment;
  CHECK(has(table(rows, settings), fast));
  log_of(0, {true, true, true, false, false, false});
  CHECK(compare::result_rows(rows, settings)[0]["timed_skipped_steps"] == 1);
  std::string const text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs0 ~40960 "));
  CHECK(has(text, "~ 1 row skipped the update in more than 5% of the timed steps"));
  CHECK(has(text, "skipped: " + rows[0].point.experiment + " skipped the update in 1 of its 4 timed steps"));
  CHECK(has(text, "give more --warmup"));
  CHECK_FALSE(has(text, fast));
  // The predicted time is the time of a step that updates the weights. The three steps of 100 ms update the
  // weights. The step of 20 ms skipped its update, so it must not count in the prediction error.
  rows[0].predicted.step_s = 0.1;
  rows[0].predicted.tokens = rows[0].point.split.global() * rows[0].point.sequence;
  set_steps(rows[0], {20, 100, 100, 100});
  CHECK(compare::result_rows(rows, settings)[0]["prediction_error_pct"].get<double>() ==
        doctest::Approx(0.0).epsilon(1e-9));
  log_of(0, {true, true, false, false, false, false});
  CHECK(compare::result_rows(rows, settings)[0]["prediction_error_pct"].get<double>() ==
        doctest::Approx(-20.0).epsilon(1e-9));
  log_of(0, {true, true, true, true, true, true});
  CHECK(compare::result_rows(rows, settings)[0]["prediction_error_pct"].is_null());
}

TEST_CASE("a speedup has an uncertainty, and within it says nothing") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  // The two rows run the same training on a shared machine. During the training of rows[0], other programs
  // slowed down half of the steps.
  set_steps(rows[0], {300, 100, 350, 90});
  set_steps(rows[1], {100, 90, 110, 40});
  auto known = compare::result_rows(rows, settings);
  double const speedup = known[1]["speedup"], off = known[1]["speedup_uncertainty"];
  CHECK(speedup == doctest::Approx(840.0 / 340.0));
  CHECK(off == doctest::Approx(speedup * (*compare::spread_of(rows[0]) + *compare::spread_of(rows[1]))));
  CHECK(off > speedup - 1.0);
  CHECK(known[0]["speedup_uncertainty"] == 0.0);
  std::string text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs2 ~24094 ~1.0 "));
  CHECK(has(text, "fastest: 2 rows differ by less than they vary"));
  // If the speedup differs from 1 by more than its uncertainty, the table shows its digits, not ~1.0.
  set_steps(rows[0], {100, 101, 99, 100});
  set_steps(rows[1], {104, 105, 103, 104});
  known = compare::result_rows(rows, settings);
  CHECK(1.0 - known[1]["speedup"].get<double>() > known[1]["speedup_uncertainty"].get<double>());
  text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs2 19692 0.96 "));
  CHECK(has(text, "fastest: zs0"));
  CHECK_FALSE(has(text, "~"));
  set_steps(rows[1], {101, 102, 100, 101});
  text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs2 20277 ~1.0 "));
  CHECK(has(text, "fastest: 2 rows"));
}

TEST_CASE("rows that are one program are never ranked against each other") {
  cli::MatrixFlags matrix = lists();
  matrix.ranks = {1};
  matrix.slots.of<ts::slot::sharding>() = {"zs0", "zs1", "zs2", "zs3"};
  matrix.slots.of<ts::slot::offload>() = {"none", "cpu_optimizer"};
  compare::Settings const settings = asked(matrix);
  std::vector<compare::Measured> rows;
  // The times are in milliseconds. The first four rows, without offload, execute the same schedule. During
  // row 0, other programs slowed down the machine. The last four rows, with offload, execute another
  // schedule, which needs twice the time. Other programs slowed down row 6.
  std::vector<double> const each = {400, 95, 101, 100, 195, 196, 500, 194};
  for (compare::Measured& row : measured(settings)) {
    bool const offloaded = row.point.recipe.names.offload != "none";
    row.schedule_hash = offloaded ? "2" : "1";
    row.planned_device = offloaded ? 100 : 200;
    double const ms = each[rows.size()];
    set_steps(row, {ms, 1.01 * ms, ms, 0.99 * ms});
    rows.push_back(row);
    compare::note_twins(rows);
  }
  auto const known = compare::result_rows(rows, settings);
  for (std::size_t at = 0; at < 8; ++at) {
    bool const is_first = at % 4 == 0;
    CHECK(known[at]["same_program_as"].is_null() == is_first);
    if (!is_first) CHECK(known[at]["same_program_as"] == known[at < 4 ? 0 : 4]["experiment"]);
    if (at >= 4) continue;
    double const speedup = known[at]["speedup"], uncertainty = known[at]["speedup_uncertainty"];
    CHECK(std::fabs(speedup - 1.0) <= uncertainty);
    for (std::size_t other = 0; other < 4; ++other) CHECK_FALSE(compare::is_faster(rows[at], rows[other]));
  }
  std::string const twins =
      "zs0_bf16_ranks1_bs4_sl128 = zs1_bf16_ranks1_bs4_sl128 = zs2_bf16_ranks1_bs4_sl128 = "
      "zs3_bf16_ranks1_bs4_sl128";
  CHECK(has(table(rows, settings), ": " + twins));
  rows.resize(4);
  std::string const text = table(rows, settings);
  CHECK(has(text, "fastest: none, all 4 rows run the same program: zs0_bf16_ranks1_bs4_sl128 = zs1"));
  CHECK_FALSE(has(text, "*"));
}

TEST_CASE("a row that other programs disturbed is marked and not ranked") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  set_steps(rows[0], {300, 300, 300, 300});
  auto const use = [](compare::Measured& row, double own, double others) {
    row.repeats[0].window_s = 1.0;
    row.repeats[0].cpu_seconds = own * cli::core_count();
    row.repeats[0].other_load = others;
  };
  use(rows[0], 0.3, 0.6);
  use(rows[1], 0.95, 0.02);
  auto known = compare::result_rows(rows, settings);
  CHECK(known[0]["disturbed"] == true);
  CHECK(known[0]["other_cpu_util_pct"].get<double>() == doctest::Approx(60.0));
  CHECK(known[1]["disturbed"] == false);
  CHECK(known[1]["speedup_uncertainty"].is_null());
  std::string text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs0 ~6827 1.00 ~300.0 "));
  CHECK(has(squeezed(text), "\nzs2 20480 ~1.0 100.0 "));
  CHECK(has(text, "~ 1 row shared the processor with other programs"));
  CHECK(has(text, "busy: other programs took up to 60% of the processor while 1 of 2 rows ran"));
  CHECK_FALSE(has(text, "fastest:"));
  // Together, the measured training (5 % of the cores) and other programs (30 %) did not need all cores.
  use(rows[0], 0.05, 0.3);
  CHECK(compare::result_rows(rows, settings)[0]["disturbed"] == false);
  CHECK(has(table(rows, settings), "fastest: zs2"));
  rows[0].repeats[0].other_load.reset();
  CHECK(compare::result_rows(rows, settings)[0]["disturbed"].is_null());
  // If the training of a row runs on a GPU, other programs on the CPU do not disturb it.
  use(rows[0], 0.3, 0.6);
  rows[0].point.recipe.device = ts::Device::cuda;
  CHECK_FALSE(compare::is_disturbed(rows[0]));
}

TEST_CASE("boxes and tables count columns, and a box is no wider than its terminal") {
  CHECK(cli::columns_of("caf\xC3\xA9") == 4);
  CHECK(cli::columns_of("\xE6\x97\xA5\xE6\x9C\xAC") == 4);  // two characters, each two columns wide
  CHECK(cli::columns_of("e\xCC\x81") == 1);                 // a combining accent
  CHECK(cli::columns_of("\xFF\xFE") == 2);                  // invalid UTF-8
  cli::Box box("compare");
  box.add("data", "/home/caf\xC3\xA9/" + std::string(70, 'x') + " and 3 files, shuffled, of many", "default");
  box.add("\xE6\x97\xA5", "none cpu_optimizer", "scale.json: train_micro_batch_size_per_gpu");
  for (int const width : {0, 20, 40, 60, 80, 200}) {
    INFO(width);
    std::string const text = box.text(width);
    std::size_t const wide = cli::columns_of(text.substr(0, text.find('\n')));
    if (width > 0) CHECK(wide <= static_cast<std::size_t>(width));
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t const end = text.find('\n', begin);
      CHECK(cli::columns_of(text.substr(begin, end - begin)) == wide);
      begin = end + 1;
    }
  }
  cli::Table names({{"name", false}, {"rate"}});
  names.row({"caf\xC3\xA9", "1"});
  names.row({"cafes", "2"});
  CHECK(names.text({}) == "name  rate\ncaf\xC3\xA9     1\ncafes    2\n");
  CHECK(has(cli::left_out_text({"CPU %", "comm"}, {}, "JSON has them"),
            "columns that do not fit the terminal: CPU %, comm; JSON has them\n"));
}
