// SPDX-License-Identifier: Apache-2.0
// Tests the result files of `compare`: the list of fields, JSON, CSV, the logs of steps, experiment names,
// and result files that the reader must refuse.
#include "results/results.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/file_support.hpp"

namespace ts = tessera;
namespace results = programs::results;
using file_support::read;
using file_support::TemporaryFolder;
using file_support::write;
using results::Row;

namespace {

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    std::size_t const end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("an empty row has every field in order as null") {
  // This is the published list of fields. The test repeats the list, so it fails if somebody renames or moves
  // a field.
  std::string const published =
      "experiment model params stage sharding precision offload recompute reduction capture attention world "
      "batch "
      "sequence accumulation global_batch repeats status reason median_tokens_per_sec std_tokens_per_sec "
      "tokens_per_sec_per_rank avg_step_time_s median_step_time_s std_step_time_s samples_per_sec "
      "total_time_s "
      "train_time_s first_step_s peak_gpu_mem_mb planned_gpu_mem_mb arena_mb library_mb host_mem_mb nvme_mb "
      "comm_bytes_per_step comm_time_s comm_exposed_s avg_gpu_util_pct avg_cpu_util_pct peak_power_w "
      "avg_power_w "
      "energy_j temp_start_c temp_end_c mfu_pct speedup scaling_efficiency first_loss final_loss losses "
      "grad_norms "
      "weights_hash same_program_as seed planned_host_mem_mb process_mem_mb comm_waiting_s speedup_against "
      "steps warmup skipped_steps timed_skipped_steps schedule_hash trainable_params planned_nvme_mb "
      "nvme_read_mb nvme_write_mb "
      "nvme_engine samples_are padding_pct "
      "final_loss_with_padding epochs samples avg_epoch_time_s epoch_times_s epoch_samples_per_sec "
      "first_epoch_loss final_epoch_loss epoch_losses epoch_losses_with_padding step_to_step_std_s "
      "spread_pct unsteady speedup_uncertainty allocated_mb mfu_against "
      "product_plans measured_products hashed_steps predicted_step_time_s predicted_tokens_per_sec "
      "predicted_guessed_pct prediction_error_pct other_cpu_util_pct disturbed efficiency memory_saved_pct "
      "loss_reduction_pct verdict cpu_time_s gpu_busy_s std_gpu_util_pct device_limit_mb nvme_gb_per_s "
      "temp_min_c temp_max_c peak_power_each_w";
  Row const row = results::empty_row();
  std::string fields;
  for (auto const& field : row.items()) {
    fields += (fields.empty() ? "" : " ") + field.key();
    CHECK(field.value().is_null());
  }
  CHECK(fields == published);
}

TEST_CASE("a document is written and read back") {
  TemporaryFolder folder;
  auto const path = folder / "compare.json";
  Row row = results::empty_row();
  row["experiment"] = "zs2_fp32_ranks4_bs4_sl128";
  row["stage"] = 2;
  row["params"] = 124'439'808;
  row["losses"] = {5.545, 0.1 + 0.2, std::numeric_limits<double>::quiet_NaN()};
  row["peak_gpu_mem_mb"] = 12.5;
  row["seed"] = std::uint64_t{18446744073709551615u};
  row["extra"] = "kept";
  results::Document document{.command = "compare --data caf\xc3\xa9 \"x\"", .wall_s = 1.5, .rows = {row}};
  document.environment["compiler"] = "g++ 12.2";
  results::write_json(path, document);
  CHECK(folder.entries() == 1);
  std::string const text = read(path);
  CHECK(text.starts_with("{\n  \"schema_version\": 3,\n  \"command\": \"compare"));
  CHECK(file_support::has(text, "0.30000000000000004"));
  CHECK(file_support::has(text, "124439808"));

  results::Document const back = results::read_results(path);
  CHECK(back.command == document.command);
  CHECK(back.environment == document.environment);
  CHECK(back.wall_s == 1.5);
  REQUIRE(back.rows.size() == 1);
  row["losses"][2] = nullptr;  // JSON has null for a loss that is not finite
  CHECK(back.rows[0] == row);
  CHECK(back.rows[0].items().begin().key() == "experiment");
  CHECK(results::to_json(back).dump() == results::to_json(results::read_results(path)).dump());

  document.wall_s.reset();
  document.command = "bad \xff byte";
  results::write_json(path, document);
  CHECK(results::read_results(path).command == "bad \xef\xbf\xbd byte");
  CHECK(!results::read_results(path).wall_s.has_value());
}

TEST_CASE("files that are no results are refused") {
  TemporaryFolder folder;
  auto const path = folder / "r.json";
  auto const open = [&](std::string const& text) { return results::read_results(write(path, text)); };
  std::string const rest = "\"command\":\"\",\"environment\":{},\"wall_s\":1,\"rows\":[]}";
  CHECK(open("{\"schema_version\":1," + rest).rows.empty());
  CHECK_ERROR(data, results::read_results(folder / "absent.json"), "absent.json: no such file");
  CHECK_ERROR(data, open(""), "r.json: is not valid JSON");
  CHECK_ERROR(data, open("{\"schema_version\": 7e777}"), "r.json: holds a number that is too large");
  CHECK_ERROR(data, open("{\"schema_version\":1,"), "r.json: is not valid JSON, byte 21");
  CHECK_ERROR(data, open("[1]"), "holds no JSON object");
  CHECK_ERROR(data, open("{}"), "lacks schema_version");
  CHECK(open("{\"schema_version\":3," + rest).rows.empty());
  CHECK_ERROR(data, open("{\"schema_version\":4," + rest), "has schema_version 4", "reads up to 3",
              "newer program");
  CHECK_ERROR(data, open("{\"schema_version\":0," + rest), "its schema_version is 0");
  CHECK_ERROR(data, open("{\"schema_version\":\"1\"," + rest), "its schema_version is \"1\"");
  CHECK_ERROR(data, open("{\"schema_version\":18446744073709551615," + rest), "schema_version");
  CHECK_ERROR(data,
              open("{\"schema_version\":1,\"command\":\"plan\",\"environment\":{},"
                   "\"rows\":[{\"limit_device_bytes\":1}]}"),
              "holds plans, which did not run");
  CHECK_ERROR(data, open("{\"schema_version\":1}"), "lacks command");
  CHECK_ERROR(data, open("{\"schema_version\":1,\"command\":3}"), "command is not a string");
  CHECK_ERROR(data, open("{\"schema_version\":1,\"command\":\"\",\"environment\":[]}"),
              "environment is not an object");
  CHECK_ERROR(data, open("{\"schema_version\":1,\"command\":\"\",\"environment\":{},\"wall_s\":\"\"}"),
              "wall_s");
  CHECK_ERROR(data,
              open("{\"schema_version\":1,\"command\":\"\",\"environment\":{},\"wall_s\":null,\"rows\":{}}"),
              "rows is not an array");
  CHECK_ERROR(
      data,
      open("{\"schema_version\":1,\"command\":\"\",\"environment\":{},\"wall_s\":null,\"rows\":[{},3]}"),
      "row 1 is not an object");
}

TEST_CASE("CSV has all fields and quotes what needs it") {
  TemporaryFolder folder;
  Row first = results::empty_row(), second = results::empty_row();
  first["experiment"] = "a,b";
  first["model"] = "layers=4,heads=4";
  first["stage"] = "dp";
  first["reason"] = "say \"no\"\nand go";
  first["losses"] = {1.5, 2, nullptr};
  first["peak_gpu_mem_mb"] = std::numeric_limits<double>::quiet_NaN();
  second["experiment"] = " padded";
  second["stage"] = 3;
  second["median_tokens_per_sec"] = 1234.5;
  second["grad_norms"] = Row::array();
  second["same_program_as"] = "zs0";
  second["zz_more"] = true;
  std::vector<Row> const rows = {first, second};
  results::write_csv(folder / "r.csv", rows);
  std::string const text = read(folder / "r.csv");
  std::string header;
  for (results::Column const& column : results::columns) header += std::string(column.name) + ",";
  CHECK(text.starts_with(header + "zz_more\n"));
  CHECK(file_support::has(text, "\n\"a,b\",\"layers=4,heads=4\",,dp,,"));
  CHECK(file_support::has(text, ",\"say \"\"no\"\"\nand go\","));
  CHECK(file_support::has(text, ",1.5 2 null,"));
  CHECK(file_support::has(text, "\n\" padded\",,,3,"));
  CHECK(file_support::has(text, ",1234.5,"));
  std::string const absent(std::size(results::columns) - results::column_index("same_program_as"), ',');
  CHECK(text.ends_with(",,,zs0" + absent + "true\n"));
  CHECK(lines_of(results::to_csv({})).size() == 1);
}

TEST_CASE("a step log starts with the four known columns") {
  TemporaryFolder folder;
  std::vector<results::StepLogRow> const rows = {{.global_step = 1,
                                                  .step_time_s = 0.25,
                                                  .tokens_per_sec = 4096,
                                                  .gpu_max_mem_mb = 12.5,
                                                  .loss = 5.5,
                                                  .grad_norm = 1.25,
                                                  .lr = 0.001,
                                                  .scale = 65536,
                                                  .skipped = false},
                                                 {.global_step = 2,
                                                  .step_time_s = 0.125,
                                                  .tokens_per_sec = 8192,
                                                  .loss = std::numeric_limits<double>::quiet_NaN(),
                                                  .skipped = true}};
  results::write_step_log(folder / "step_log.csv", rows);
  CHECK(lines_of(read(folder / "step_log.csv")) ==
        std::vector<std::string>{
            "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss,grad_norm,lr,scale,skipped",
            "1,0.25,4096.0,12.5,5.5,1.25,0.001,65536.0,0", "2,0.125,8192.0,,,,,,1"});
  CHECK_ERROR(failed, results::write_step_log(folder / "run1/step_log.csv", rows), "run1/step_log.csv",
              "does not exist");
}

TEST_CASE("experiment names") {
  CHECK(results::experiment_name({.sharding = "zs2",
                                  .precision = "fp16",
                                  .world = 4,
                                  .batch = 4,
                                  .sequence = 128,
                                  .offload = "cpu_optimizer",
                                  .accumulation = 2}) == "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2");
  CHECK(
      results::experiment_name(
          {.sharding = "dp", .precision = "bf16", .gpus = true, .world = 8, .batch = 32, .sequence = 1024}) ==
      "dp_bf16_gpus8_bs32_sl1024");
  auto const offload = [](std::string const& name) {
    return results::experiment_name({.offload = name})
        .substr(std::string("zs0_fp32_ranks1_bs1_sl128").size());
  };
  CHECK(offload("none").empty());
  CHECK(offload("cpu_full") == "_offcpufull");
  CHECK(offload("nvme_optimizer") == "_offnvmeopt");
  CHECK(offload("nvme") == "_offnvme");
  CHECK(offload("infinity") == "_offinfinity");
  CHECK(offload("host_accumulator") == "_offhost_accumulator");  // a policy of a user has its full name
}
