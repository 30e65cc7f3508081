// SPDX-License-Identifier: Apache-2.0
// Tests a small comparison by the program `compare`: the result table has all rows, the fields of the rows
// are correct, the final weights are equal for every sharding policy, and the peak of memory equals the
// planned memory. compare_schema_test.cpp tests that rows have all fields.
#include <map>

#include "programs/compare_support.hpp"

using test::column, test::Compare, test::field, test::Json, test::shows;

TEST_CASE("compare matrix: all rows have plausible values, equal weights, and the planned memory") {
  Compare const sh;
  sh.passes(
      "compare --ranks 1,2 --stages dp,0,1,2,3 --precisions fp32 bf16 --offloads none,cpu_optimizer "
      "--prefetch 0 --json out.json" +
          Compare::brief,
      R"(
      fp32, global batch 4: all 10 rows equal to the bit
      planned = peak to the byte in all 40 rows
      rows: 40 ok\n)");
  CHECK(sh.listed(".") == "out.json\ntext.txt\n");
  Json const document = sh.json("out.json");
  CHECK(document.at("schema_version") == 3);
  CHECK(document.at("wall_s").is_number());
  for (char const* key : {"cpu_bf16_products", "kernel", "libraries"})
    CHECK_MESSAGE(field(document, "environment").contains(key), key);
  CHECK(document.at("rows").size() == 40);

  // Maps the precision and the number of ranks of a row to the hashes of the final weights of all such rows.
  std::map<std::string, std::vector<std::string>> hashes;
  std::map<std::string, double> peaks;
  std::string first_of_group;
  for (Json const& row : document.at("rows")) {
    std::string const experiment = row.at("experiment");
    INFO(experiment);
    CHECK(row.at("status") == "ok");
    CHECK(row.at("peak_gpu_mem_mb") == row.at("planned_gpu_mem_mb"));
    CHECK(row.at("repeats") == 1);
    CHECK(row.at("attention") == "fused");
    for (char const* key : {"std_tokens_per_sec", "std_step_time_s", "mfu_pct", "mfu_against",
                            "avg_gpu_util_pct", "peak_power_w", "allocated_mb", "library_mb"})
      // These fields need several repeats or a GPU, so they are null here.
      CHECK_MESSAGE(row.at(key).is_null(), key);
    CHECK(row.at("step_to_step_std_s") > 0);
    CHECK(row.at("spread_pct") > 0);
    CHECK(row.at("unsteady").is_boolean());
    if (row.at("spread_pct") > 5) CHECK(row.at("unsteady") == true);
    CHECK(row.at("losses").size() == 4);
    CHECK(row.at("grad_norms").size() == 4);
    CHECK(row.at("first_loss") == field(row, "losses", 0));
    CHECK(row.at("final_loss") == field(row, "losses", 3));
    CHECK(row.at("final_loss") < row.at("first_loss"));
    std::string const hash = row.at("weights_hash");
    CHECK(hash.size() == 32);
    hashes[row.at("precision").get<std::string>() + row.at("world").dump()].push_back(hash);
    // With one rank, the rows of all ZeRO stages execute the same schedule as the row `dp`. The schedule
    // sends no data. Each of these rows names the row `dp` in `same_program_as`.
    if (row.at("stage") == "dp") first_of_group = experiment;
    bool const same = row.at("world") == 1 && row.at("stage") != "dp";
    CHECK(row.at("same_program_as") == (same ? Json(first_of_group) : Json()));
    double const sent = row.at("comm_bytes_per_step"), on_host = row.at("host_mem_mb");
    CHECK((row.at("world") == 1 ? sent == 0 : sent > 0));
    CHECK((row.at("offload") == "none" ? on_host == 0 : on_host > 0));
    peaks[experiment] = row.at("peak_gpu_mem_mb");
  }
  CHECK(hashes.size() == 4);
  for (auto const& [group, all] : hashes) {
    CHECK(all.size() == 10);
    CHECK(std::set(all.begin(), all.end()).size() == 1);
  }
  CHECK(peaks.at("zs1_fp32_ranks2_bs2_sl16") < peaks.at("zs0_fp32_ranks2_bs2_sl16"));
  CHECK(peaks.at("zs3_fp32_ranks2_bs2_sl16") < peaks.at("zs1_fp32_ranks2_bs2_sl16"));
}

TEST_CASE("compare matrix: ranks, accumulation, offload and recomputation change no bit") {
  Compare const sh;
  Json const rows = sh.rows(Compare::brief +
                                "--global-batch 8 --ranks 1,2,4 --stages dp,0,3 --precisions fp32 --offloads "
                                "none,cpu_optimizer --recompute none,gelu,block,every",
                            "fp32, global batch 8: all 72 rows equal to the bit");
  CHECK(field(rows, 6, "experiment") == "dp_fp32_ranks1_bs2_sl16_acc4_recompute-gelu");
  CHECK(field(rows, 71, "scaling_efficiency").is_number());
}

TEST_CASE("compare matrix: repeats give one row with deviations") {
  Compare const sh;
  Json const rows =
      sh.rows(Compare::brief + "--ranks 2 --stages 2 --precisions fp16 --offloads none --repeat 3");
  CHECK(rows.size() == 1);
  CHECK(field(rows, 0, "repeats") == 3);
  CHECK(field(rows, 0, "std_tokens_per_sec").is_number());
  CHECK(field(rows, 0, "std_step_time_s").is_number());
}

TEST_CASE("compare matrix: a recipe that cannot run or does not fit has a row with the reason") {
  Compare const sh;
  Json rows = sh.rows(
      "--models layers=1,heads=1,channels=8 facebook/opt-350m --data text.txt --sequence 16 --batch 1 "
      "--ranks 1 --stages 0 --precisions fp32,tf32 --offloads none,nvme,infinity --capture eager,graph "
      "--steps 1 --warmup 0");
  CHECK(rows.size() == 24);
  int refused = 0;
  for (Json const& row : rows) {
    if (row.at("status") != "refused") continue;
    ++refused;
    shows(row.at("reason"), "--device cuda|not part of this build|which OPT models do not support here");
    CHECK(row.at("weights_hash").is_null());
  }
  CHECK(refused == 21);

  Json const row = field(sh.rows("--model gpt2-xl --data text.txt --ranks 8 --batch 512 --sequence 1024 "
                                 "--stages 0 --precisions fp32 --offloads none --steps 1"),
                         0);
  CHECK(row.at("status") == "oom");
  CHECK(row.at("params") == 1557611200);
  CHECK(row.at("planned_gpu_mem_mb") > 10000);
  shows(row.at("reason"), "parameters .*optimizer .*activations");
}

TEST_CASE("compare matrix: meshes have separate rows, the same weights, and memory between the extremes") {
  Compare const sh;
  Json const rows = sh.rows(Compare::brief +
                                "--ranks 4 --stages 0,1,2,3 --precisions bf16 --offloads none --prefetch 0 "
                                "--mesh replicate=1 replicate=2,shard=2 replicate=4",
                            R"(
      all 12 rows equal to the bit
      planned = peak to the byte in all 12 rows
      replicas +stage)");
  Json const stage3 = {rows.at(3), rows.at(7), rows.at(11)};
  CHECK(column(stage3, "mesh") == Json{"1x4", "2x2", "4x1"});
  CHECK(column(stage3, "experiment") == Json{"zs3_bf16_ranks4_bs2_sl16", "zs3_bf16_ranks4_bs2_sl16_mesh2x2",
                                             "zs3_bf16_ranks4_bs2_sl16_mesh4x1"});
  CHECK(field(stage3, 0, "peak_gpu_mem_mb") < field(stage3, 1, "peak_gpu_mem_mb"));
  CHECK(field(stage3, 1, "peak_gpu_mem_mb") < field(stage3, 2, "peak_gpu_mem_mb"));
}
