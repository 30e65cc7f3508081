// SPDX-License-Identifier: Apache-2.0
// Tests how the programs `plan` and `compare` predict the time of a training step from the times of a machine
// (how long each operation needs). Also tests the recipes that `plan` picks by these predictions.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "programs/harness.hpp"

using test::field, test::Json, test::Shell;

namespace {

std::string const tiny = "--model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --ranks 2 ";
std::string const tiny_matrix = tiny + "--stages 0,1,2,3 --precisions fp32 --offloads none,cpu_full ";

/// Runs commands in a folder with files of machine times for an artificial machine. On this machine, a
/// floating-point operation needs 1 ns (100 ns in AdamW), one byte of an all-gather needs 1 us, and one byte
/// of a copy needs 1 ns.
struct PaperMachine : Shell {
  PaperMachine() {
    Json times = Json::parse(
        R"({"format": "tessera machine times", "version": 1, "device": "cpu", "machine": "on paper",
      "environment": {}, "timings": [
      {"what": "work", "move": false, "flops": 1e9, "bytes": 0, "seconds": 1},
      {"what": "adamw", "move": false, "flops": 1e9, "bytes": 0, "seconds": 100},
      {"what": "copy upload", "move": true, "flops": 0, "bytes": 1e6, "seconds": 0.001},
      {"what": "copy download", "move": true, "flops": 0, "bytes": 1e6, "seconds": 0.001},
      {"what": "all_gather", "move": true, "flops": 0, "bytes": 1e6, "seconds": 1}]})");
    for (Json& timing : times["timings"])
      timing.update({{"precision", "fp32"}, {"ranks", 2}, {"attention_flops", 0}, {"operations", 0}});
    write("paper.json", times.dump());
    times["version"] = 2;
    write("newer.json", times.dump());
    times.update({{"version", 1}, {"device", "cuda"}});
    write("gpu.json", times.dump());
    write("text.txt", std::string(10000, 'x'));
  }
};

}  // namespace

TEST_CASE("prediction: plan and compare predict the same steps, and plan picks the fastest") {
  PaperMachine const sh;
  sh.passes(
      "plan --machine paper.json --prefer speed --memory 8GiB --no-search --json plan.json " + tiny_matrix,
      R"(
      pick for .*: zs2_fp32_ranks2_bs2_sl16_offcpufull, .* tok/s predicted, error possibly above \+-15% .* tok/s per GiB of a rank's memory\n  reason: the simplest row within 10% of the highest predicted speed\n
      \n  a published rule of thumb picks zs0_fp32_ranks2_bs2_sl16 \([0-9,]+ tok/s predicted, .+ of memory a rank\): 'if speed is critical, take the lowest stage that fits'\n)");
  sh.passes(
      "compare --machine paper.json --data text.txt --steps 2 --warmup 0 --json measured.json " + tiny_matrix,
      R"(\npredicted: 8 rows, off by [0-9.]+% \(median\) and [0-9.]+% at the most\n)");
  Json const plan = sh.json("plan.json");
  Json const measured = sh.json("measured.json");
  CHECK(field(plan, "environment", "machine_source") == "measured on on paper");
  CHECK(field(measured, "environment", "machine_source") == "measured on on paper");
  for (std::size_t i = 0; i < 8; ++i) {
    for (char const* key : {"predicted_step_time_s", "predicted_tokens_per_sec", "predicted_guessed_pct"}) {
      CHECK(field(plan, "rows", i, key).is_number());
      CHECK(field(plan, "rows", i, key) == field(measured, "rows", i, key));
    }
    CHECK(field(measured, "rows", i, "prediction_error_pct").is_number());
  }
  double const seconds = field(plan, "rows", 0, "predicted_step_time_s");
  double const rate = field(plan, "rows", 0, "predicted_tokens_per_sec");
  CHECK(rate * seconds == doctest::Approx(64));  // the tokens of a step
}

TEST_CASE(
    "prediction: each row has the ratio of its time to the smallest one with the same model and sizes") {
  PaperMachine const sh;
  std::string const flags =
      "plan --memory 8GiB --no-search --json plan.json --batch 2,4 --ranks 2 "
      "--model layers=2,heads=2,channels=32 --sequence 16 --stages 0,1,3 --precisions "
      "fp32 --offloads none,cpu_full,nvme --nvme-path . ";
  std::string const out =
      sh.passes("COLUMNS=300 " + flags + "--machine paper.json", R"(ms/step +slower +tok/s)");
  Json const rows = sh.json("plan.json").at("rows");
  std::map<Json, double> fastest;
  for (Json const& row : rows)
    if (Json const& step = row.at("predicted_step_time_s"); step.is_number())
      fastest[row.at("batch")] =
          std::min(fastest.try_emplace(row.at("batch"), 1e9).first->second, step.get<double>());
  REQUIRE(fastest.size() == 2);
  int slower = 0;
  for (Json const& row : rows) {
    Json const& ratio = row.at("predicted_slower");
    CHECK(ratio.is_null() == row.at("predicted_step_time_s").is_null());
    if (ratio.is_null()) continue;
    CHECK(ratio.get<double>() ==
          doctest::Approx(row.at("predicted_step_time_s").get<double>() / fastest.at(row.at("batch"))));
    slower += ratio > 1.1;
  }
  CHECK(slower > 0);
  CHECK(test::matches(out, R"( x1\.00 )").size() >= 2);
  // Rows with the same program as another row have its ratio.
  sh.passes(
      "plan --machine l4 --gpus 1 --model gpt2 --precisions bf16 --offloads none --no-search --json "
      "one.json");
  Json const one = sh.json("one.json").at("rows");
  CHECK(one.size() == 5);
  for (Json const& row : one) CHECK(row.at("predicted_slower") == 1.0);
  // Tables that differ in a policy have one smallest time.
  sh.passes(flags + "--machine paper.json --recompute none,block --batch 2");
  double least = 1e9;
  int fastest_rows = 0;
  Json const both = sh.json("plan.json").at("rows");
  for (Json const& row : both)
    if (Json const& ratio = row.at("predicted_slower"); ratio.is_number()) {
      least = std::min(least, row.at("predicted_step_time_s").get<double>() / ratio.get<double>());
      CHECK(row.at("predicted_step_time_s").get<double>() / ratio.get<double>() == doctest::Approx(least));
      fastest_rows += ratio == 1.0;
    }
  CHECK(fastest_rows == 1);
  CHECK_FALSE(test::has(sh.passes("COLUMNS=300 " + flags), "slower"));
  CHECK(field(sh.json("plan.json"), "rows", 0, "predicted_slower").is_null());
}

TEST_CASE("prediction: without --prefer the pick offloads least, then recomputes least, then shards least") {
  Shell const sh;
  std::string const llama =
      "plan --model llama-2-7b --gpus 4 --device cuda --memory 80GB --sequence 4096 --batch 4 --precisions "
      "bf16 --no-search --stages 0,1,2,3 ";
  // Each list is the list of the line before without the offload that was picked there.
  for (auto const& row : test::table(R"(
      none,nvme,infinity,nvme_optimizer,nvme_parameters,cpu_full,cpu_optimizer | zs3_bf16_gpus4_bs4_sl4096_offcpu,
      nvme,infinity,nvme_optimizer,nvme_parameters,cpu_full | zs3_bf16_gpus4_bs4_sl4096_offcpufull,
      nvme,infinity,nvme_optimizer,nvme_parameters | zs[0-3]_bf16_gpus4_bs4_sl4096_offnvme_parameters,
      nvme,infinity,nvme_optimizer | zs[0-3]_bf16_gpus4_bs4_sl4096_offnvmeopt,
      nvme,infinity | zs3_bf16_gpus4_bs4_sl4096_offinfinity,
      nvme | zs3_bf16_gpus4_bs4_sl4096_offnvme,)"))
    sh.passes(llama + "--offloads " + row[0], "pick for .*: " + row[1]);
  sh.passes(llama + "--host-memory 256GB --offloads none,cpu_optimizer,cpu_full,nvme",
            "pick for .*: zs3_bf16_gpus4_bs4_sl4096_offcpu,");
  std::string const small =
      "plan --model gpt2 --gpus 2 --device cuda --memory 80GB --sequence 128 --precisions bf16 --no-search ";
  sh.passes(small + "--stages dp,3 --recompute block,none --offloads cpu_optimizer,none",
            "pick for .*: zs3_bf16_gpus2_bs4_sl128_recompute-none,");
  sh.passes(small + "--stages dp,3 --recompute block --offloads cpu_optimizer,none",
            "pick for .*: zs3_bf16_gpus2_bs4_sl128 with recompute block,");
}

TEST_CASE("prediction: among rows with the same offload, the pick shards the offloaded state between ranks") {
  Shell const sh;
  auto const picked = [&](std::string const& offload, std::string const& ranks) {
    sh.passes(
        "plan --model gpt2 --device cuda --memory 80GB --sequence 128 --precisions bf16 --no-search "
        "--stages dp,0,1,2,3 --json plan.json --offloads " +
        offload + " --ranks " + ranks);
    std::pair<std::string, double> pick;
    double most = 0;
    Json const rows = sh.json("plan.json").at("rows");
    for (Json const& row : rows) {
      double const host = row.at("planned_host_mem_mb");
      most = std::max(most, host);
      if (row.at("picked") == true) pick = {row.at("sharding").get<std::string>(), host};
    }
    pick.second /= most;
    return pick;
  };
  auto const [optimizer, optimizer_share] = picked("cpu_optimizer", "4");
  CHECK(optimizer == "zs1");
  CHECK(optimizer_share < 0.35);
  auto const [full, full_share] = picked("cpu_full", "4");
  CHECK(full == "zs3");
  CHECK(full_share < 0.35);
  CHECK(picked("cpu_full", "1").first == "zs0");  // one rank holds each kind of state once at every stage
}

TEST_CASE("prediction: without times of the machine nothing is predicted, and --prefer memory needs none") {
  PaperMachine const sh;
  std::string const out = sh.passes(
      "plan --model gpt2 --sequence 128 --ranks 2 --stages 0,1,2,3 --precisions fp32 --offloads "
      "none,cpu_full "
      "--device cuda --prefer memory --memory 80GiB --no-search --json plan.json",
      R"(
      pick for .*: zs3_fp32_gpus2_bs4_sl128_offcpufull, .*host memory
      \n  reason: no row that fits needs less memory a rank\n  a published rule of thumb picks the same row: 'if memory is critical, take ZeRO-3 with offload'\n)");
  CHECK_FALSE(test::has(out, "predicted"));
  CHECK(field(sh.json("plan.json"), "rows", 0, "predicted_tokens_per_sec").is_null());
  sh.passes("plan --prefer efficiency --machine paper.json --memory 8GiB --no-search " + tiny_matrix,
            R"(pick for .* tok/s predicted, .* tok/s per GiB of a rank's memory\n)");
}

TEST_CASE(
    "prediction: what the times of the machine do not cover is not predicted, and the reason is printed "
    "once") {
  PaperMachine const sh;
  sh.passes(
      "plan --stages 0 --precisions fp32 --offloads none,nvme --machine paper.json --nvme-path . --no-search "
      "--json plan.json " +
      tiny);
  Json const nvme = field(sh.json("plan.json"), "rows", 1);
  CHECK(nvme.at("predicted_step_time_s").is_null());
  CHECK(nvme.at("prediction_reason") == "the machine's file has no times of 'copy disk'");
  sh.passes(
      "plan --stages 0,1 --precisions bf16 --offloads none --prefer speed --machine paper.json --no-search " +
          tiny,
      R"(
      \nnot predicted: zs0_bf16_ranks2_bs2_sl16 and 1 more row: the machine's file has no times of '[^']+' in bf16\n
      \npick for .*bf16.*: zs0_.*\n  no recipe that fits has a predicted time: the machine's file has no times of '[^']+' in bf16; so the pick is the simplest recipe, whose speed is not known; to get times, run info --measure FILE --device cpu --precisions bf16 --ranks 2 on such a machine, then plan --machine FILE\n
      \ntimes: paper\.json, measured on on paper\n)");
}

TEST_CASE("prediction: --prefer speed without times, and files without times for this plan, are refused") {
  PaperMachine const sh;
  sh.passes("mkfifo pipe");
  sh.refuses("plan " + tiny_matrix, R"(
      2 | --prefer speed | --prefer speed compares predicted speeds | --machine FILE
      2 | --prefer sped | the nearest is 'speed'
      3 | --machine gpu.json --device cpu | has times of device cuda, but --device is cpu
      4 | --machine newer.json | newer.json: has version 2
      4 | --machine text.txt | text.txt: is not a file of machine times
      2 | --machine absent.json | no machine is called 'absent.json', and no file has this name
      2 | --machine pipe | no machine is called 'pipe', and no file has this name)");
}

TEST_CASE(
    "prediction: report of a plan with the times of a machine shows its predicted rates and step times") {
  Shell const sh;
  std::string const plan =
      "plan --device cuda --memory 24GB --model gpt2 --ranks 1 --precisions bf16 --stages 0 --offloads none "
      "--no-search --json plan.json";
  sh.passes(plan + " --machine l4 && report plan.json --markdown page.md");
  Json const document = sh.json("plan.json");
  Json const& row = document.at("rows").at(0);
  std::string const page = test::replaced(sh.text("page.md"), ",", "");
  CHECK(test::has(page, "| predicted tokens/s | predicted step ms | predicted slower | status |"));
  char figures[80];
  std::snprintf(figures, sizeof figures, "| %.0f | %.1f |", row.at("predicted_tokens_per_sec").get<double>(),
                1e3 * row.at("predicted_step_time_s").get<double>());
  CHECK_MESSAGE(test::has(page, figures), figures);
  // A table has these columns if the file has their fields: --samples gives the time of an epoch.
  sh.passes(plan +
            " --recompute none,block --machine l4 --samples 1001 && report plan.json --markdown page.md "
            "--csv all.csv");
  Json const both = sh.json("plan.json").at("rows");
  std::string const wide = test::replaced(sh.text("page.md"), ",", "");
  CHECK(test::has(wide, " predicted step ms | predicted slower | predicted epoch s | status |"));
  CHECK(test::has(wide, "Predicted slower is the predicted time of a step divided by the smallest one"));
  REQUIRE(both.size() == 2);
  CHECK(both.at(1).at("predicted_slower") > 1.1);
  for (Json const& one : both) {
    std::snprintf(figures, sizeof figures, " | %.2f | %.2f | ", one.at("predicted_slower").get<double>(),
                  one.at("predicted_epoch_time_s").get<double>());
    CHECK_MESSAGE(test::has(wide, figures), figures);
  }
  CHECK(test::has(sh.text("all.csv"), ",predicted_slower,predicted_epoch_time_s,"));
  sh.passes(plan + " && report plan.json --markdown page.md");
  CHECK_FALSE(test::has(sh.text("page.md"), "predicted"));
}
