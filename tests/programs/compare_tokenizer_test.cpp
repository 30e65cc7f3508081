// SPDX-License-Identifier: Apache-2.0
// Tests the program `compare` if it converts its text with a tokenizer, and the settings that `compare
// --print-config` then prints.
#include "programs/compare_support.hpp"

using test::Compare, test::field, test::Json, test::shows;

namespace {

/// Runs commands in a folder with a file of 41 records. The flags that it provides let `compare` and `train`
/// convert these records with a tokenizer.
struct Tokens : Compare {
  Tokens() {
    passes(
        R"(seq 0 40 | sed 's/.*/{"id": &, "body": "Record & of the quick brown foxes, and & more."}/' > records.jsonl)");
  }
  static inline std::string const input =
      R"( --model layers=1,heads=2,channels=16 --sequence 12 --data records.jsonl --tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2 )";
  static inline std::string const two_rows =
      " --batch 2 --ranks 2 --stages 0,2 --precisions fp32 --offloads none --warmup 1 ";
  static inline std::string const records = "--samples-are records --field body --samples 30 --epochs 1 ";

  Json weights_of_train(std::string const& flags) const {
    passes("train --log train.jsonl --quiet " + flags);
    return field(json_lines("train.jsonl").back(), "summary", "weights_hash");
  }
};

}  // namespace

TEST_CASE("compare tokenizer: rows end with train's weights, and train --from repeats them") {
  Tokens const sh;
  // Each row of the table below is: flags of `compare` | flags of `train`. They describe the same training
  // run. `compare` adds one warm-up step to --steps, so --steps of `train` is one more.
  for (auto const& row : test::table(
           "--field body --steps 3 | --field body --steps 4\n" + sh.records + " | " + sh.records +
           "\n--samples-are lines --samples 20 --steps 4 | --samples-are lines --samples 20 --steps 5")) {
    Json const measured = sh.rows(row[0] + sh.input + sh.two_rows, "vocabulary +420 +data").at(1);
    CHECK(sh.weights_of_train(row[1] + sh.input +
                              "--batch 2 --ranks 2 --stage 2 --learning-rate 1e-3 --clip 1") ==
          measured.at("weights_hash"));
    CHECK(sh.weights_of_train("--from document.json --row " + measured.at("experiment").get<std::string>()) ==
          measured.at("weights_hash"));
  }
}

TEST_CASE(
    "compare tokenizer: --print-config prints the values of absent flags, and its lines give the same rows") {
  Tokens const sh;
  std::string const flags = sh.input + sh.records + sh.two_rows;
  std::string const lines = sh.passes("compare --json again.json --print-config" + flags);
  sh.passes("compare " + std::regex_replace(lines, std::regex(R"( *# [^\n]*\n)"), " "));
  CHECK(field(sh.json("again.json"), "rows", 1, "weights_hash") == field(sh.rows(flags), 1, "weights_hash"));
  sh.passes("compare --data text.txt --precisions fp16 --ranks 2 --global-batch 8 --print-config", R"(
      \n--loss-scale dynamic +# default\n
      \n--batch 4 +# default\n
      \n--accumulation 1 +# default\n
      \n# --tokenizer +# default\n)");
  sh.passes("compare --data text.txt --precisions fp16 fp32 --print-config",
            R"(\n# --loss-scale +# default\n)");
}

TEST_CASE("compare tokenizer: a missing tokenizer and a missing field are refused") {
  Tokens const sh;
  sh.refuses("compare",
             "2 | --data text.txt --field body | --field applies only to records, but samples are tokens");
  sh.refuses("compare" + sh.input, R"(
      4 | --tokenizer nowhere | nowhere: no such folder | tokenizer.json | docs/how-to/load-and-save-weights.md has the command that downloads one
      4 | --steps 3 | records.jsonl: line 1 | body)");
}
