// SPDX-License-Identifier: Apache-2.0
// Tests the program `compare` if it trains for whole epochs (passes over the data) on records: the columns of
// its table, its files, and final weights that do not depend on the split of the batch over ranks. Also tests
// initial weights from a file.
#include "programs/compare_support.hpp"

using test::column, test::Compare, test::field, test::Json;

namespace {

/// Runs commands in a temporary folder with the file lines.txt, which has 30 lines of text. Each comparison
/// trains on 25 samples: the first 25 lines that are long enough.
struct Epochs : Compare {
  Epochs() { passes("for i in $(seq 30); do echo \"$i quick brown foxes\" | cut -c -$i; done > lines.txt"); }
  static inline std::string const samples =
      " --model layers=2,heads=2,channels=32 --sequence 12 --data lines.txt --samples-are lines --samples "
      "25 ";
  static inline std::string const fp32 = "--precisions fp32 --offloads none ";
};

}  // namespace

TEST_CASE("compare epochs: rows have statistics of each epoch, and weights are independent of the split") {
  Epochs const sh;
  std::string const split = sh.samples + sh.fp32 + "--global-batch 6 --batch 1 ";
  sh.passes("compare --epochs 2 --warmup 3 --ranks 1,2,3 --stages 0,3 --repeat 2" + split, R"(
      all 6 rows equal to the bit
      \n  epoch 2 \| 5 steps \| [0-9.]+ s \| [0-9.]+ samples/s \| loss [0-9.]+ \| with padding)");
  Json const rows = field(sh.json("results/compare.json"), "rows"), row = rows.at(0);
  CHECK(column(rows, "steps") == Json(std::vector<int>(6, 10)));
  CHECK(field(rows, 3, "epochs") == 2);
  CHECK(field(rows, 3, "samples") == 25);
  CHECK(field(rows, 3, "samples_are") == "lines");
  CHECK(field(rows, 3, "warmup") == 3);
  for (char const* each :
       {"epoch_times_s", "epoch_samples_per_sec", "epoch_losses", "epoch_losses_with_padding"})
    CHECK(row.at(each).size() == 2);
  CHECK(field(row, "epoch_losses", 1) < field(row, "epoch_losses", 0));
  CHECK(field(row, "epoch_losses", 1) == row.at("final_epoch_loss"));
  CHECK(field(row, "epoch_losses_with_padding", 0) < field(row, "epoch_losses", 0));
  CHECK(row.at("padding_pct") > 20);
  CHECK(row.at("padding_pct") < 50);
  CHECK(row.at("avg_epoch_time_s") > 0);
  std::string const runs = "results/zs0_fp32_ranks1_bs1_sl12_acc6/";
  auto const log = sh.lines(runs + "run2/epoch_log.csv");
  CHECK(log.size() == 3);
  CHECK(log.at(0) == "epoch,steps,samples,seconds,samples_per_sec,loss,loss_with_padding");

  // A later comparison in the same folder counts steps, not epochs. It removes the log of epochs.
  sh.passes("compare --steps 2 --warmup 0 --ranks 1 --stages 0" + split);
  CHECK(sh.passes("ls " + runs + "*") == "step_log.csv\n");
  CHECK(field(sh.json("results/compare.json"), "rows", 0, "epochs").is_null());
}

TEST_CASE(
    "compare epochs: with --init every row starts from the given weights and ends with train's weights") {
  Epochs const sh;
  std::string const same =
      sh.samples + "--epochs 1 --batch 5 --learning-rate 0.01 --clip 0 --init start.safetensors ";
  sh.passes("train --steps 2 --seed 9 --save start.safetensors --quiet" + sh.samples);
  sh.passes("train --log train.jsonl --quiet" + same);
  Json const wanted = field(sh.json_lines("train.jsonl").back(), "summary", "weights_hash");
  Json const rows =
      sh.rows(same + sh.fp32 + "--warmup 1 --ranks 1 --stages dp,1", "weights +start.safetensors +flag");
  CHECK(column(rows, "weights_hash") == Json{wanted, wanted});
  sh.refuses("compare" + sh.samples, R"(
      4 | --warmup 0 --init missing.safetensors | missing.safetensors
      4 | --warmup 0 --model layers=1,heads=2,channels=32 --init start.safetensors | start.safetensors
      2 | --models tiny gpt2 --init start.safetensors | --init start.safetensors | 2
      2 | --warmup 0 --init start.safetensors --json start.safetensors | --json | --init | same file)");
}

TEST_CASE("compare epochs: contradictory lengths and a wrong number of samples are refused") {
  Epochs const sh;
  sh.refuses("compare" + sh.samples, R"(
      2 | --steps 4 --epochs 2 | --steps 4 | --epochs 2
      2 | --epochs 2 --min-time 1 | --min-time | epochs
      3 | --epochs 2 --warmup 14 --ranks 1 --stages 0 | 2 epochs of 25 samples | 14 steps | --warmup 14 | below 14
      4 | --samples 31 --epochs 1 | --samples 31 | the 29 samples
      2 | --machine ./times.json --csv times.json | --csv 'times.json' and --machine './times.json' are the same file)");
}
