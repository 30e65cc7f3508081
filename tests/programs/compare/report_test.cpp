// SPDX-License-Identifier: Apache-2.0
// Rows and tables of measurements that never took place.
#include "compare/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "common/data.hpp"

namespace ts = tessera;
namespace cli = tessera::cli;
namespace compare = tessera::compare;

namespace {

/// What a comparison of these lists asks for.
compare::Settings asked(cli::MatrixFlags matrix) {
  compare::Settings settings;
  settings.matrix = std::move(matrix);
  return settings;
}
cli::MatrixFlags lists() {
  cli::MatrixFlags matrix;
  matrix.device = "cpu";
  matrix.ranks = {4};
  matrix.slots.of<ts::slot::sharding>() = {"zs0", "zs2"};
  matrix.slots.of<ts::slot::precision>() = {"bf16"};
  matrix.slots.of<ts::slot::offload>() = {"none"};
  return matrix;
}

/// Every row as it were measured: so many timed steps of 100 ms in each repeat.
std::vector<compare::Measured> measured(compare::Settings const& settings, int steps = 4, int repeats = 1) {
  std::vector<compare::Measured> rows;
  for (cli::Point const& point : cli::make_matrix(settings.matrix, 0)) {
    compare::Measured row;
    row.point = point;
    row.status = "ok";
    row.params = 1000000;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      compare::Repeat one;
      for (int step = 0; step < steps; ++step) {
        ts::StepReport report;
        report.interval = 0.1;
        report.tokens = point.split.global() * point.sequence;
        one.timed.add(report);
      }
      one.log.push_back({.global_step = 1, .step_time_s = 0.1, .tokens_per_sec = 1.0, .loss = 5.0});
      one.comm_s = 0.01;
      one.comm_exposed_s = 0.004;
      one.comm_waiting_s = 0.002;
      one.weights_hash = "0123456789abcdef";
      row.repeats.push_back(one);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Timed steps of these milliseconds.
compare::TimedSteps steps_of(compare::Measured const& row, std::vector<double> const& milliseconds) {
  compare::TimedSteps timed;
  for (double const each : milliseconds) {
    ts::StepReport report;
    report.interval = each * 1e-3;
    report.tokens = row.point.split.global() * row.point.sequence;
    timed.add(report);
  }
  return timed;
}
/// Gives them to the last repeat of a row.
void set_steps(compare::Measured& row, std::vector<double> const& milliseconds) {
  row.repeats.back().timed = steps_of(row, milliseconds);
}

std::string table(std::vector<compare::Measured> const& rows, compare::Settings const& settings,
                  int width = 0) {
  cli::Terminal terminal;
  terminal.width = width;
  return compare::table_text(rows, compare::result_rows(rows, settings), terminal);
}

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// With single spaces between its cells.
std::string squeezed(std::string text) {
  auto const both = [](char one, char other) { return one == ' ' && other == ' '; };
  text.erase(std::unique(text.begin(), text.end(), both), text.end());
  return text;
}

}  // namespace

TEST_CASE("power and energy of GPUs stand in a row where every repeat knows them") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  CHECK(compare::result_rows(rows, settings)[0]["avg_power_w"].is_null());
  rows[0].repeats[0].gpus = {
      .util_pct = 90.0, .power_w = 600.0, .peak_power_w = 700.0, .temp_start_c = 40.0, .temp_end_c = 60.0};
  CHECK(compare::result_rows(rows, settings)[0]["avg_power_w"].is_null());
  rows[0].repeats[1].gpus = {
      .util_pct = {}, .power_w = 640.0, .peak_power_w = 690.0, .temp_start_c = 61.0, .temp_end_c = 66.0};
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row["avg_power_w"].get<double>() == doctest::Approx(620.0));
  CHECK(row["peak_power_w"] == 700.0);
  CHECK(row["energy_j"].get<double>() == doctest::Approx(620.0 * 0.8));  // 8 steps of 100 ms
  CHECK(row["temp_start_c"] == 40.0);
  CHECK(row["temp_end_c"] == 66.0);
  CHECK(row["avg_gpu_util_pct"].is_null());
  CHECK(compare::result_rows(rows, settings)[1]["energy_j"].is_null());
}

TEST_CASE("a row says how the algorithms of its products were chosen, where there is a choice") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  auto row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"].is_null());
  CHECK(row["measured_products"].is_null());
  rows[0].point.recipe.device = "cuda";
  row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"] == "library");
  CHECK(row["measured_products"].is_null());
  rows[0].repeats.back().measured_products = 15;
  row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"] == "measured");
  CHECK(row["measured_products"] == 15);
  rows[0].repeats.clear();  // it did not run
  rows[0].status = "failed";
  CHECK(compare::result_rows(rows, settings)[0]["product_plans"].is_null());
}

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

  // Precisions stand apart, unless each has but one row.
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
  CHECK(rows[1]["speedup"].is_null());  // a smaller model is no faster training

  // Every slot that varies is a column, and its default that follows from another slot is not.
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

  // One row needs no name for what it is, and no column.
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
  CHECK(has(wide, " +- "));  // the column of what repeats differ by
  CHECK(has(narrow, "left out for want of width: "));
  std::string const above = narrow.substr(0, narrow.find("\n\n"));
  for (std::size_t begin = 0; begin < above.size();) {
    std::size_t const end = std::min(above.find('\n', begin), above.size());
    INFO(above.substr(begin, end - begin));
    CHECK(end - begin <= 60);
    begin = end + 1;
  }
  // One repeat does not differ, and a row that was not measured fills no column.
  for (auto& row : rows) row.repeats.resize(1);
  CHECK_FALSE(has(table(rows, settings).substr(0, 300), " +- "));
}

TEST_CASE("all speedups of a table have one base") {
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs2", "zs0"};
  matrix.slots.of<ts::slot::offload>() = {"cpu_optimizer", "none"};
  compare::Settings const settings = asked(matrix);
  auto rows = measured(settings);
  set_steps(rows[0], {200, 200});  // zs2, offloaded
  set_steps(rows[1], {400, 400});  // zs0, offloaded
  set_steps(rows[2], {80, 80});    // zs2
  auto known = compare::result_rows(rows, settings);
  for (auto const& row : known) CHECK(row["speedup_against"] == "zs0_bf16_ranks4_bs4_sl128");
  CHECK(known[0]["speedup"] == doctest::Approx(0.5));
  CHECK(known[1]["speedup"] == doctest::Approx(0.25));  // what offload costs
  CHECK(known[2]["speedup"] == doctest::Approx(1.25));
  CHECK(known[3]["speedup"] == 1.0);
  CHECK(has(table(rows, settings), "speedup against zs0_bf16_ranks4_bs4_sl128\n"));
  rows[3].status = "oom";  // without that row the next best is the base
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
  // Several repeats vary from one to the next, whatever their steps do.
  for (std::size_t row = 0; row < 2; ++row) {
    rows[row].repeats.push_back(rows[row].repeats.back());
    set_steps(rows[row], {row == 0 ? 10.0 : 200.0});
  }
  CHECK(has(table(rows, settings), "fastest: 2 rows differ"));
  // One step does not vary.
  rows = measured(settings, 1);
  set_steps(rows[1], {50});
  text = table(rows, settings);
  CHECK(has(text, "fastest: not told by one timed step a row"));
  CHECK_FALSE(has(text, "*"));
  CHECK(has(squeezed(text), "zs2 40960 ~1.0 "));
  CHECK(compare::result_rows(rows, settings)[1]["speedup_uncertainty"].is_null());
}

TEST_CASE("a row whose steps or repeats vary by more than five per cent is marked") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4);
  set_steps(rows[0], {96, 104, 96, 104});  // 4.6 % of their mean
  auto known = compare::result_rows(rows, settings);
  CHECK(known[0]["unsteady"] == false);
  CHECK(known[0]["spread_pct"].get<double>() == doctest::Approx(4.6188));
  CHECK(known[0]["step_to_step_std_s"].get<double>() == doctest::Approx(4.6188e-3));
  CHECK(known[0]["std_step_time_s"].is_null());
  CHECK_FALSE(has(table(rows, settings), "step to step"));
  set_steps(rows[0], {95, 105, 95, 105});  // 5.8 %
  known = compare::result_rows(rows, settings);
  CHECK(known[0]["unsteady"] == true);
  CHECK(known[1]["unsteady"] == false);
  std::string const text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs0 ~20480 1.00 ~100.0 "));
  CHECK(has(squeezed(text), "\nzs2 20480 ~1.0 100.0 "));
  CHECK(has(text,
            "~ 1 row varies by more than 5% from step to step or repeat to repeat; a speedup of ~1.0 is"));
  // Steps that hardly vary in repeats that do; and what varies within repeats that do not.
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
  CHECK_FALSE(has(table(rows, settings), "updated nothing"));
  set_steps(rows[0], {50, 50, 50, 50});
  std::string const fast = "fastest: " + rows[0].point.experiment;
  CHECK(has(table(rows, settings), fast));
  log_of(0, {true, true, true, false, false, false});
  CHECK(compare::result_rows(rows, settings)[0]["timed_skipped_steps"] == 1);
  std::string const text = table(rows, settings);
  CHECK(has(squeezed(text), "\nzs0 ~40960 "));
  CHECK(has(text, "~ 1 row updated nothing in more than 5% of the timed steps"));
  CHECK(has(text, "skipped: " + rows[0].point.experiment + " updated nothing in 1 of its 4 timed steps"));
  CHECK(has(text, "give more --warmup"));
  CHECK_FALSE(has(text, fast));
  // What was predicted is a step that updates, and such took just that long.
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

TEST_CASE("deviations over repeats and from step to step stand apart") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 2, 3);
  std::vector<std::vector<double>> const steps = {{90, 110}, {190, 210}, {140, 160, 150}};
  for (std::size_t at = 0; at < steps.size(); ++at) rows[0].repeats[at].timed = steps_of(rows[0], steps[at]);
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row["median_step_time_s"].get<double>() == doctest::Approx(0.150));
  CHECK(row["std_step_time_s"].get<double>() == doctest::Approx(0.050));  // of 100, 200 and 150 ms
  // Of 10, 10 | 10, 10 | 10, 10, 0 from the means, with 2 + 2 + 3 - 3 degrees of freedom.
  CHECK(row["step_to_step_std_s"].get<double>() == doctest::Approx(std::sqrt(6 * 100.0 / 4) * 1e-3));
  double const tokens = 16 * 128;
  CHECK(row["median_tokens_per_sec"].get<double>() == doctest::Approx(tokens / 0.150));
  CHECK(row["std_tokens_per_sec"].get<double>() ==
        doctest::Approx(cli::deviation({tokens / 0.1, tokens / 0.2, tokens / 0.15})));
}

TEST_CASE("a speedup has an uncertainty, and within it says nothing") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  // Equal rows on a machine that others use too: one saw the busy half of the time.
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
  // What is known to be faster or slower says by how much.
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

TEST_CASE("memory beside the arenas is what came since the start") {
  constexpr std::int64_t mb = 1 << 20;
  CHECK(cli::library_bytes_of(100 * mb, 1700 * mb, 1000 * mb) == 600 * mb);
  CHECK_FALSE(cli::library_bytes_of(std::nullopt, 1700 * mb, 0));
  CHECK_FALSE(cli::library_bytes_of(100 * mb, std::nullopt, 0));
  CHECK_FALSE(cli::library_bytes_of(1000 * mb, 1700 * mb, 1000 * mb));  // somebody else left meanwhile
  CHECK_FALSE(ts::allocated_bytes("cpu", 0));
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  CHECK(compare::result_rows(rows, settings)[0]["allocated_mb"].is_null());
  rows[0].repeats[0].device_memory = {.allocated = 30 * mb, .library = 500 * mb};
  CHECK(compare::result_rows(rows, settings)[0]["library_mb"].is_null());
  rows[0].repeats[1].device_memory = {.allocated = 30 * mb, .library = 520 * mb};
  CHECK(compare::result_rows(rows, settings)[0]["allocated_mb"] == 30.0);
  CHECK(compare::result_rows(rows, settings)[0]["library_mb"] == 520.0);
  rows[0].repeats[1].device_memory->library.reset();
  CHECK(compare::result_rows(rows, settings)[0]["allocated_mb"] == 30.0);
  CHECK(compare::result_rows(rows, settings)[0]["library_mb"].is_null());
}

TEST_CASE("utilisation is of a peak that is documented, else of what was measured") {
  cli::MatrixFlags matrix = lists();
  matrix.ranks = {2};
  matrix.slots.of<ts::slot::precision>() = {"bf16", "fp32", "fp64"};
  matrix.slots.of<ts::slot::sharding>() = {"zs0"};
  compare::Settings const settings = asked(matrix);
  auto const rows = measured(settings);
  double measured_rate = 0.0;
  auto const known = [&](std::vector<std::string> models, std::size_t row) {
    ts::DeviceFacts device;
    device.models = std::move(models);
    return compare::result_rows(rows, settings, device, [&](ts::RecipeTable const&) {
      return measured_rate > 0.0 ? std::optional(measured_rate) : std::nullopt;
    })[row];
  };
  auto const share = [&](std::vector<std::string> models, std::size_t row) {
    return known(std::move(models), row)["mfu_pct"];
  };
  double const rate = rows[0].tokens_per_second() / 2;
  double const flops = rows[0].point.model.built.flops_per_token(rows[0].point.sequence);
  CHECK(share({"NVIDIA H200", "NVIDIA H200"}, 0) == doctest::Approx(100.0 * rate * flops / 989.4e12));
  CHECK(share({"NVIDIA H200", "NVIDIA H200"}, 1) == doctest::Approx(100.0 * rate * flops / 66.9e12));
  CHECK(share({"NVIDIA H200", "NVIDIA H200"}, 2).is_null());
  CHECK(share({"NVIDIA H200", "NVIDIA L4"}, 0).is_null());
  CHECK(share({"NVIDIA H200"}, 0).is_null());
  CHECK(share({"A device of tomorrow", "A device of tomorrow"}, 0).is_null());
  CHECK(known({"NVIDIA H200", "NVIDIA H200"}, 0)["mfu_against"] == "documented");
  CHECK(compare::result_rows(rows, settings)[0]["mfu_pct"].is_null());  // the CPU's peak is not documented
  CHECK(compare::result_rows(rows, settings)[0]["mfu_against"].is_null());
  CHECK_FALSE(ts::product_rate(rows[0].point.recipe));  // and not measured
  measured_rate = 2e12;
  CHECK(share({"NVIDIA H200", "NVIDIA H200"}, 0) == doctest::Approx(100.0 * rate * flops / 989.4e12));
  CHECK(share({"A device of tomorrow", "A device of tomorrow"}, 0) ==
        doctest::Approx(100.0 * rate * flops / 2e12));
  CHECK(known({"A device of tomorrow", "A device of tomorrow"}, 2)["mfu_against"] == "measured");
  CHECK(share({"NVIDIA H200", "NVIDIA L4"}, 0).is_null());
}

TEST_CASE("a row says which attention ran, and which was asked for") {
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs0"};
  matrix.slots.of<ts::slot::attention>() = {"auto", "reference", "fused"};
  compare::Settings const settings = asked(matrix);
  auto rows = measured(settings);
  CHECK(compare::result_rows(rows, settings)[0]["attention"].is_null());  // of a model that has none
  for (auto& row : rows) row.repeats.front().attention = ts::AttentionKind::fused;
  rows.push_back(rows[1]);
  rows[3].status = "failed";
  rows[3].repeats.clear();
  auto const known = compare::result_rows(rows, settings);
  for (std::size_t at = 0; at < 3; ++at) {
    CHECK(known[at]["attention"] == "fused");
    CHECK(known[at]["attention_policy"] == matrix.slots.of<ts::slot::attention>()[at]);
  }
  CHECK(known[3]["attention"].is_null());
  CHECK(known[3]["attention_policy"] == "reference");
}

TEST_CASE("seconds in collectives are there where they were measured") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  auto const known = compare::result_rows(rows, settings);
  CHECK(known[0]["comm_time_s"] == doctest::Approx(0.01));
  CHECK(known[0]["comm_exposed_s"] == doctest::Approx(0.004));
  CHECK(known[0]["comm_waiting_s"] == doctest::Approx(0.002));
  auto& silent = rows[1].repeats[0];
  silent.comm_s = silent.comm_exposed_s = silent.comm_waiting_s = std::nullopt;
  auto const unknown = compare::result_rows(rows, settings);
  CHECK(unknown[0] == known[0]);
  for (char const* field : {"comm_time_s", "comm_exposed_s", "comm_waiting_s"})
    CHECK(unknown[1][field].is_null());
  CHECK(has(table(rows, settings), " 10.0 "));
  rows[0].repeats[0].comm_s.reset();
  CHECK_FALSE(has(table(rows, settings), " 10.0 "));
}

TEST_CASE("epochs are sums of their steps, weighed by the tokens that count") {
  cli::EpochSums sums(5, 2, 8);  // three steps
  std::vector<ts::results::EpochLogRow> epochs;
  for (int step = 1; step <= 6; ++step) {
    ts::StepReport report;
    report.step = step;
    report.interval = 0.25 * step;
    report.tokens = 16;
    report.unmasked = step % 3 == 0 ? 4 : 8;
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
  rows[0].repeats[0].unmasked = 75;
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row.at("epochs") == 2);
  CHECK(row.at("samples") == 8);
  CHECK(row.at("epoch_times_s") == ts::results::Row({2.0, 4.0}));
  CHECK(row.at("epoch_samples_per_sec") == ts::results::Row({4.0, 2.0}));
  CHECK(row.at("avg_epoch_time_s") == 3.0);
  CHECK(row.at("epoch_losses") == ts::results::Row({4.0, 3.0}));
  CHECK(row.at("final_epoch_loss") == 3.0);
  CHECK(row.at("padding_pct") == 25.0);
  CHECK(has(squeezed(table(rows, settings)), " s/epoch "));
}
