// SPDX-License-Identifier: Apache-2.0
// Tests how `compare` computes the rows of its result table from measurements of training runs.
#include "compare/report.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "row_support.hpp"

namespace ts = tessera;
namespace cli = programs::cli;
namespace compare = programs::compare;
using namespace row_support;

TEST_CASE("a row has the power and energy of its GPUs if every repeat measured them") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  CHECK(compare::result_rows(rows, settings)[0]["avg_power_w"].is_null());
  rows[0].repeats[0].gpus = {.util_pct = 90.0,
                             .power_w = 600.0,
                             .peak_power_w = 700.0,
                             .temp_start_c = 40.0,
                             .temp_end_c = 60.0,
                             .temp_min_c = 38.0,
                             .temp_max_c = 61.0,
                             .peak_power_each_w = {340.0, 360.0}};
  CHECK(compare::result_rows(rows, settings)[0]["avg_power_w"].is_null());
  rows[0].repeats[1].gpus = {.util_pct = {},
                             .power_w = 640.0,
                             .peak_power_w = 690.0,
                             .temp_start_c = 61.0,
                             .temp_end_c = 66.0,
                             .temp_min_c = 39.0,
                             .temp_max_c = 67.0,
                             .peak_power_each_w = {345.0, 350.0}};
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row["avg_power_w"].get<double>() == doctest::Approx(620.0));
  CHECK(row["peak_power_w"] == 700.0);
  CHECK(row["energy_j"].get<double>() == doctest::Approx(620.0 * 0.8));  // 620 W for 8 steps of 100 ms
  CHECK(row["temp_start_c"] == 40.0);
  CHECK(row["temp_end_c"] == 66.0);
  CHECK(row["temp_min_c"] == 38.0);
  CHECK(row["temp_max_c"] == 67.0);
  CHECK(row["peak_power_each_w"] == programs::results::Row{345.0, 360.0});
  CHECK(row["avg_gpu_util_pct"].is_null());
  CHECK(compare::result_rows(rows, settings)[1]["energy_j"].is_null());
}

TEST_CASE("a row says how the algorithms of its products were chosen, where there is a choice") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  auto row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"].is_null());
  CHECK(row["measured_products"].is_null());
  rows[0].point.recipe.device = ts::Device::cuda;
  row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"] == "library");
  CHECK(row["measured_products"].is_null());
  rows[0].repeats.back().measured_products = 15;
  row = compare::result_rows(rows, settings)[0];
  CHECK(row["product_plans"] == "measured");
  CHECK(row["measured_products"] == 15);
  rows[0].repeats.clear();  // the training run of this row failed, so it has no repeats
  rows[0].status = "failed";
  CHECK(compare::result_rows(rows, settings)[0]["product_plans"].is_null());
}

TEST_CASE("deviations over repeats and from step to step stand apart") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 2, 3);
  std::vector<std::vector<double>> const steps = {{90, 110}, {190, 210}, {140, 160, 150}};
  for (std::size_t at = 0; at < steps.size(); ++at) rows[0].repeats[at].timed = steps_of(rows[0], steps[at]);
  auto const row = compare::result_rows(rows, settings)[0];
  CHECK(row["median_step_time_s"].get<double>() == doctest::Approx(0.150));
  // The row has three repeats of the same training run. Their mean step times are 100, 200 and 150 ms.
  CHECK(row["std_step_time_s"].get<double>() == doctest::Approx(0.050));
  // The deviation of a step is the difference between its time and the mean of its repeat. The absolute
  // deviations are 10 and 10 ms in the first repeat, 10 and 10 ms in the second, and 10, 10 and 0 ms in the
  // third. 7 steps less 3 means give 4 degrees of freedom.
  CHECK(row["step_to_step_std_s"].get<double>() == doctest::Approx(std::sqrt(6 * 100.0 / 4) * 1e-3));
  double const tokens = 16 * 128;
  CHECK(row["median_tokens_per_sec"].get<double>() == doctest::Approx(tokens / 0.150));
  CHECK(row["std_tokens_per_sec"].get<double>() ==
        doctest::Approx(cli::deviation({tokens / 0.1, tokens / 0.2, tokens / 0.15})));
}

TEST_CASE("memory beside the arenas is what came since the start") {
  constexpr std::int64_t mb = 1 << 20;
  CHECK(cli::library_bytes_of(100 * mb, 1700 * mb, 1000 * mb) == 600 * mb);
  CHECK_FALSE(cli::library_bytes_of(std::nullopt, 1700 * mb, 0));
  CHECK_FALSE(cli::library_bytes_of(100 * mb, std::nullopt, 0));
  // At the end, the device uses 700 MB more than at the start, but the arenas need 1000 MB. Another process
  // has therefore freed memory, and the result is unknown.
  CHECK_FALSE(cli::library_bytes_of(1000 * mb, 1700 * mb, 1000 * mb));
  CHECK_FALSE(ts::allocated_bytes(ts::Device::cpu, 0));
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
    auto const rate = [&](ts::RecipeTable const&) {
      return measured_rate > 0.0 ? std::optional(measured_rate) : std::nullopt;
    };
    return compare::measurements(rows, settings, device, rate)[row];
  };
  auto const share = [&](std::vector<std::string> models, std::size_t row) {
    return known(std::move(models), row).mfu_pct;
  };
  double const rate = rows[0].tokens_per_second() / 2;
  double const flops = rows[0].point.model.built.flops_per_token(rows[0].point.sequence);
  CHECK(*share({"NVIDIA H200", "NVIDIA H200"}, 0) == doctest::Approx(100.0 * rate * flops / 989.4e12));
  CHECK(*share({"NVIDIA H200", "NVIDIA H200"}, 1) == doctest::Approx(100.0 * rate * flops / 66.9e12));
  CHECK_FALSE(share({"NVIDIA H200", "NVIDIA H200"}, 2));
  CHECK_FALSE(share({"NVIDIA H200", "NVIDIA L4"}, 0));
  CHECK_FALSE(share({"NVIDIA H200"}, 0));
  CHECK_FALSE(share({"A device of tomorrow", "A device of tomorrow"}, 0));
  CHECK(known({"NVIDIA H200", "NVIDIA H200"}, 0).mfu_against == "documented");
  // `mfu_pct` is a percentage of the device's peak rate. The library has no documented peak rate for the CPU.
  CHECK(compare::result_rows(rows, settings)[0]["mfu_pct"].is_null());
  CHECK(compare::result_rows(rows, settings)[0]["mfu_against"].is_null());
  CHECK_FALSE(ts::product_rate(rows[0].point.recipe));  // nor a measured peak rate
  measured_rate = 2e12;
  CHECK(*share({"NVIDIA H200", "NVIDIA H200"}, 0) == doctest::Approx(100.0 * rate * flops / 989.4e12));
  CHECK(*share({"A device of tomorrow", "A device of tomorrow"}, 0) ==
        doctest::Approx(100.0 * rate * flops / 2e12));
  CHECK(known({"A device of tomorrow", "A device of tomorrow"}, 2).mfu_against == "measured");
  CHECK_FALSE(share({"NVIDIA H200", "NVIDIA L4"}, 0));
}

TEST_CASE("a row says which attention ran, and which was asked for") {
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs0"};
  matrix.slots.of<ts::slot::attention>() = {"auto", "reference", "fused"};
  compare::Settings const settings = asked(matrix);
  auto rows = measured(settings);
  // no measurement names an attention kernel
  CHECK(compare::result_rows(rows, settings)[0]["attention"].is_null());
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
