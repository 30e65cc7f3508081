// SPDX-License-Identifier: Apache-2.0
// Tests the program `compare`: the names of its output files, its standard output, rows of its table whose
// training fails, and the spellings of its flags.
#include "programs/compare_support.hpp"

using test::column, test::Compare, test::field, test::has, test::Json, test::matches, test::shows;

namespace {

std::string const row_to_file = Compare::brief + "--ranks 2 --precisions fp32 --offloads none ";

}  // namespace

TEST_CASE("compare files: the default is JSON, CSV, a page, and a step log for each run") {
  Compare const sh;
  sh.passes("compare --stages 0,3 --repeat 2" + row_to_file);
  CHECK(sh.listed("results") ==
        "compare.csv\ncompare.json\nreport.html\n"
        "zs0_fp32_ranks2_bs2_sl16/run1/step_log.csv\nzs0_fp32_ranks2_bs2_sl16/run2/step_log.csv\n"
        "zs3_fp32_ranks2_bs2_sl16/run1/step_log.csv\nzs3_fp32_ranks2_bs2_sl16/run2/step_log.csv\n");
  auto const rows = sh.lines("results/compare.csv");
  CHECK(rows.size() == 3);
  shows(rows.at(0), "^experiment,model,params,stage,sharding,precision,offload,");
  auto const steps = sh.lines("results/zs3_fp32_ranks2_bs2_sl16/run2/step_log.csv");
  CHECK(steps.size() == 5);
  CHECK(steps.at(0) ==
        "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss,grad_norm,lr,scale,skipped");
  shows(steps.at(4), "^4,[0-9.e-]+,[0-9.e+]+,[0-9.]+,[0-9.]+,[0-9.]+,0\\.001,1\\.0,0$");
  std::string const page = sh.text("results/report.html");
  for (char const* text : {"<!DOCTYPE html>", "figure-throughput",
                           "train --from results/compare.json --row zs3_fp32_ranks2_bs2_sl16", "2 ok"})
    CHECK_MESSAGE(has(page, text), "the page lacks ", text);
}

TEST_CASE("compare files: if the page cannot be written, the other files remain") {
  // `ulimit -f 30` limits each file to 15 KiB. The result of one row fits into this size, but the HTML page
  // does not.
  Compare const sh;
  auto const end = sh.run("trap '' XFSZ; ulimit -f 30; compare --stages 0 --output-dir full" + row_to_file);
  CHECK(end.code == 0);
  shows(end.err, R"(
      ^warning: cannot write the page of results: [^\n]*full/report.html[^\n]*; the results are in full/compare.json, and report can make the page from them\n$)");
  CHECK(sh.exists("full/compare.json"));
  CHECK(sh.exists("full/compare.csv"));
  CHECK_FALSE(sh.exists("full/report.html"));
}

TEST_CASE("compare files: --output-dir, --csv, --json and --format write the named files and no others") {
  Compare const sh;
  std::string const one = "compare --stages 1" + row_to_file;
  sh.passes(one + "--csv named.csv");
  CHECK(sh.listed(".") == "named.csv\ntext.txt\n");
  sh.passes(one + "--output-dir a/b");
  CHECK(sh.exists("a/b/compare.json"));
  CHECK_FALSE(sh.exists("results"));

  auto const end = sh.run(one + "--json -");  // with `--json -`, stdout has only the JSON
  CHECK(end.code == 0);
  CHECK(field(Json::parse(end.out), "rows", 0, "status") == "ok");
  shows(end.err, "rows: 1 ok");
  // With --json /dev/stdout, `compare` writes its printed text and then the JSON to both.txt.
  sh.passes(one + "--warmup 0 --json /dev/stdout > both.txt");
  shows(sh.text("both.txt"), R"(
      \nrows: 1 ok\n
      "schema_version": 3)");

  sh.passes(one + "--format flat --json flat.json");
  Json const row = field(sh.json("flat.json"), 0);
  CHECK(row.at("experiment") == "zs1_fp32_ranks2_bs2_sl16");
  CHECK(row.at("schema_version") == 3);
  CHECK_FALSE(row.contains("losses"));
}

TEST_CASE("compare files: flags have other spellings, and of repeated flags the last one counts") {
  Compare const sh;
  Json rows = sh.rows(
      "--data text.txt --models layers=2,heads=2,channels=32 --gpus 2 --batch-size 2 --seq-length 16 "
      "--grad-accum 2 --num-steps 3 --warmup-steps 1 --strategies ddp,zero2 --precision bf16 "
      "--offload-strategies none cpu --defaults own --steps 7 --steps 2");
  CHECK(column(rows, "experiment") == Json{"zs0_bf16_ranks2_bs2_sl16_acc2", "zs2_bf16_ranks2_bs2_sl16_acc2",
                                           "zs0_bf16_ranks2_bs2_sl16_offcpu_acc2",
                                           "zs2_bf16_ranks2_bs2_sl16_offcpu_acc2"});
  CHECK(field(rows, 0, "losses").size() == 3);
  // --strategies selects policies by name. If all its values are names of offload policies, the flag selects
  // offloads. Names are not case-sensitive.
  rows = sh.rows(
      Compare::brief + "--ranks 2 --stages DP,Zero2 --strategies none CPU_optimizer --precisions FP32",
      R"(offloads +none,cpu_optimizer +flag)");
  CHECK(column(rows, "experiment") == Json{"dp_fp32_ranks2_bs2_sl16", "zs2_fp32_ranks2_bs2_sl16",
                                           "dp_fp32_ranks2_bs2_sl16_offcpu",
                                           "zs2_fp32_ranks2_bs2_sl16_offcpu"});
}

TEST_CASE("compare files: --min-time adds steps, and the hash is of the weights after the requested ones") {
  Compare const sh;
  Json const timed = sh.rows(row_to_file + "--stages 0 --min-time 0.2 --order sequential --threads 2");
  CHECK(field(timed, 0, "train_time_s") >= 0.2);
  std::string const two = row_to_file + "--stages 0,3 --warmup 0 --prefetch 0 --steps 1 --min-time ";
  std::string const text = sh.passes("compare --json long.json" + two + "0.5", R"(
      all 2 rows equal to the bit
      planned = peak to the byte in all 2 rows)");
  auto const losses = matches(text, "loss [0-9.]+ -> [0-9.]+");
  CHECK(std::set(losses.begin(), losses.end()).size() == 1);
  Json const asked = sh.rows(two + "0.000001"), longer = sh.json("long.json").at("rows");
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(field(asked, i, "warmup") == 0);
    CHECK(field(asked, i, "steps") == 1);
    CHECK(field(longer, i, "warmup") == 2);
    CHECK(field(longer, i, "steps") == field(longer, i, "losses").size());
    CHECK(field(longer, i, "train_time_s") >= 0.5);
    CHECK(field(longer, i, "weights_hash") == field(asked, i, "weights_hash"));
  }
}

TEST_CASE("compare files: a row without finite weights or threads fails, a diverged one keeps its steps") {
  Compare const sh;
  auto const fails = [&](Json const& row, std::string const& reason) {
    CHECK(row.at("status") == "failed");
    shows(row.at("reason"), reason);
  };
  std::string const infinite = "--steps 1 --warmup 0 --learning-rate 3e38 --weight-decay 1e38 --clip 0";
  fails(field(sh.rows(row_to_file + "--stages 0 " + infinite, "", 1), 0),
        R"(not finite after the last step: h\.0\.attn\.c_attn\.bias holds)");
  std::string const limit = "ulimit -s 8192; ulimit -v 1500000; compare ";
  // A program that is built with a sanitizer cannot start within this limit, so the test skips it.
  if (sh.run(limit + "--version").code == 0) {
    sh.ends(1, limit + "--stages 0 --threads 240 --json threads.json" + row_to_file + "--ranks 1");
    fails(field(sh.json("threads.json"), "rows", 0),
          "needs 240 threads, but the system started only [0-9]+ .*lower --threads");
  }
  sh.ends(1, "compare --stages 0,3 --learning-rate 1e30 --clip 0" + row_to_file, "wrote 2 step logs");
  Json const rows = sh.json("results/compare.json").at("rows");
  CHECK(rows.size() == 2);
  for (Json const& row : rows) {
    fails(row, "the gradient is not finite in step 2");
    CHECK(row.at("steps") == 1);
    CHECK(row.at("first_loss") > 5);
    CHECK(row.at("peak_gpu_mem_mb") == row.at("planned_gpu_mem_mb"));
    CHECK(row.at("weights_hash").is_null());
  }
}

TEST_CASE("compare files: if all rows are refused, the files are written and the exit code is 3") {
  Compare const sh;
  auto const end = sh.run("compare --json refused.json --stages 0" + row_to_file + "--precisions tf32");
  CHECK(end.code == 3);
  shows(end.err, R"(^error: every recipe was refused: [^\n]+\n$)");
  CHECK(field(sh.json("refused.json"), "rows", 0, "status") == "refused");
}

TEST_CASE("compare files: --list, --help and --version, with the commit that results name") {
  Compare const sh;
  sh.passes("compare --list", R"(
      sharding zs3, precision bf16
      45 recipes)");
  sh.passes("compare --help", "Matrix\nOptimizer\nOutput\n--offloads\nExamples:\n130 and 143");
  std::string const version =
      sh.passes("compare --version", R"(^compare \(tessera [0-9]+\.[0-9]+\.[0-9]+(, git [0-9a-f]+)?\)\n$)");
  Json const hash = field(sh.document(row_to_file + "--stages 0"), "environment", "git_hash");
  if (!hash.is_null() && hash != "") CHECK(has(version, ", git " + hash.get<std::string>() + ")"));
}
