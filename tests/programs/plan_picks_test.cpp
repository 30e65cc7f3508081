// SPDX-License-Identifier: Apache-2.0
// Tests the lines that the program `plan` prints around its pick: why a row is picked, the command that
// trains it, other batches, the expected error of predictions, and notes. Also tests plans for several hosts.
#include <algorithm>
#include <cmath>

#include "programs/harness.hpp"

using test::Json, test::Shell;

namespace {

std::string const gpt2_on_l4 =
    "plan --machine l4 --model gpt2 --ranks 1 --precisions bf16 --stages 0 --sequence 128 --offloads none ";

/// Returns the rows of the file plan.json.
Json rows_of(Shell const& sh) { return sh.json("plan.json").at("rows"); }

/// Returns the row of plan.json that is the pick.
Json picked(Shell const& sh) {
  for (Json const& row : rows_of(sh))
    if (row.at("picked") == true) return row;
  return Json();
}

/// Returns the one line of `out` that matches `expression`, without the part that the expression matches.
std::string rest_of_line(std::string const& out, std::string const& expression) {
  auto const lines = test::matches(out, "\n" + expression + "[^\n]*");
  REQUIRE(lines.size() == 1);
  return test::replaced(lines.front(), "\n" + expression, "");
}

}  // namespace

TEST_CASE(
    "plan picks: a pick that is predicted to be slower says which row is faster, and why it is picked") {
  Shell const sh;
  // Without overlap of AdamW and with more work for each rank, zs0 is slightly slower than zs1.
  std::string const out = sh.passes(
      "plan --machine h100-nvl --model gpt2-xl --ranks 4 --batch 8 --sequence 512 --precisions bf16 "
      "--offloads none --stages 0,1 --prefer speed --no-search --json plan.json");
  Json const rows = rows_of(sh);
  double const slow = rows.at(0).at("predicted_step_time_s"), fast = rows.at(1).at("predicted_step_time_s");
  REQUIRE(fast < slow);
  REQUIRE(fast > 0.9 * slow);
  CHECK(picked(sh).at("sharding") == "zs0");
  char percent[16];
  std::snprintf(percent, sizeof percent, "%.1f", 100.0 * (1.0 - fast / slow));
  CHECK(test::has(out, "\n  zs1_bf16_gpus4_bs8_sl512 is predicted to need " + std::string(percent) +
                           "% less time; predictions within 10% of the best one count as equal, so the "
                           "simplest of these recipes is picked\n"));
  CHECK_FALSE(test::has(sh.passes(gpt2_on_l4 + "--prefer speed --no-search"), "count as equal, so"));
  std::string const help = test::replaced(sh.passes("plan --help"), R"(\s+)", " ");
  CHECK(test::has(
      help,
      "Only for the pick of --prefer speed and efficiency, rows whose predictions are within 10% of "
      "the best one count as equal, and the simplest of them is picked."));
}

TEST_CASE("plan picks: the pick names its batch, and a way out without offload is compared with the pick") {
  Shell const sh;
  std::string const out = sh.passes(
      "plan --machine l4 --model gpt2-large --ranks 1 --sequence 1024 --batch 12 --precisions bf16 "
      "--offloads none,cpu_optimizer --prefer speed --no-search --json plan.json",
      R"(
      \npick for gpt2-large, bf16, 1 rank, sequence 1024, at --batch 12: zs0_[^ ]*_offcpu,
      \n  recomputation fits without offload: --recompute (gelu|block) \([0-9.]+ ms a step predicted, [0-9]+% less\)\n
      \n  a smaller batch fits without offload: --batch 4 --accumulation 3 \([0-9.]+ ms a step predicted, [0-9]+% less\)\n)");
  double const now = picked(sh).at("predicted_step_time_s");
  std::string const recompute =
      test::replaced(test::matches(out, "--recompute [a-z]+ [(]").at(0), " [(]", "");
  for (std::string const& flags : {recompute + " --batch 12", std::string("--batch 4 --accumulation 3")}) {
    sh.passes(
        "plan --machine l4 --model gpt2-large --ranks 1 --sequence 1024 --precisions bf16 --offloads none "
        "--no-search --json plan.json " +
        flags);
    double const then = picked(sh).at("predicted_step_time_s");
    char text[64];
    std::snprintf(text, sizeof text, "(%.1f ms a step predicted, %.0f%% less)", then * 1e3,
                  100.0 * (1.0 - then / now));
    CHECK_MESSAGE(test::has(out, text), text);
  }
  // A difference within the band is not called a difference: the host of the H200 updates fast.
  sh.passes(
      "plan --machine h200 --model gpt2-large --ranks 1 --sequence 1024 --memory 24GB --batch 12 "
      "--precisions "
      "bf16 --offloads none,cpu_optimizer --no-search",
      R"(\n  recomputation fits without offload: --recompute (gelu|block) \([0-9.]+ ms a step predicted, (equal within 10%|[1-9][0-9]+% (less|more))\)\n)");
}

TEST_CASE("plan picks: with several batches a line names the fastest, and with one batch a faster one") {
  Shell const sh;
  std::string const all = sh.passes(gpt2_on_l4 + "--batch 1,4,16 --no-search --json plan.json");
  double most = 0;
  int best = 0;
  for (Json const& row : rows_of(sh))
    if (row.at("predicted_tokens_per_sec") > most) {
      most = row.at("predicted_tokens_per_sec");
      best = row.at("batch");
    }
  CHECK(best == 16);
  test::shows(
      all,
      R"(\nfastest of the batches 1, 4, 16 for gpt2, bf16, sequence 128: --batch 16 with zs0_bf16_gpus1_bs16_sl128, )");
  std::string const one = sh.passes(gpt2_on_l4 + "--batch 1 --memory 6GB --json plan.json --search-time 60");
  int const largest = rows_of(sh).at(0).at("largest_batch");
  test::shows(one, R"(\n  --batch [0-9]+ is predicted to be the fastest of the batches 1, 2, 4, .*)" +
                       std::to_string(largest) +
                       R"(: [0-9,]+ tok/s, ([0-9]+% more than|[0-9.]+ times the rate of) the pick\n)");
  // The hinted batch fits and has this rate.
  std::string const batch =
      test::replaced(test::matches(one, R"(--batch [0-9]+ is predicted)").at(0), " is predicted", "");
  sh.passes(gpt2_on_l4 + "--memory 6GB --no-search --json plan.json " + batch);
  std::string rate = test::matches(one, R"(: [0-9,]+ tok/s, [0-9.]+(%| times))").at(0);
  rate = test::replaced(test::replaced(rate, R"(: ([0-9,]+) tok/s.*)", "$1"), ",", "");
  CHECK(std::stod(rate) ==
        doctest::Approx(picked(sh).at("predicted_tokens_per_sec").get<double>()).epsilon(1e-4));
  sh.passes(gpt2_on_l4 + "--batch 256 --json plan.json --search-time 60",
            R"(\n  none of the batches 1, 2, .* is predicted to be faster by more than 10%\n)");
}

TEST_CASE("plan picks: a batch is proposed up to 64 times that of the pick, and no larger than an epoch") {
  Shell const sh;
  std::string const plan =
      "plan --machine l4 --model layers=2,heads=2,channels=64 --ranks 1 --precisions bf16 --stages 0 "
      "--sequence 128 --offloads none --search-time 60 ";
  auto const line = [&](std::string const& flags, std::string const& tried, std::string const& more) {
    std::string const out = sh.passes(plan + flags);
    test::shows(out, R"(\n  --batch [0-9]+ is predicted to be the fastest of the batches )" + tried +
                         ": [0-9,]+ tok/s, " + more + " the pick\n");
  };
  line("--batch 1", "1, 2, 4, 8, 16, 32, 64", "[0-9.]+ times the rate of");
  line("--batch 3", "1, 2, 4, 8, 16, 32, 64, 128", "[0-9.]+ times the rate of");
  line("--batch 4 --samples 40 --accumulation 2", "1, 2, 4, 8, 16",
       "[0-9.]+(% more than| times the rate of)");
  CHECK(test::has(sh.passes(plan + "--batch 4 --samples 7"),
                  "\n  none of the batches 1, 2, 4 is predicted to be faster by more than 10%\n"));
}

TEST_CASE("plan picks: text that is counted in bytes for a model with a large vocabulary gives a note") {
  Shell const sh;
  sh.write("text.txt", std::string(20000, 'x'));
  std::string const note = "note: without --tokenizer each byte of the text is a token. The vocabulary of ";
  std::string const counted = gpt2_on_l4 + "--no-search --data text.txt ";
  std::string const out = sh.passes(counted);
  CHECK(test::has(out, note + "gpt2 has 50,257 tokens"));
  CHECK(test::matches(out, note).size() == 1);
  CHECK_FALSE(
      test::has(sh.passes(counted + R"(--tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2)"), note));
  CHECK_FALSE(test::has(sh.passes("plan --model layers=1,heads=1,channels=16 --sequence 16 --stages 0 "
                                  "--offloads none --precisions fp32 --ranks 1 --no-search --data text.txt"),
                        note));
}

TEST_CASE("plan picks: each predicted rate and time of an epoch has its expected error") {
  Shell const sh;
  auto const shows_error = [&](std::string const& flags, std::string const& error) {
    std::string const out = sh.passes(
        "plan --model gpt2 --precisions bf16 --stages 0 --offloads none --no-search --json plan.json "
        "--samples 100000 " +
        flags);
    CHECK(rows_of(sh).at(0).at("predicted_error_pct") == std::stod(error));
    CHECK(test::has(out, " tok/s predicted, +-" + error + "%"));
    test::shows(out, R"(steps, [0-9:.]+ (s|min|h) predicted, \+-)" + error + "%\n");
  };
  shows_error("--machine h200 --gpus 1", "15");            // measured
  shows_error("--machine l4 --gpus 1", "30");              // computed
  shows_error("--machine l4 --gpus 4", "50");              // its link
  shows_error("--machine h200 --gpus 4", "20");            // its measured link
  shows_error("--machine h200 --gpus 8 --hosts 2", "50");  // its network
  std::string const plan =
      "plan --model gpt2 --precisions bf16 --gpus 4 --machine h200 --no-search --offloads none ";
  std::string const slower =
      "\nslower: the predicted time divided by the smallest one of all rows with the same model, precision, "
      "ranks, batch and sequence";
  CHECK(test::has(sh.passes(plan), slower + "\n"));
  for (std::string const by : {"speed", "efficiency"})
    CHECK(test::has(sh.passes(plan + "--prefer " + by),
                    slower + "; only --prefer " + by + " counts rows within 10% of the best one as equal\n"));
}

TEST_CASE("plan picks: headings and picks name the policies that a flag asked for") {
  Shell const sh;
  std::string const small =
      "plan --model gpt2 --device cuda --memory 80GB --precisions bf16 --stages 0 "
      "--offloads none --ranks 1 --no-search ";
  std::string const both = sh.passes(small + "--capture graph,eager --json plan.json", R"(
      , global batch 4, capture graph\n
      , global batch 4, capture eager\n
      \npick for .*: zs0_bf16_gpus1_bs4_sl128 with capture graph,
      \nnote: --capture changes neither the planned bytes nor the predicted times)");
  Json const rows = rows_of(sh);
  REQUIRE(rows.size() >= 2);
  CHECK(rows.front().at("bytes") == rows.back().at("bytes"));
  CHECK_FALSE(test::has(sh.passes(small + "--capture graph"), "capture"));
  sh.passes(small + "--recompute block", R"(\npick for .*: zs0_bf16_gpus1_bs4_sl128 with recompute block,)");
  CHECK_FALSE(test::has(sh.passes(small + "--recompute none,block"), "recompute-block with recompute"));
}

TEST_CASE("plan picks: rows without a prediction are counted, and rows that are not printed are not named") {
  Shell const sh;
  std::string const out = sh.passes(
      "plan --machine h200 --gpus 1 --model gpt2 --precisions bf16 --no-search --offloads "
      "none,nvme_optimizer,nvme,infinity",
      R"(\nnot predicted: zs0_bf16_gpus1_bs4_sl128_offnvmeopt and 2 more rows: the machine's file has no times)");
  CHECK(test::matches(out, "\nnot predicted: ").size() == 1);
  std::string const measure =
      "\nto get the missing times, run info --measure FILE --device cuda --precisions bf16 ";
  CHECK(
      test::has(out, measure + "--ranks 1 --nvme-path FOLDER on such a machine, then plan --machine FILE\n"));
  std::string const plan =
      "plan --machine h200 --model gpt2 --precisions bf16 --no-search --brief --stages 0 ";
  std::string const several = sh.passes(plan + "--gpus 1,2 --offloads none,nvme --prefer speed");
  CHECK(test::has(several, measure + "--ranks 1,2 --nvme-path FOLDER on"));
  CHECK(test::matches(several, "info --measure").size() == 1);
  CHECK(test::has(
      sh.passes(test::replaced(plan, "h200", "h100-sxm") + "--gpus 16 --hosts 2 --offloads none,nvme"),
      measure + "--ranks 8 --nvme-path FOLDER on"));
  std::string const none = sh.passes(plan + "--gpus 1 --offloads nvme --prefer speed");
  CHECK(test::has(
      none, "; to get times, run info --measure FILE --device cuda --precisions bf16 --ranks 1 --nvme"));
  CHECK(test::matches(none, "info --measure").size() == 1);
  CHECK_FALSE(test::has(sh.passes(plan + "--gpus 1 --offloads none"), "info --measure"));
  CHECK_FALSE(test::has(out, "dp_"));
}

TEST_CASE("plan picks: the printed command trains the pick with the planned bytes") {
  Shell const sh;
  sh.write("text.txt", std::string(4000, 'x'));
  std::string const model =
      "--model layers=2,heads=2,channels=32 --sequence 16 --device cpu --memory 8GiB "
      "--no-search --json plan.json ";
  for (std::string const flags :
       {"--batch 2 --ranks 2 --stages 3 --precisions bf16 --offloads cpu_full --accumulation 2 --data "
        "text.txt",
        "--batch 3 --ranks 1 --stages 0 --precisions fp32 --offloads none --recompute block --vocabulary 300 "
        "--data text.txt --epochs 1",
        "--batch 2 --ranks 4 --stages 2 --precisions bf16 --offloads cpu_optimizer --mesh replicate=2 --data "
        "text.txt --lora rank=2,alpha=4,targets=c_attn",
        "--batch 2 --ranks 2 --stages 1 --precisions fp32 --offloads none --freeze 'h[.]0[.]' --data "
        "text.txt "
        "--samples-are lines --samples 1 --checkpoint-async"}) {
    CAPTURE(flags);
    std::string const command = rest_of_line(sh.passes("plan " + model + flags), "  to train it: ");
    sh.passes(command + " --log run.jsonl");
    Json const planned = picked(sh).at("bytes");
    Json const run = Json::parse(test::matches(sh.text("run.jsonl"), R"(^\{.*\})").at(0)).at("planned_bytes");
    for (auto const& [place, bytes] : run.items()) CHECK(planned.at(place).at("total") == bytes);
    CHECK(run.at("device") > 0);
  }
  sh.ends(4, "train --from plan.json --best 2>&1",
          "plan.json: holds plans, which did not run; .* run the train command that plan prints below it");
}

TEST_CASE("plan picks: the printed command trains the epochs that plan counts") {
  Shell const sh;
  sh.write("text.txt", std::string(4000, 'x'));
  std::string const plan =
      "plan --model layers=1,heads=1,channels=16 --sequence 16 --batch 4 --ranks 1 --device cpu --stages 0 "
      "--precisions fp32 --offloads none --memory 8GiB --no-search --json plan.json ";
  std::string const note = "\n  replace YOUR_TEXT by the files or folders of your text, or by a token file\n";
  auto const command_of = [&](std::string const& flags, bool has_data) {
    CAPTURE(flags);
    std::string const out = sh.passes(plan + flags);
    CHECK(test::has(out, note) == !has_data);
    return rest_of_line(out, "  to train it: ");
  };
  struct Case {
    char const *flags, *end, *data;
    int epochs, steps;
  };
  for (Case const& one :
       {Case{"--data text.txt", "--data text.txt --epochs 1", "text.txt", 1, 63},
        Case{"--data text.txt --epochs 2", "--data text.txt --epochs 2", "text.txt", 2, 63},
        Case{"--data text.txt --order sequential --lr 0.00025",
             "--data text.txt --epochs 1 --order sequential --learning-rate 0.00025", "text.txt", 1, 63},
        Case{"--data text.txt --samples 10 --brief", "--data text.txt --samples 10 --epochs 1", "text.txt", 1,
             3},
        Case{"--data text.txt --samples 10 --epochs 3", "--data text.txt --samples 10 --epochs 3", "text.txt",
             3, 3},
        Case{"--samples 10", "--data YOUR_TEXT --samples 10 --epochs 1", "", 1, 3},
        Case{"--samples 10 --epochs 2 --prefer memory", "--data YOUR_TEXT --samples 10 --epochs 2", "", 2, 3},
        Case{"--samples 10 --samples-are lines",
             "--data YOUR_TEXT --samples-are lines --samples 10 --epochs 1", "", 1, 3}}) {
    CAPTURE(one.flags);
    bool const has_data = one.data[0] != 0;
    std::string const command = command_of(one.flags, has_data);
    CHECK_MESSAGE(command.ends_with(" " + std::string(one.end)), command);
    Json const row = picked(sh);
    CHECK(row.at("epoch_steps") == one.steps);
    if (!has_data) {
      sh.refuses(command, "4 |  | YOUR_TEXT");
      continue;
    }
    sh.passes(command + " --log run.jsonl");
    CHECK(sh.json_lines("run.jsonl").back().at("summary").at("steps_done") == one.epochs * one.steps);
  }
  CHECK(command_of("--epochs 2", false).ends_with(" --data YOUR_TEXT --epochs 2"));
  std::string const plain = command_of("", true);
  CHECK_FALSE(test::has(plain, "--data"));
  CHECK_FALSE(test::has(plain, "--epochs"));
  CHECK_FALSE(test::has(plain, "--learning-rate"));
  CHECK_FALSE(test::has(plain, "--order"));
}

TEST_CASE("plan picks: ranks on several hosts use the network, and each host has the limits of one host") {
  Shell const sh;
  std::string const llama =
      "plan --model llama-2-7b --precisions bf16 --batch 2 --sequence 1024 --stages 3 "
      "--offloads none --no-search --json plan.json --gpus 8 --machine ";
  auto const seconds = [&](std::string const& flags) -> double {
    sh.passes(llama + flags);
    return rows_of(sh).at(0).at("predicted_step_time_s");
  };
  CHECK(test::has(sh.passes(llama + "h100-sxm"),
                  "\nhosts: 1, with 8 GPUs per host; --hosts N divides the ranks over N hosts\n"));
  CHECK(test::has(
      sh.passes(llama + "h100-sxm --hosts 2"),
      "\nhosts: 2, with 4 GPUs per host; network: InfiniBand with 400 Gb/s for each GPU, computed from "
      "the NVIDIA DGX H100 Datasheet, expected error 50%\n"));
  CHECK(seconds("h100-sxm --hosts 2") >= seconds("h100-sxm"));
  Json slow =
      Json::parse(test::read(std::filesystem::path(TESSERA_SOURCE) / "examples/machines/h100-sxm.json"));
  slow["network"]["bytes_per_s"] = 1e9;
  sh.write("slow.json", slow.dump());
  CHECK(seconds("./slow.json --hosts 2") > 2 * seconds("h100-sxm --hosts 2"));
  CHECK(seconds("./slow.json") == seconds("h100-sxm"));
  // The groups of a mesh whose shards are on one host use the network for the sums over replicas only.
  CHECK(seconds("./slow.json --hosts 2 --mesh replicate=2") < seconds("./slow.json --hosts 2"));
  std::string const none = sh.passes(llama + "l4 --hosts 2 --recompute block");
  CHECK(
      test::has(none, ": the machine's file has no network between hosts; add \"network\": {\"link\": NAME"));
  CHECK(rows_of(sh).at(0).at("predicted_step_time_s").is_null());
  sh.passes(llama + "h100-sxm --gpus 16 --hosts 2");
  CHECK(rows_of(sh).at(0).at("predicted_step_time_s") > 0);
  std::string const both = sh.passes(
      llama + "h100-sxm --hosts 2 --prefer speed --samples 10 --checkpoint-async",
      R"(\n  replace I by the number of the host, from 0 to 1; HOST by the name of host 0; YOUR_TEXT by the files)");
  std::string const recipe = " --precision bf16 --offload none",
                    data = " --data YOUR_TEXT --samples 10 --epochs 1";
  std::string const shape = " --model llama-2-7b --batch 2 --sequence 1024";
  CHECK(rest_of_line(both, "  on each host: ") ==
        "torchrun --nnodes 2 --nproc-per-node 4 --node-rank I --master-addr HOST --no-python -- train" +
            shape + " --device cuda --stage zs3" + recipe + data +
            " --checkpoint checkpoints --checkpoint-async");
  std::string const slurm = rest_of_line(both, "  or once for all hosts, under SLURM: ");
  CHECK(slurm == "examples/slurm/train.sh --gpus 8 --per-node 4 --strategy zs3 --" + shape + recipe + data +
                     " --checkpoint-async");
  CHECK(sh.run("\"$TESSERA_SOURCE\"/" + test::replaced(slurm, " -- ", " --dry-run -- ")).code == 0);
  // The state of eight ranks needs more host memory than one host has, and less than two hosts have.
  std::string const offload =
      "plan --model gpt2-large --device cuda --memory 80GB --precisions bf16 --stages 0 "
      "--offloads cpu_optimizer --no-search --gpus 8 --host-memory 40GiB ";
  sh.ends(5, offload);
  sh.passes(offload + "--hosts 2", "40.00 GiB of host memory for all ranks of a host");
  Json bad = slow;
  bad["network"].erase("latency_s");
  sh.write("bad.json", bad.dump());
  sh.refuses(llama, R"(
      2 | h100-sxm --hosts 3 | --hosts 3 does not divide --ranks 8
      2 | h100-sxm --hosts 0 | --hosts
      4 | ./bad.json --hosts 2 | bad.json: network cannot be read (it has no 'latency_s'))");
}

TEST_CASE("plan picks: rows with offload name the host that the times assume, and its rates") {
  Shell const sh;
  std::string const flags = "plan --model gpt2 --ranks 1 --precisions bf16 --no-search --stages 0 --machine ";
  sh.passes(
      flags + "l4 --offloads none,cpu_optimizer",
      R"(\nhost: assumed 8 vCPUs for each GPU, as AWS g6\.2xlarge: .*, updates AdamW's state at 13\.6 GB/s, copies to a GPU at [0-9.]+ GB/s, copies back at [0-9.]+ GB/s; offload depends on these rates\n)");
  sh.passes(flags + "h200 --offloads cpu_optimizer", R"(\nhost: measured with 16 cores .* at 125\.0 GB/s)");
  CHECK_FALSE(test::has(sh.passes(flags + "l4 --offloads none"), "\nhost: "));
}

TEST_CASE("plan picks: gradients have 2 bytes a parameter where nothing is added up, and 4 otherwise") {
  Shell const sh;
  auto const bytes_each = [&](std::string const& flags) {
    sh.passes(
        "plan --model gpt2 --ranks 2 --device cuda --memory 80GB --precisions bf16 --no-search --json "
        "plan.json " +
        flags);
    Json const row = rows_of(sh).at(0);
    double all = 0;
    for (char const* place : {"device", "host"})
      all += row.at("bytes").at(place).at("gradients").get<double>();
    return std::lround(all / row.at("params").get<double>());
  };
  CHECK(bytes_each("--stages 0 --offloads none") == 2);
  CHECK(bytes_each("--stages 1 --offloads cpu_optimizer") == 2);
  CHECK(bytes_each("--stages 0 --offloads none --accumulation 2") == 4);
  CHECK(bytes_each("--stages 1 --offloads none --reduction ordered") == 4);
  CHECK(bytes_each("--stages dp --offloads none") == 4);
  CHECK(bytes_each("--stages 0 --offloads cpu_full") == 4);
  CHECK(bytes_each("--stages 2 --offloads none") == 2);  // half of 4 bytes on each of two ranks
  CHECK(bytes_each("--stages 3 --offloads none") == 2);
  std::string const help = test::replaced(sh.passes("plan --help"), R"(\s+)", " ");
  CHECK(bytes_each("--ranks 1 --stages zs3 --offloads none --reduction ordered") == 2);
  CHECK(bytes_each("--ranks 1 --stages dp --offloads none") == 2);
  CHECK(bytes_each("--ranks 1 --stages 0 --offloads none --accumulation 2") == 4);
  CHECK(bytes_each("--ranks 1 --stages 0 --offloads cpu_full") == 4);
  CHECK(test::has(help,
                  "on several ranks in dp, zs2, zs3 and with --reduction ordered. Otherwise they have 2."));
  CHECK(test::has(help, "[ordered; on cuda: fast]"));
  CHECK(test::has(help, "[eager; on cuda: graph]"));
}

TEST_CASE("plan picks: the pick has a reason, which names the comparisons that decided") {
  Shell const sh;
  std::string const plan = "plan --model gpt2 --device cuda --memory 80GB --precisions bf16 --no-search ";
  auto const shows = [&](std::string const& flags, std::string const& reason) {
    CAPTURE(flags);
    CHECK(test::has(sh.passes(plan + flags), "\n  reason: " + reason + "\n"));
  };
  shows("--ranks 2", "it fits without offload, and of such rows has the lowest stage");
  shows("--ranks 1", "it fits without offload");
  shows("--ranks 2 --stages 2 --offloads none --recompute none,block",
        "it fits without offload, and of such rows recomputes least");
  shows("--ranks 2 --stages 2 --offloads none", "the only row that fits");
  shows("--ranks 2 --offloads cpu_optimizer,cpu_full",
        "it offloads least of the rows that fit, and of such rows divides the offloaded state among the "
        "ranks, and of such rows has the lowest stage");
  shows("--ranks 2 --prefer memory", "no row that fits needs less memory a rank");
  shows("--ranks 2 --prefer efficiency --machine h200",
        "the simplest row within 10% of the highest predicted speed per GiB of memory");
}

TEST_CASE("plan picks: a prediction that is mostly guessed has no expected error") {
  Shell const sh;
  std::string const plan =
      "plan --machine h200 --ranks 1 --precisions bf16 --stages 0 --offloads none --no-search --sequence "
      "1024 "
      "--batch 1 --samples 1000 --json plan.json ";
  std::string const llama = sh.passes(plan + "--model llama-2-7b");
  CHECK(rows_of(sh).at(0).at("predicted_guessed_pct") > 50.0);
  CHECK(rows_of(sh).at(0).at("predicted_error_pct").is_null());
  test::shows(llama, R"(
      \npick .* tok/s predicted, error possibly above \+-15% \([0-9]+% of the step guessed\)
      \n  an epoch of .* predicted, error possibly above \+-15%\n)");
  CHECK_FALSE(test::has(sh.passes(plan + "--model gpt2"), "error possibly above"));
  CHECK(rows_of(sh).at(0).at("predicted_error_pct") == 15.0);
}

TEST_CASE(
    "plan picks: with --memory above the memory of the machine's GPU, the GPU is the limit everywhere") {
  Shell const sh;
  std::string const plan =
      "plan --machine l4 --model gpt2-large --ranks 1 --precisions bf16 --stages 0 --offloads none "
      "--sequence 1024 --batch 1 --search-time 60 --json plan.json ";
  std::string const limit = "limits: 22.49 GiB for each rank's device, the memory of NVIDIA L4";
  std::string const note = " (the 24.00 GiB of --memory are more than it has)";
  std::string const own = sh.passes(plan);
  CHECK(test::has(own, limit + ", 1.00 GiB of it for its libraries"));
  Json const before = rows_of(sh);
  std::string const given = sh.passes(plan + "--memory 24GB");
  CHECK(test::has(given, limit + note + ", 1.00 GiB of it for its libraries"));
  CHECK(rows_of(sh).at(0).at("largest_batch") == before.at(0).at("largest_batch"));
  CHECK(rows_of(sh).at(0).at("longest_sequence") == before.at(0).at("longest_sequence"));
  auto const batches = [](std::string const& out) { return test::matches(out, "of the batches [0-9, ]+"); };
  CHECK(batches(own).size() == 1);
  CHECK(batches(given) == batches(own));
  sh.ends(5, plan + "--memory 200GB --batch 40");
  CHECK(test::has(sh.passes(plan + "--memory 20GB"), "limits: 20.00 GiB for each rank's device, 1.00 GiB"));
}

TEST_CASE("plan picks: if nothing fits, the row that is printed is named, with recomputation that fits") {
  Shell const sh;
  std::string const plan =
      "plan --machine l4 --model gpt2-large --ranks 1 --sequence 1024 --batch 8 --precisions bf16 "
      "--offloads none --no-search ";
  CHECK(sh.run(plan).code == 5);
  std::string const out = sh.run(plan).out;
  test::shows(
      out,
      R"(\nnothing fits gpt2-large, .*: the row that exceeds a limit least is zs0_bf16_gpus1_bs8_sl1024, .*; it fits with --recompute (gelu|block), [0-9,]+ tok/s predicted, \+-30%)");
  CHECK_FALSE(test::has(out, "dp_"));
  std::string const flags = test::replaced(test::matches(out, "--recompute [a-z]+, ").at(0), ",", "");
  CHECK(sh.run(plan + flags).code == 0);
}

TEST_CASE("plan picks: --brief prints the lines around the rows, and the JSON has all rows") {
  Shell const sh;
  std::string const plan =
      "plan --model gpt2 --device cuda --memory 80GB --ranks 2 --no-search --json plan.json ";
  std::string const all = sh.passes(plan), brief = sh.passes(plan + "--brief");
  CHECK(test::matches(all, "\nzs[0-3] ").size() > 10);
  CHECK(test::matches(brief, "\n(dp|zs[0-3]|stage) ").empty());
  CHECK(test::matches(brief, "\npick for [^\n]*") == test::matches(all, "\npick for [^\n]*"));
  CHECK(std::count(brief.begin(), brief.end(), '\n') < 30);
  std::string const guessed =
      "plan --machine h200 --model llama-2-7b --ranks 4 --precisions bf16 --no-search ";
  CHECK(test::has(sh.passes(guessed), "\nslower: "));
  CHECK(test::has(sh.passes(guessed), "\n~ "));
  for (char const* legend : {"\nslower: ", "\n~ "})
    CHECK_FALSE(test::has(sh.passes(guessed + "--brief"), legend));
  CHECK(rows_of(sh).size() > 10);
}
