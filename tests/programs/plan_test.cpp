// SPDX-License-Identifier: Apache-2.0
// Tests the program `plan`, which computes the memory and the schedule of a training step without a training
// run. Its numbers must equal the numbers that the program `compare` measures. Also tests the recipes
// (combinations of policies) that `plan` picks, its search for the largest batch, and its output.
#include "programs/harness.hpp"

using test::field, test::Json, test::Shell;

namespace {

std::string const small = " --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 ";
std::string const one_row = " --ranks 1 --stages 0 --precisions fp32 --offloads none ";
std::string const whole_search = " --search-time 300 ";  // in seconds; enough on any machine

struct Plan : Shell {
  /// Runs the program `plan` and returns the rows of its JSON document. `plan` must succeed, and its printed
  /// text must match the regular expressions.
  Json rows(std::string const& flags, std::string const& expressions = "") const {
    passes("plan --json rows.json " + flags, expressions);
    return json("rows.json").at("rows");
  }

  /// Runs the program `plan` and returns its rows, as rows() does. Also runs `compare` with the same flags,
  /// and checks that it measures the planned memory in each row.
  Json rows_as_measured(std::string const& flags, std::string const& expressions = "") const {
    Json const planned = rows(flags + " --memory 8GiB", expressions);
    write("text.txt", std::string(10000, 'x'));
    passes("compare --data text.txt --steps 1 --warmup 0 --json measured.json " + flags);
    Json const measured = json("measured.json").at("rows");
    REQUIRE(planned.size() == measured.size());
    for (std::size_t i = 0; i < planned.size(); ++i) {
      INFO(planned[i]);
      for (char const* same : {"experiment", "schedule_hash", "trainable_params", "adapters"})
        CHECK(planned[i].at(same) == measured[i].at(same));
      CHECK(planned[i].at("planned_gpu_mem_mb") == measured[i].at("peak_gpu_mem_mb"));
      CHECK(planned[i].at("planned_host_mem_mb") == measured[i].at("host_mem_mb"));
      Json const& nvme = measured[i].at("nvme_mb");
      CHECK(planned[i].at("planned_nvme_mb") == (nvme.is_null() ? Json(0.0) : nvme));
    }
    return planned;
  }
};

}  // namespace

TEST_CASE("plan: each row equals the memory that compare measures, and its parts add up") {
  Plan const sh;
  Json const rows = sh.rows_as_measured(
      small + "--ranks 2 --stages dp,0,1,2,3 --precisions fp32,bf16 --offloads none,infinity",
      "pick for .*fp32.*: zs0_fp32_ranks2_bs2_sl16,");
  CHECK(rows.size() == 20);
  for (Json const& row : rows) {
    CHECK(row.at("status") == "fits");
    for (char const* place : {"device", "host", "nvme"}) {
      Json const bytes = field(row, "bytes", place);
      std::int64_t rest = bytes.at("total");
      for (char const* part :
           {"parameters", "gradients", "optimizer", "activations", "workspace", "bookkeeping"})
        rest -= bytes.at(part).get<std::int64_t>();
      CHECK(rest == 0);
    }
  }
}

TEST_CASE(
    "plan: with frozen parameters each row also equals the memory that compare measures, and is smaller") {
  Plan const sh;
  std::string const matrix = small + "--ranks 2 --stages 0,3 --precisions bf16 --offloads none,cpu_full";
  Json const frozen =
      sh.rows_as_measured(matrix + " --freeze 'wte|h[.]0[.]'",
                          R"(\x20trains [0-9,]+ of [0-9,]+ parameters, [0-9,]+ are frozen\n)");
  Json const all = sh.rows(matrix + " --memory 8GiB");
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(field(frozen, i, "all_ranks_bytes") < field(all, i, "all_ranks_bytes"));
}

TEST_CASE(
    "plan: with adapters each row also equals the memory that compare measures, and trains fewer "
    "parameters") {
  Plan const sh;
  Json const rows = sh.rows_as_measured(small +
                                        "--ranks 2 --stages 0,3 --precisions bf16 --offloads none,cpu_full "
                                        "--lora rank=2,alpha=4,targets=c_attn --adapters none,lora");
  CHECK(rows.size() == 8);
  CHECK(field(rows, 4, "adapters") == "lora");
  CHECK(field(rows, 4, "trainable_params") < field(rows, 0, "trainable_params"));
}

TEST_CASE(
    "plan: the copy for asynchronous checkpoints has 12 bytes per parameter over the ranks, in shards, plus "
    "staging") {
  Plan const sh;
  Json const rows = sh.rows(
      small +
      "--ranks 2 --stages 0,3 --precisions fp32,bf16 --offloads none --memory 8GiB --checkpoint-async");
  CHECK(rows.size() == 4);
  for (Json const& row : rows) {
    std::int64_t const params = row.at("params");
    std::int64_t const copy = field(row, "bytes", "host", "snapshot");
    CHECK(field(row, "bytes", "host", "staging") == 1835008);
    CHECK(field(row, "bytes", "host", "total") == 1835008 + copy);
    CHECK(copy >= 6 * params);
    CHECK(copy <= 6 * params + 12 * 4096 * 8);  // each shard is padded to a multiple of 4096 elements
  }
}

TEST_CASE("plan: fp32 needs 4 bytes per parameter of a large model, and twice that for moments") {
  Plan const sh;
  std::string const large =
      "--model gpt2-xl --ranks 8 --batch 8 --sequence 1024 --precisions fp32,bf16 --stages 0,3";
  Json const row = field(sh.rows(large + " --memory 512GiB"), 0);
  std::int64_t const parameters = field(row, "bytes", "device", "parameters");
  CHECK(row.at("params") == 1557611200);
  CHECK(field(row, "bytes", "device", "optimizer") == 2 * parameters);
  CHECK(parameters >= 1557611200 * 4L);
  CHECK(parameters <= 1557611200 * 4L * 101 / 100);  // 1 % is for padding
  sh.refuses("plan --json rows.json " + large, "5 | --memory 1GiB | no recipe fits 1.00 GiB");
}

TEST_CASE("plan: the largest batch and the longest sequence fit, and the next ones do not") {
  Plan const sh;
  auto const ends_at = [&](std::string const& row, std::string const& flag, char const* key, int least) {
    int const last = field(sh.rows(row + whole_search), 0, key);
    CHECK(last >= least);
    sh.passes("plan --no-search " + row + flag + std::to_string(last));
    CHECK(sh.run("plan --no-search " + row + flag + std::to_string(last + 1)).code == 5);
  };
  ends_at(
      "--model gpt2 --ranks 2 --sequence 256 --stages 2 --precisions bf16 --offloads none --memory 20GB "
      "--batch 1",
      " --batch ", "largest_batch", 1);
  ends_at(small + one_row + "--memory 64MiB", " --sequence ", "longest_sequence", 1025);
  Json const rows = sh.rows("--model layers=2,heads=2,channels=32,positions=512 --sequence 16 --memory 1GiB" +
                            one_row + whole_search);
  CHECK(field(rows, 0, "longest_sequence") == 512);
}

TEST_CASE("plan: a search that ends at its own upper bound or runs out of time says so") {
  Plan const sh;
  Json const open =
      sh.rows(small + one_row + whole_search + "--memory 900000GB", R"(\x2065536[+] +1048576\n)").at(0);
  CHECK(open.at("largest_batch") == 65536);
  CHECK(open.at("largest_batch_exact") == false);
  CHECK(open.at("longest_sequence") == 1048576);
  CHECK(open.at("longest_sequence_exact") == true);
  Json const cut = sh.rows(small + one_row + "--memory 1GiB --search-time 1e-9").at(0);
  CHECK(cut.at("largest_batch_exact") == false);
  CHECK(cut.at("longest_sequence_exact") == false);
}

TEST_CASE("plan: with many layers the searches end, and rows are printed one by one") {
  Plan const sh;
  sh.ends(5,
          "plan --model layers=300,heads=2,channels=64 --stages 0,3 --precisions fp32 --offloads none "
          "--host-memory 1GiB");
  std::string const many = "plan --model layers=100,heads=2,channels=64 --host-memory 1GiB";
  sh.passes(many + " 2> err.txt | grep -m 1 '^zs0'");
  sh.passes("{ " + many + " || echo $? > code.txt; } 2> err.txt | head -c 1");
  CHECK(sh.text("code.txt") == "141\n");
}

TEST_CASE("plan: a row that cannot be planned has failed, and the other rows are planned") {
  Plan const sh;
  sh.ends(1,
          "plan --models layers=1,heads=1,channels=65536 layers=1,heads=1,channels=16 --vocabulary 400000000 "
          "--memory 900GiB "
          "--json rows.json" +
              one_row);
  Json const rows = sh.json("rows.json").at("rows");
  CHECK(field(rows, 0, "status") == "failed");
  CHECK(field(rows, 0, "reason").get<std::string>() != "");
  CHECK(field(rows, 1, "status") == "fits");
}

TEST_CASE("plan: on one rank all stages are one program and get one row, and the JSON has all of them") {
  Plan const sh;
  std::string const one =
      "plan --model gpt2 --ranks 1 --sequence 64 --precisions bf16 --offloads none,cpu_full --device cuda "
      "--memory 24GB "
      "--no-search --json one.json";
  std::string const out = sh.passes(one, R"(
      \non one rank dp, zs1, zs2, zs3 run the same program as zs0 and get no row
      \nzs0 +none [^\n]*\nzs0 +cpu_full\x20)");
  CHECK(test::matches(out, R"(\n(dp|zs[0-3]) +(none|cpu_full) )").size() == 2);
  Json const rows = sh.json("one.json").at("rows");
  CHECK(rows.size() == 10);
  CHECK(field(rows, 0, "experiment") == "dp_bf16_gpus1_bs4_sl64");
  CHECK(field(rows, 0, "same_program_as") == "zs0_bf16_gpus1_bs4_sl64");
  CHECK(field(rows, 0, "all_ranks_bytes") == field(rows, 1, "all_ranks_bytes"));
  CHECK(field(rows, 1, "same_program_as").is_null());
  CHECK(test::matches(sh.passes(one + " --stages 0,3"), R"(\nzs[0-3] +none )").size() == 2);
}

TEST_CASE("plan: if no step is predicted, it says how it picks and how to get times") {
  Plan const sh;
  // Files of earlier versions have no times of collectives.
  Json old =
      Json::parse(test::read(std::filesystem::path(TESSERA_SOURCE) / "examples/machines/h100-sxm.json"));
  old.erase("collectives");
  sh.write("old.json", old.dump());
  std::string const four =
      "--model gpt2-large --ranks 4 --sequence 1024 --memory 80GB --device cuda --precisions bf16 --stages "
      "0,1,2,3 "
      "--offloads none --machine ./old.json --no-search ";
  for (auto const& row :
       test::table("speed | zs0 | simplest recipe\n efficiency | zs3 | recipe with the least memory")) {
    Json const rows = sh.rows(
        four + "--prefer " + row[0],
        R"(\npick for .*: )" + row[1] +
            R"(_bf16_gpus4_bs4_sl1024,.*\n  no recipe that fits has a predicted time: the machine's file has no times of .+; so the pick is the )" +
            row[2] +
            ", whose speed is not known; to get times, run info --measure FILE --device cuda --precisions "
            "bf16 "
            "--ranks 4 on such a machine, then plan --machine FILE\n");
    CHECK(std::count_if(rows.begin(), rows.end(), [](Json const& one) { return one.at("picked") == true; }) ==
          1);
  }
  sh.rows(four + "--samples 1000",
          R"(\n  an epoch of 1,000 samples: 63 steps; their time is not known:\x20)");
}

TEST_CASE("plan: an epoch has its number of steps, and its time if the times of the machine are known") {
  Plan const sh;
  std::string const epochs =
      "plan --model gpt2-large --device cuda --ranks 1 --sequence 1024 --memory 24GB --precisions bf16 "
      "--stages 0 "
      "--offloads none --no-search ";
  sh.passes(epochs + "--machine l4 --epochs 3 --samples 1001", R"(
      \n  an epoch of 1,001 samples: 251 steps, [^\n;]+ predicted, \+-30%; 3 epochs: 753 steps, [^\n;]+ predicted, \+-30%\n)");
  // The time of a short epoch has two significant digits.
  Json const row =
      sh.rows(
            "--model layers=1,heads=2,channels=16 --device cuda --ranks 1 --sequence 16 --batch 4 "
            "--precisions bf16 --stages 0 --offloads none --no-search --machine l4 --samples 12 "
            "--epochs 2",
            R"(: 3 steps, 0\.0*[1-9][0-9]? s predicted, \+-30%; 2 epochs: 6 steps, 0\.0*[1-9][0-9]? s predicted, \+-30%\n)")
          .at(0);
  CHECK(row.at("predicted_epoch_time_s") > 0.0);
  sh.passes(epochs + "--samples 4",
            R"(\n  an epoch of 4 samples: 1 step; give --machine FILE or NAME for their time\n)");
  sh.passes(epochs + "--epochs 1", R"(\n  for the time of an epoch, give --data, or --samples)");
  sh.refuses(epochs, R"(
      2 | --epochs 1 --steps 5 | --steps and --epochs both say
      2 | --published stages | --published | 'stages' | choose from)");
}

TEST_CASE("plan: an epoch of a user's own text has as many samples and steps as train counts") {
  Plan const sh;
  std::string text, records;
  for (int line = 0; line < 101; ++line) {
    text += "line " + std::to_string(line) + " of a short text\n";
    records += R"({"body": "record )" + std::to_string(line) + "\"}\n";
  }
  sh.write("text.txt", text);
  sh.write("records.jsonl", records);
  std::string const model = " --model layers=1,heads=2,channels=16 --sequence 12 --batch 4 --epochs 2 ";
  std::string const tokenizer = R"(--tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2 )";
  for (std::string const& data :
       {std::string("--data text.txt"), "--data text.txt " + tokenizer,
        std::string("--data text.txt --samples-are lines"), std::string("--data text.txt --samples 30"),
        "--data records.jsonl --samples-are records --field body " + tokenizer}) {
    CAPTURE(data);
    sh.passes("train --ranks 1 --stage 0 --precision fp32 --log run.jsonl" + model + data);
    Json const epoch = Json::parse(test::matches(sh.text("run.jsonl"), R"(\{"epoch":2,.*\})").at(0));
    Json const row =
        sh.rows(model + one_row + "--no-search " + data,
                "\n  an epoch of " + epoch.at("samples").dump() + " samples: " + epoch.at("steps").dump() +
                    " steps; 2 epochs: " + std::to_string(2 * epoch.at("steps").get<int>()) +
                    " steps; give --machine")
            .at(0);
    CHECK(row.at("epoch_samples") == epoch.at("samples"));
    CHECK(row.at("epoch_steps") == epoch.at("steps"));
    CHECK(row.at("predicted_epoch_time_s").is_null());
  }
  Json const book = sh.rows(
      "--device cuda --model gpt2-large --ranks 1 --machine l4 --sequence 16 --precisions bf16 --stages 0 "
      "--offloads none --no-search --data text.txt " +
          tokenizer,
      R"(data: text\.txt by tokenizer\.json, .*tokens
      \n  an epoch of [0-9]+ samples: [0-9]+ steps, .* predicted, \+-30%\n)");
  double const steps = field(book, 0, "epoch_steps"), step = field(book, 0, "predicted_step_time_s");
  CHECK(field(book, 0, "predicted_epoch_time_s").get<double>() == doctest::Approx(steps * step));
  CHECK(sh.rows(one_row + "--no-search" + small).at(0).at("epoch_samples").is_null());
  sh.refuses("plan --no-search" + model + one_row, R"(
      4 | --data absent.txt | absent.txt
      2 | --data text.txt --field body | --field applies only to records, but samples are tokens
      4 | --data text.txt --samples 100000 | 100000)");
}

TEST_CASE(
    "plan: if the pick offloads, it names flags of a training without offload, and this training fits") {
  Plan const sh;
  std::string const large =
      "--model gpt2-large --device cuda --memory 24GB --sequence 1024 --precisions bf16 --no-search "
      "--offloads none,cpu_optimizer,cpu_full ";
  for (auto const& row : test::table(R"(
      --ranks 1 --batch 8 | --recompute gelu | --batch 4 --accumulation 2
      --ranks 2 --batch 12 | --stages zs0 --recompute block | --stages zs0 --batch 6 --accumulation 2)")) {
    sh.rows(large + row[0], "\npick for .*_offcpu, .*\n  recomputation fits without offload: " + row[1] +
                                "\n  a smaller batch fits without offload: " + row[2] + "\n");
    std::string const ranks = row[0].substr(0, row[0].find(" --batch"));
    sh.rows(large + row[0] + " " + row[1], R"(\npick for .*sl1024( with recompute (gelu|block))?,)");
    sh.rows(large + ranks + " " + row[2], R"(\npick for .*sl1024_acc[0-9],)");
  }
  // With recomputation, only the batch remains. If even one sample does not fit, plan gives no hint.
  sh.rows(large + "--ranks 1 --batch 64 --recompute block",
          R"(\n  a smaller batch fits without offload: --batch [0-9]+ --accumulation [0-9]+\n)");
  for (std::string const& none : {large + "--ranks 1 --batch 4", large + "--ranks 1 --batch 1 --memory 10GB"})
    CHECK_FALSE(test::has(sh.passes("plan " + none), " fits without offload: "));
}

TEST_CASE("plan: the help explains the defaults and the picks, and names the missing times") {
  Plan const sh;
  std::string const help = test::replaced(sh.passes("plan --help"), R"(\s+)", " ");
  for (char const* text : {"the default is for quick comparisons, so give your own",
                           "the simplest row, which offloads least (none,",
                           "The NAMEs have no times of disks, so rows on NVMe have no prediction",
                           "N is the tokens of the text (prepare prints them) / --sequence",
                           "plan counts its samples as train does"})
    CHECK_MESSAGE(test::has(help, text), text);
}

TEST_CASE("plan: --schedule prints each entry of stage 3 with its move, lane, bytes and dependencies") {
  Plan const sh;
  sh.passes(
      "plan --model layers=1,heads=2,channels=64 --ranks 2 --stages 3 --precisions bf16 --offloads "
      "cpu_optimizer "
      "--batch 2 --sequence 16 --accumulation 4 --host-memory 8GiB --no-search --schedule",
      R"(
      the step of zs3_bf16_ranks2_bs2_sl16_offcpu_acc4:
      \non cpu, reduction ordered, prefetch 1, bucket bytes 0\n
      0 to [0-9]+ are repeated 3 times, 1 micro-batch later each time
      compute +3 +head +forward
      communication +0 +h.0 +gather +[0-9]+ B +all_gather weights to gathered weights
      compute +0 +head +backward_weight +-
      communication +0 +h.0 +reduce .*all_to_all micro-batch gradient to received micro-batch gradient; after [0-9]+
      host +- +h.0 +update .*fetched gradient \(host\) to master weights \(host\)
      upload +- +h.0 +write_back .*copy updated weights \(host\) to weights)");
}

TEST_CASE("plan: on a narrow terminal it names the omitted columns, and on a wide one it omits none") {
  Plan const sh;
  std::string const call =
      "plan --model layers=1,heads=1,channels=16 --stages 0 --precisions fp32 --offloads none --no-search";
  sh.passes("COLUMNS=80 " + call, R"(
      \ncolumns that do not fit the terminal: [^;]*bookkeeping;\sthe\soutput\sof\s--json\shas\sthem\n)");
  CHECK_FALSE(test::has(sh.passes("COLUMNS=300 " + call, "bookkeeping"), "do not fit the terminal"));
}

TEST_CASE("plan: wrong models, flags and values are refused") {
  Plan const sh;
  sh.refuses("plan", R"(
      2 | --num_gpus 2 | '--num_gpus' is a flag of the launcher | plan needs no launcher, so use --ranks N
      2 | --nnodes=2 | '--nnodes' is a flag of the launcher
      3 | --model opt-350m --memory 1GiB | opt-350m | which OPT models do not support here
      3 | --model gpt2 --sequence 2048 | --sequence 2048 | 1024 positions
      3 | --model gpt2 --freeze layers | --freeze 'layers'
      3 | --model gpt2 --lora rank=2,alpha=4,targets=c_atn | --lora: target 'c_atn' is not a linear layer
      2 | --memry 1GiB | --memry | --memory
      2 | --machine ./times.json --json times.json | --json 'times.json' and --machine './times.json' are the same file
      1 | --json no/plan.json | no/plan.json
      2 | --memory 24 | --memory is 24 bytes; give a unit, such as 24GiB)");
  for (std::string const value : {"0", "-1", "x", "4q", "nan", "inf", "1e30"})
    sh.refuses("plan", "2 | --memory " + value + " | --memory | " + value);
  for (std::string const value : {"0", "-1", "x", "nan", "1e6"})
    sh.refuses("plan", "2 | --search-time " + value + " | --search-time | " + value);
}

TEST_CASE("plan: samples that are records have a line with the cut ones and the padding, as in train") {
  Plan const sh;
  std::string json, lines;
  for (int const length : {0, 1, 5, 50, 100, 400}) {
    json += "{\"text\": \"" + std::string(length, 'x') + "\"}\n";
    lines += std::string(length, 'x') + "\n";
  }
  sh.write("records.jsonl", json);
  sh.write("lines.txt", lines);
  std::string const model = " --model layers=1,heads=1,channels=16 --ranks 1 --data records.jsonl ";
  std::string const records = "--samples-are records ";
  std::string const plan = "plan --stages 0 --offloads none --precisions fp32 --no-search" + model;
  std::string const samples = "records, 2 cut to 65 tokens, 29.3% of all positions padding";
  std::string const out = sh.passes(plan + records + "--sequence 64");
  CHECK(test::has(
      out, "data: records.jsonl, 556 tokens (uint32) in 4 records, 2 too short\nsamples: " + samples + "\n"));
  CHECK(
      test::has(sh.passes("train --steps 1 --sequence 64" + model + records), "| samples        " + samples));
  CHECK(test::has(sh.passes(plan + records + "--sequence 64 --samples 3"),
                  "\nsamples: records, the first 3, 1 cut to 65 tokens, "));
  CHECK(test::has(sh.passes(plan + "--samples-are lines --sequence 64 --data lines.txt"),
                  "\nsamples: lines, 2 cut to 65 tokens, "));
  CHECK(test::matches(sh.passes(plan + records + "--sequence 64,128"),
                      "\nsamples: [^\n]+ cut [^\n]+, with --sequence (64|128)")
            .size() == 2);
  CHECK_FALSE(test::has(sh.passes(plan + "--sequence 64"), "\nsamples: "));
}
