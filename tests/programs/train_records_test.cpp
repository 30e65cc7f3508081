// SPDX-License-Identifier: Apache-2.0
// Tests the program `train` if each sample is a record of its data file. A file of text lines and a JSON
// Lines file with the same text must give the same results for every split over ranks. The last step of an
// epoch can have fewer samples. The log has the loss with and without padding.
#include "programs/train.hpp"

using test::Json, test::Train;

namespace {

/// Runs commands in a folder with two files of the same text. lines.txt has 21 lines with 1 to 21 letters,
/// and blank lines between them. lines.jsonl has the same 21 lines as JSON Lines. The line with one letter is
/// too short to be a sample.
struct Records : Train {
  std::string const records = tiny + "--data lines.txt --samples-are lines ";
  Records() {
    std::string lines, json;
    for (int i = 1; i <= 21; ++i) {
      std::string const line = (std::to_string(i) + "abc abc abc abc abc abc ").substr(0, i);
      lines += line + "\n\n";
      json += "{\"n\": " + std::to_string(i) + ", \"body\": \"" + line + "\"}\n";
    }
    write("lines.txt", lines);
    write("lines.jsonl", json);
  }
};

}  // namespace

TEST_CASE(
    "train: with records the bits depend neither on the split of a step nor on the format of the file") {
  Records const sh;
  // An epoch has 20 samples, and a step has 6 samples. An epoch therefore has four steps, and its last step
  // has only two samples.
  for (std::string const precision : {"fp32", "fp16"}) {
    // Each cell of the table has the flags of one training. All trainings in one line of the table must end
    // with equal weights.
    for (auto const& recipes : test::table(R"(
        --ranks 1 --accumulation 6 --stage 0 | --ranks 6 --stage 3 --threads 1 | --ranks 3 --accumulation 2 --stage 2 --offload cpu_optimizer | --ranks 2 --accumulation 3 --stage dp
        --batch 6 | --batch 6 --data lines.jsonl --samples-are records --field body)")) {
      std::string first;
      for (std::string const& recipe : recipes) {
        INFO(precision, " ", recipe);
        sh.passes(sh.records +
                  "--batch 1 --epochs 2 --learning-rate 0.01 --clip 1 --log bits.jsonl --precision " +
                  precision + " " + recipe);
        std::string const hash = sh.weights_hash("bits.jsonl");
        if (first.empty()) first = hash;
        CHECK(hash == first);
        CHECK(sh.summary("bits.jsonl").at("steps_done") == 8);
      }
    }
  }
}

TEST_CASE("train: with records the settings, steps and epochs say what is padding") {
  Records const sh;
  sh.passes(
      sh.records + "--batch 6 --epochs 2 --learning-rate 0.01 --clip 1 --precision fp16 --log text.jsonl", R"(
      samples +lines, 12 cut to 9 tokens, [0-9.]+% of all positions padding +flag
      lines.txt, [0-9]+ bytes in 20 records, 22 too short
      step 1 [^\n]* \| with padding [0-9.]+\n
      \nepoch 2 \| 4 steps \| [0-9.]+ s \| [0-9.]+ samples/s \| loss [0-9.]+ \| with padding [0-9.]+\n)");
  auto const epochs = sh.lines("text.jsonl", "epoch");
  REQUIRE(epochs.size() == 2);
  Json const& second = epochs[1];
  sh.has_values(second, R"({"epoch": 2, "steps": 4, "samples": 20})");
  CHECK(second.at("loss_with_padding") < second.at("loss"));
  CHECK(second.at("seconds") > 0);
  CHECK(second.at("samples_per_sec") > 0);
  int padded = 0;
  for (Json const& step : sh.lines("text.jsonl", "step")) padded += step.contains("loss_with_padding");
  // The last step of each epoch has only two samples, which possibly need no padding.
  CHECK(padded >= 6);
}

TEST_CASE("train: every target of validation records counts once, for any batch") {
  Records const sh;
  std::vector<double> losses;
  for (std::string const batch : {"1", "3", "7"}) {
    sh.passes(sh.records + "--steps 1 --learning-rate 0 --validation lines.txt --log valid.jsonl --batch " +
              batch);
    Json const line = sh.lines("valid.jsonl", "validation_loss").at(0);
    // The number of targets: 1 + 2 + ... + 8 in the 8 shortest records, and 8 in each of the 12 longer
    // records.
    CHECK(line.at("tokens") == 132);
    losses.push_back(line.at("validation_loss"));
    CHECK(losses.back() == doctest::Approx(losses[0]).epsilon(1e-6));
  }
}

TEST_CASE(
    "train: --samples selects the first records, and epochs also work for samples of consecutive tokens") {
  Records const sh;
  sh.passes(sh.records + "--samples 5 --epochs 3 --log first.jsonl");
  CHECK(sh.summary("first.jsonl").at("steps_done") == 9);
  sh.passes(sh.small + "--samples 5 --log first.jsonl");
  CHECK(sh.summary("first.jsonl").at("steps_done") == 3);
  sh.refuses(sh.tiny + "--data lines.txt", R"(
      2 | --samples-are paragraphs | --samples-are | paragraphs
      2 | --samples-are lines --field body | --field | --samples-are records
      2 | --separator 3 | --separator | samples are tokens
      4 | --samples-are lines --samples 21 | lines.txt | --samples 21 | the 20 samples
      4 | --samples-are records | lines.txt: line 1 | --samples-are lines
      4 | --data lines.jsonl --samples-are records | lines.jsonl: line 1 | no field 'text', its fields are: n, body | --field)");
}

TEST_CASE("train: if a run resumes within an epoch of records, the epoch's line covers all its steps") {
  Records const sh;
  std::string const run = sh.records + "--epochs 2 --checkpoint-every 3 ";
  sh.passes(run + "--log unbroken.jsonl --checkpoint unbroken");
  sh.passes("cp unbroken.jsonl broken.jsonl; mkdir broken; cp -r unbroken/step-00000003 broken");
  sh.passes(run + "--log broken.jsonl --checkpoint broken --resume");
  Json const unbroken = sh.lines("unbroken.jsonl", "epoch").at(0);
  Json const broken = sh.lines("broken.jsonl", "epoch").at(0);
  CHECK(unbroken.at("epoch") == 1);
  for (char const* key : {"epoch", "steps", "samples", "loss", "loss_with_padding"})
    CHECK(broken.at(key) == unbroken.at(key));
}
