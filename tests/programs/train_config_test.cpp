// SPDX-License-Identifier: Apache-2.0
// Tests the programs `train`, `compare` and `plan` if their settings come from files. A file is a DeepSpeed
// configuration, or a result file of this or an older version. `train` repeats the training of a row of such
// a result file.
#include <filesystem>
#include <map>

#include "programs/train.hpp"

using test::field, test::has, test::Json, test::replaced, test::table, test::Train;

namespace {

struct Config : Train {
  static inline std::string const deepspeed = R"("$TESSERA_SOURCE"/examples/deepspeed/)";
  static inline std::string const on_two = small + "--ranks 2 ", brief = on_two + "--steps 4 ";

  Config() { passes("mkdir nvme"); }

  /// Runs the program `train` with the command line `command` and returns the hash of its final weights.
  std::string hash_of(std::string const& command) const {
    passes(command + " --log hashed.jsonl");
    return weights_hash("hashed.jsonl");
  }
  /// Runs the program `compare` with the training settings of this test and the flags `flags`. Returns the
  /// rows of its results.
  Json compared(std::string const& flags) const {
    passes("compare " + on_two.substr(6) + "--json rows.json " + flags);
    return json("rows.json").at("rows");
  }
};

}  // namespace

TEST_CASE("train config: each example equals its flags, and stages and offloads change no bit") {
  Config const sh;
  std::map<std::string, std::string> hashes;
  for (auto const& file : std::filesystem::directory_iterator(TESSERA_SOURCE "/examples/deepspeed")) {
    std::string const name = file.path().stem();
    INFO(name);
    std::string const run = sh.brief + "--config " + sh.deepspeed + name + ".json" +
                            (has(name, "infinity") ? " --nvme-path nvme" : "");
    sh.passes(run + " --log file.jsonl",
              "note: weight decay applies to matrices only; in DeepSpeed it also applies to 10 biases and "
              "norms of 120 elements");
    hashes[name] = sh.weights_hash("file.jsonl");
    CHECK(sh.hash_of("words=$(" + run +
                     R"( --print-config | sed '/^note:/d; s/ *#.*//'); eval train $words --quiet)") ==
          hashes[name]);
  }
  CHECK(hashes.size() >= 13);
  for (auto const& row : table(R"(
      zero0_fp16 | zero1_fp16 | zero2_fp16 | zero3_fp16
      zero0_fp32 | zero1_fp32 | zero2_fp32 | zero3_fp32
      stage1 | stage2 | stage3 | offload | infinity | infinity_aio)"))
    for (std::string const& name : row) CHECK_MESSAGE(hashes.at(name) == hashes.at(row[0]), name);
  CHECK(hashes.at("stage1") != hashes.at("zero0_fp16"));  // their schedules differ
  CHECK(
      sh.hash_of(
          sh.brief +
          "--stage 2 --precision fp16 --learning-rate 5e-5 --weight-decay 0.01 --clip 1 --hysteresis 2 "
          "--loss-scale-delay 1 --loss-scale-window 1000 --max-loss-scale 1267650600228229401496703205376") ==
      hashes.at("zero2_fp16"));
  CHECK(sh.hash_of(sh.brief + "--stage 1 --precision fp16 --learning-rate 5e-5 --weight-decay 0.01 --clip 1 "
                              "--schedule WarmupDecayLR --warmup-steps 50") == hashes.at("stage1"));
}

TEST_CASE("train config: flags override the file, and --print-config shows the origin of each setting") {
  Config const sh;
  std::string const with_file = sh.on_two + "--config " + sh.deepspeed + "zero2_fp16.json ";
  sh.passes(with_file + "--steps 4 --stage 3 --learning-rate 0.25 --print-config", R"(
      --stage 3 +# flag
      --learning-rate 0.25 +# flag
      --precision fp16 +# zero2_fp16.json: fp16.enabled
      --loss-scale dynamic +# default)");
  CHECK(Json(test::matches(sh.passes(with_file + "--steps 20"), "\nstep [0-9]+")) ==
        Json{"\nstep 10", "\nstep 20"});  // steps_per_print is 10
  // For GPT-2 large and the threshold in stage3.json, DeepSpeed itself prints these two numbers.
  sh.passes("train --config " + sh.deepspeed + "stage3.json --model gpt2-large --steps 0 --print-config",
            "DeepSpeed keeps 290 parameters of 601,600 elements complete on every rank");
}

TEST_CASE("train config: all refusals of a configuration are in one line, and comments are allowed") {
  Config const sh;
  sh.write("many.json",
           R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
    "zero_optimisation": {"stage": 2}, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}, "optimizer": {"type": "Lamb"}})");
  sh.write("twice.json", "{\"train_batch_size\": 32,\n \"train_batch_size\": 4}");
  sh.write("syntax.json", R"({"train_batch_size" 32})");
  sh.write("auto.json", R"({"train_batch_size": "Auto"})");
  sh.write("betas.json",
           R"({"train_batch_size": 2, "optimizer": {"type": "Adam", "params": {"betas": [0.9, 1.5]}}})");
  sh.refuses("train --config", R"(
      3 | many.json --model tiny --ranks 2 | many.json: 3 keys cannot be used | (1) zero_optimisation is not a key of DeepSpeed, the nearest is zero_optimization | (2) zero_optimization.zero_quantized_weights is true, which is not supported: nothing is sent quantized | (3) optimizer.type is "Lamb", the nearest is adam
      3 | twice.json | twice.json: the key 'train_batch_size' is given twice
      3 | syntax.json | syntax.json: is not valid JSON, parse error at line 1
      4 | nothing.json | nothing.json cannot be read
      3 | auto.json | the nearest is "auto", in lowercase
      4 | nvme | is a folder; name the JSON file
      3 | betas.json | optimizer.params.betas is [0.9,1.5]; give two numbers from 0 to below 1)");
  sh.write("hjson.json",
           "{\n  # of one device\n  train_micro_batch_size_per_gpu: 2,\n  \"bf16\": {\"enabled\": true, # a "
           "wide range\n  },\n}\n");
  sh.passes("train --config hjson.json --print-config", R"(
      --batch 2\x20
      --precision bf16\x20)");
}

TEST_CASE("train config: the batch equation names the keys of the file, and every way out works") {
  Config const sh;
  sh.write(
      "all.json",
      R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1})");
  sh.write("two.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4})");
  sh.write("one.json", R"({"train_batch_size": 6})");
  std::string const model =
      "train --model layers=1,heads=2,channels=8 --sequence 8 --data text.txt --config ";
  sh.refuses(model, R"(
      3 | all.json | error: all.json: train_batch_size 16 contradicts train_micro_batch_size_per_gpu 4 x ranks 1 x gradient_accumulation_steps 1 = 4; set train_batch_size to 4, or give --ranks 4, or set gradient_accumulation_steps to 4, or set train_micro_batch_size_per_gpu to 16
      3 | all.json --ranks 3 | x ranks 3 x gradient_accumulation_steps 1 = 12; set train_batch_size to 12, or give --ranks 4
      3 | all.json --batch 3 | error: all.json: train_batch_size 16 is impossible: batch 3 x ranks 1 x accumulation = 16 needs accumulation 16 / 3; the nearest are train_batch_size 15 and 18
      3 | all.json --global-batch 10 | error: all.json: --global-batch 10 is impossible: train_micro_batch_size_per_gpu 4 x ranks 1 x accumulation = 10 needs accumulation 10 / 4; the nearest are --global-batch 8 and 12
      3 | all.json --global-batch 10 --accumulation 2 | error: all.json: --global-batch 10 contradicts train_micro_batch_size_per_gpu 4 x ranks 1 x accumulation 2 = 8; give --global-batch 8, or set train_micro_batch_size_per_gpu to 5
      3 | two.json --ranks 4 | error: two.json: train_batch_size 8 is impossible: train_micro_batch_size_per_gpu 4 x ranks 4 x accumulation = 8 needs accumulation 8 / 16; the nearest is train_batch_size 16; or give --ranks 2
      3 | one.json --ranks 4 | error: one.json: train_batch_size 6 is impossible: batch x ranks 4 x accumulation 1 = 6 needs batch 6 / 4; the nearest are train_batch_size 4 and 8; or give --ranks 3
      3 | two.json --ranks 1 --global-batch 8 --batch 3 --accumulation 2 | --global-batch 8 contradicts batch 3 x ranks 1 x accumulation 2 = 6; give --global-batch 6, or leave out --batch)");
  for (std::string const way :
       {"all.json --ranks 4", "all.json --global-batch 4", "all.json --accumulation 3", "all.json --batch 16",
        "two.json --ranks 2", "one.json --ranks 3"})
    sh.passes(model + way + " --print-config");
  sh.refuses("compare --data text.txt --config", R"(
      3 | all.json --ranks 2 | error: all.json: train_batch_size 16 contradicts train_micro_batch_size_per_gpu 4 x ranks 2 x gradient_accumulation_steps 1 = 8; set train_batch_size to 8, or give --ranks 4
      3 | all.json --ranks 1,2 | error: all.json: train_batch_size 16 contradicts train_micro_batch_size_per_gpu 4 x ranks 1 x gradient_accumulation_steps 1 = 4 of --ranks 1,2)");
}

TEST_CASE("train config: decay is part of Adam's gradient, and logs go to the paths of the configuration") {
  Config const sh;
  sh.write("adam.json", R"({ // as a program of DeepSpeed has it
    "train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}},
    "tensorboard": {"enabled": true, "output_path": "boards", "job_name": "adam"},
    "csv_monitor": {"enabled": true, "output_path": "logs/deep", "job_name": "adam"}})");
  std::string const adam = sh.hash_of(sh.brief + "--config adam.json");
  sh.passes(sh.brief + "--config adam.json --optimizer adamw");
  CHECK(sh.weights_hash("logs/deep/adam.jsonl") != adam);
  CHECK(sh.passes("ls boards/adam/events.out.tfevents.* | wc -l") == "2\n");
}

TEST_CASE("train config: train repeats a row of compare, which reads the configuration too") {
  Config const sh;
  Json const row =
      sh.compared("--config " + sh.deepspeed + "stage2.json --stages 2 3 --steps 4 --warmup 1").at(1);
  std::string const name = row.at("experiment");
  sh.passes("train --from rows.json --row " + name + " --log row.jsonl", "sharding +zs3 +rows.json: " + name);
  CHECK(sh.weights_hash("row.jsonl") == row.at("weights_hash"));
  CHECK(sh.hash_of("train --from rows.json --best --quiet") == row.at("weights_hash"));
  sh.refuses("train --from rows.json", R"(
      3 | --row zs9 | no row is called 'zs9', the nearest is 'zs
      2 |  | no flag selects which row to repeat; give --best, or --row NAME)");
}

TEST_CASE("train config: a flat list of a comparison is read through the file of all its settings") {
  Config const sh;
  Json const row = sh.compared("--stages 2 --precisions fp32 --offloads none --steps 2 --warmup 1").at(0);
  sh.write("cut.json", "[{");
  sh.refuses("train --from", "4 | cut.json --best | cut.json: is not valid JSON");
  std::string const list = "zero_comparison_20261127_100000.json", twin = "compare_20261127_100000.json";
  Json rows = Json::parse(R"([{"stage": 2, "strategy": "none", "success": true}])");
  auto const with = [&](char const* key, Json const& value) {
    rows.at(0)[key] = value;
    sh.write(list, rows.dump());
  };
  with("throughput_tokens_per_sec", row.at("median_tokens_per_sec"));
  sh.passes("cp rows.json " + twin + "; train --from " + list + " --best --log row.jsonl",
            "note: " + list + " is a list without the settings .* " + twin + " is read");
  CHECK(sh.weights_hash("row.jsonl") == row.at("weights_hash"));

  // If the two files are of different runs, the list has no settings.
  std::string const refused =
      "3 | " + list + " --best | is a list of rows | ; " + twin + " belongs to another run and is not used: ";
  with("stage", 3);
  sh.refuses("train --from", refused + "row 1 has stage 2, and in the list 3; its fastest row is stage 3");
  with("stage", "2");
  with("strategy", "cpu_full");
  sh.refuses("train --from", refused + "row 1 has strategy none, and in the list cpu_full");
  with("strategy", "none");
  with("throughput_tokens_per_sec", 7.5);
  sh.refuses("train --from", refused + "row 1 has throughput_tokens_per_sec | , and in the list 7.5");
  rows.push_back(rows.at(0));
  with("throughput_tokens_per_sec", row.at("median_tokens_per_sec"));
  sh.refuses("train --from", refused + "its number of rows is 1, and in the list 2");
}

TEST_CASE("train config: a list of rows has a fastest row only if its rows can be ranked") {
  Config const sh;
  auto const says = [&](std::string const& list, std::string const& text) {
    sh.write("list.json", list);
    test::Result const result = sh.run("train --from list.json --best");
    CHECK(result.code == 3);
    CHECK(result.err ==
          "error: list.json: is a list of rows, which lacks the data and the options of their training; give "
          "the JSON object that compare writes, such as compare.json or compare_TIME.json, or give the flags "
          "of a row" +
              text + "\n");
  };
  says(R"([{"stage": 2, "strategy": "none", "throughput_tokens_per_sec": 42500, "success": true},
           {"stage": 3, "strategy": "cpu_full", "throughput_tokens_per_sec": 33000},
           {"stage": 1, "strategy": "none", "throughput_tokens_per_sec": 50000, "success": false}])",
       "; its fastest row is stage 2, strategy none with 42500 tokens/s");
  // All stages without offload run the same program on one GPU, and the list does not say how many it had.
  says(
      R"([{"stage": 0, "throughput_tokens_per_sec": 45000}, {"stage": 3, "throughput_tokens_per_sec": 33000}])",
      "; its highest rate is stage 0 with 45000 tokens/s. Other stages with this strategy are not ranked "
      "against it, because the list does not say whether they run the same program, as all stages without "
      "offload do on one GPU");
  says(R"([{"gpu_peak_gb": 4}, {"throughput_tokens_per_sec": 45000}])",
       "; its fastest row is row 2, which names no stage and no strategy, with 45000 tokens/s");
  for (char const* const none : {"[]", "[{}]", "[7]", R"([{"stage": 0, "throughput_tokens_per_sec": -1}])"})
    says(none, "");
  // A list of compare says which rows run the same program. The plainest row represents them.
  auto const row = [](char const* name, char const* rate, char const* twin) {
    return std::string(R"({"experiment": ")") + name + R"(", "sharding": ")" + name +
           R"(", "stage": 0, "status": "ok", "throughput_tokens_per_sec": )" + rate +
           R"(, "median_tokens_per_sec": )" + rate + R"(, "same_program_as": )" + twin + "}";
  };
  says("[" + row("zs3", "50", "null") + "," + row("zs0", "40", R"("zs3")") + "," + row("zs2", "30", "null") +
           "]",
       "; its fastest row is zs0 with 40 tokens/s");
}

TEST_CASE("train config: --from says how far the rate and the peak memory are from the row's") {
  Config const sh;
  std::string const name =
      sh.compared("--stages 2 --precisions fp32 --offloads none --steps 6 --warmup 1").at(0).at("experiment");
  std::string const again = "train --from rows.json --best --log row.jsonl ";
  auto const against = [&] { return sh.summary("row.jsonl").at("against_row"); };
  auto const with_row = [&](std::string const& values) {
    Json document = sh.json("rows.json");
    document.at("rows").at(0).merge_patch(Json::parse(values));
    sh.write("rows.json", document.dump());
  };
  with_row(R"({"median_tokens_per_sec": 1.0, "spread_pct": 2.5})");
  sh.passes(again,
            R"(\nagainst row )" + name +
                R"( of rows.json \| rate \+[0-9.]+% from 1 tok/s, outside the row's spread of 2.5% \| )"
                R"(peak memory \+0.0% from [0-9.]+ MB a rank\n)");
  Json found = against();
  CHECK(found.at("differs") == Json::array());
  CHECK(found.at("within_row_spread") == false);
  CHECK(found.at("rate_difference_pct").get<double>() ==
        doctest::Approx(100.0 * (sh.summary("row.jsonl").at("avg_tokens_per_sec").get<double>() - 1.0)));
  CHECK(found.at("peak_difference_pct") == 0.0);
  CHECK(found.at("experiment") == name);

  with_row(R"({"spread_pct": 1e12, "peak_gpu_mem_mb": 1e-3})");
  sh.passes(again, "within the row's spread of");
  CHECK(against().at("within_row_spread") == true);
  CHECK(against().at("peak_difference_pct") > 100.0);
  with_row(R"({"spread_pct": null})");
  sh.passes(again, "the row has no spread");
  CHECK(against().at("within_row_spread") == nullptr);

  // If the run differs from the row, the differences in the log are null, and the line gives the reasons.
  sh.passes(again + "--batch 1 --stage 3",
            R"(\nnot compared with row )" + name +
                R"( of rows.json, because of another sharding \(zs3, in the row )"
                R"(zs2\), batch \(1, in the row 2\)\n)");
  CHECK(against().at("differs").size() == 2);
  for (std::string const key : {"rate_difference_pct", "peak_difference_pct", "within_row_spread"})
    CHECK(against().at(key) == nullptr);
  sh.passes(again + "--ranks 1", R"(because of another number of ranks \(1, in the row 2\), mesh)");
  // A run with other parameters, threads or lengths of transfers has another rate and another memory.
  sh.passes(again + "--vocabulary 300",
            R"(because of another vocabulary \(300, in the row 256\), number of parameters \()");
  sh.passes(again + "--prefetch 3 --bucket-bytes 4096",
            R"(because of another prefetch \(3, in the row 1\), bucket bytes \(4096, in the row 0\)\n)");
  sh.passes(again + "--threads 7 --weight-lag 2",
            R"(because of another number of threads \(7, in the row [1-6]\), weight lag \(2, in the row )");
  CHECK(against().at("differs").size() == 2);
  Json document = sh.json("rows.json");
  document.at("environment")["cpu"] = "another CPU";
  sh.write("rows.json", document.dump());
  sh.passes(again, R"(because of another CPU \(.+, in the row another CPU\)\n)");
  sh.passes(Train::small + "--steps 2 --log plain.jsonl");
  CHECK(sh.summary("plain.jsonl").at("against_row") == nullptr);
}

TEST_CASE(
    "train config: a row of --min-time is repeated to the step of its hash, and --steps precedes epochs") {
  Config const sh;
  Json const row =
      sh.compared("--stages 2 --precisions fp32 --offloads none --steps 2 --warmup 1 --min-time 0.3").at(0);
  CHECK(row.at("steps") > 3);
  CHECK(row.at("hashed_steps") == 3);
  sh.passes("train --from rows.json --best --log row.jsonl --quiet");
  Json const repeated = sh.summary("row.jsonl");
  CHECK(repeated.at("steps_done") == 3);
  for (std::string const same : {"weights_hash", "final_loss"}) CHECK(repeated.at(same) == row.at(same));
  sh.compared("--stages 2 --samples 8 --warmup 0");
  sh.passes("train --from rows.json --best --steps 3 --log row.jsonl --quiet");
  CHECK(sh.summary("row.jsonl").at("steps_done") == 3);
}

TEST_CASE("train config: plan reads a configuration, whose folder for NVMe must exist") {
  Config const sh;
  std::string const plan =
      "plan --config " + sh.deepspeed + "infinity.json --model gpt2 --ranks 2 --memory 8GB --no-search";
  sh.ends(2, plan);  // its folder /local_nvme does not exist
  sh.passes(plan + " --nvme-path nvme",
            "pick for gpt2, fp16, 2 ranks, sequence 128, at --batch 2: zs3_fp16_ranks2_bs2_sl128_offnvme");
}

TEST_CASE(
    "train: results of older versions are repeated with the settings that they lack, and newer ones are "
    "refused") {
  Train const sh;
  for (auto const& row : table("version-1 | 1\n version-1-last | 1\n version-2 | 2")) {
    std::string const file = row[0] + ".json", data = row[1] == "1" ? " --data text.txt" : "";
    INFO(file);
    std::string const results = test::read(TESSERA_SOURCE "/tests/programs/config/results/" + file);
    sh.write(file, results);
    CHECK(std::to_string(Json::parse(results).at("schema_version").get<int>()) == row[1]);
    if (row[1] == "1")  // version 1 recorded no paths
      sh.refuses(
          "train --from",
          "3 | " + file + " --best | " + file +
              R"(: was written by an older program | did not record the flag --data of its command; give --data too | --data text.txt)");
    std::string const settings =
        sh.passes("train --print-config --row zs2_fp32_ranks2_bs1_sl16 --from " + file + data);
    for (auto const& setting : table(R"(
        --model layers=1,heads=1,channels=16 | --ranks 2 | --batch 1 | --sequence 16 | --stage zs2 | --precision fp32
        --attention reference | --reduction ordered | --steps 4 | --learning-rate 0.001 | --clip 1 | --seed 1 | --data text.txt)"))
      for (std::string const& one : setting)
        CHECK_MESSAGE(has("\n" + settings, "\n" + one + " "), one, " is not in ", settings);
    sh.passes("train --best --log steps.jsonl --from " + file + data);
    CHECK(sh.summary("steps.jsonl").at("steps_done") == 4);

    // The command in the result file gets the additional flag `flag`. Files of version 1 did not record the
    // vocabulary, and version-1.json did not record the loss scale either. If the file did not record the
    // value of the flag, `train` must refuse the file.
    for (std::string const flag : {"--loss-scale", "--vocabulary"}) {
      sh.write("more.json", replaced(results, " --seq", " " + flag + " 1 --seq"));
      if (row[0] == "version-1" || (row[1] == "1" && flag == "--vocabulary"))
        sh.refuses("train --from", "3 | more.json --best" + data +
                                       " | more.json: was written by an older program | the flag " + flag +
                                       " of its command; give " + flag + " too");
      else
        sh.passes("train --print-config --best --from more.json" + data);
    }
    sh.write("newer.json", replaced(results, R"("schema_version": [0-9]+,)", R"("schema_version": 4,)"));
    sh.refuses("train --from",
               "4 | newer.json --best | newer.json: has schema_version 4, but this program reads up to 3; "
               "use a newer program");
  }
  CHECK(sh.passes(R"(ls "$TESSERA_SOURCE"/tests/programs/config/results/*.json | wc -l)") == "3\n");
}
