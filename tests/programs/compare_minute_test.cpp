// SPDX-License-Identifier: Apache-2.0
// Tests the program `compare` if its flags set neither the rows of the table nor the number of steps.
// `compare` must train for the first row, print how many rows and steps fit into one minute, and then train
// for these rows.
#include "programs/compare_support.hpp"

using test::Compare, test::field, test::Json, test::shows;

namespace {

/// Checks the printed text and the files of a comparison that lasts one minute and whose rows the program
/// `compare` chose.
void is_minute(Compare const& sh, std::string const& text) {
  shows(text, R"(
      ^measuring zs0_bf16_ranks4_bs4_sl128 to find out how many recipes fit into a minute\ntrains [2-8] recipes for [125] . [0-9]+ steps each: about\x20
      \[1/[2-8]\] zs0_bf16_ranks4_bs4_sl128: ok
      \nleft out of this minute: [^\n]*97 of all 105 recipes\n)");
  Json const rows = field(sh.json("results/compare.json"), "rows");
  CHECK(rows.size() >= 2);
  CHECK(rows.size() <= 8);
  CHECK(field(rows, 0, "status") == "ok");
  CHECK(sh.exists("results/report.html"));
}

}  // namespace

TEST_CASE("compare minute: an interrupted run of a minute keeps its rows") {
  // The test freezes most parameters, so a training step is faster.
  Compare const sh;
  CHECK(sh.signalled("INT", "^.1/[2-8]. ", "out.txt",
                     "compare --data text.txt --seed 7 --freeze 'h[.]|wte|wpe'") == 130);
  is_minute(sh, sh.text("out.txt"));
  shows(sh.text("out.txt"), R"(\[2/[2-8]\] zs1_bf16_ranks4_bs4_sl128: failed: interrupted by SIGINT)");
}

// This test case needs one minute, so only `ctest -L long` runs it.
TEST_CASE("compare minute: a complete run takes a minute and suggests command lines" * doctest::skip()) {
  Compare const sh;
  auto const result = sh.run("date +%s > began; compare --data text.txt --seed 7; date +%s > ended");
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK(std::stol(sh.text("ended")) - std::stol(sh.text("began")) <= 75);
  is_minute(sh, result.out);
  shows(result.out, R"(
      \nnext:\n  [^\n]*compare --data text.txt --seed 7 --full +all 105 recipes, about [^\n]*\n  xdg-open results/report.html [^\n]*\n  [^\n]*compare --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 2 --warmup-steps 1\x20)");
}

TEST_CASE(
    "compare minute: the suggested command is a published comparison, and flags for rows end the selection") {
  Compare const sh;
  sh.passes(
      R"(compare --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 2 --warmup-steps 1 --data text.txt --print-config)",
      R"(\n--published +stage-sweep[^\n]*\n)");
  for (std::string const flag : {"--pairs", "--ranks 4", "--steps 1"})
    sh.passes("compare --data text.txt --print-config " + flag, R"(\n# --stages +# default\n)");
}
