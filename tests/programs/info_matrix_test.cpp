// SPDX-License-Identifier: Apache-2.0
// Tests the script tests/matrix/run, which makes the support matrix (the table of all combinations of
// policies that work). The script uses the programs `info` and `compare`. The tests run it on a part of the
// matrix.
#include "programs/harness.hpp"

using test::field, test::has, test::Json, test::Shell, test::table;

namespace {

struct Matrix : Shell {
  Matrix() { passes("mkdir out other planted"); }

  /// Executes the script once for each row of a table. A row of the table is "exit code | arguments | text |
  /// text". The output of the script must contain all texts of the row. If the exit code is 2, the script
  /// must print one line with an error.
  void ends(std::string const& rows) const {
    for (auto const& row : table(rows)) {
      auto const end = run(
          R"sh(BIN=$(dirname "$(command -v compare)"); "$TESSERA_SOURCE"/tests/matrix/run )sh" + row.at(1));
      INFO(row[1], "\n", end.out, end.err);
      CHECK(std::to_string(end.code) == row[0]);
      if (end.code == 2) test::shows(end.err, R"(^tests/matrix/run: .+\n$)");
      for (std::size_t i = 2; i < row.size(); ++i) CHECK_MESSAGE(has(end.out + end.err, row[i]), row[i]);
    }
  }
  /// Checks the JSON file of the support matrix in `folder`. Each row of the table `rows` is "number |
  /// expression of grep -E". Exactly this number of lines of the file must match the expression.
  void cells(std::string const& folder, std::string const& rows) const {
    for (auto const& row : table(rows))
      CHECK_MESSAGE(
          run("grep -cE '" + row.at(1) + "' " + folder + "/support-matrix.json").out == row[0] + "\n",
          row[1]);
  }
  void page_says(std::string const& folder, std::string const& text) const {
    CHECK_MESSAGE(has(this->text(folder + "/support-matrix.md"), text), text);
  }
  /// Creates a faulty replacement of the program `program` in the folder `planted`. The replacement runs the
  /// original program and then the commands `script`, which change the output file of the original program.
  void plant(std::string const& program, std::string const& script) const {
    write("planted/" + program,
          "#!/bin/sh\n" + program + " \"$@\"\ncode=$?\nfor last; do :; done\n" + script + "\nexit $code\n");
    passes("chmod +x planted/" + program);
  }
};

}  // namespace

TEST_CASE("support matrix: cells pass, are refused or did not run, and a later run replaces only its own") {
  Matrix const sh;
  sh.ends(R"(
      0 | "$BIN" out --families opt --stages dp,zs2 --precisions fp32,tf32 --offloads none,cpu_full --recompute none,block --commit first --date 2026-01-02 | 24 passed | 24 refused)");
  sh.cells("out", R"re(
      12 | ^\["opt", "cpu", "(dp|zs0|zs2)", "fp32", "(none|cpu_full)", "(none|block)", "none", "flat", "passed", 0, null\],?$
      6 | ^\["opt", "cpu", "(dp|zs0|zs2)", "fp32", "(none|cpu_full)", "none", "lora", "flat", "passed", 0, null\],?$
      6 | ^\["opt", "cpu", "(dp|zs0|zs2)", "fp32", "(none|cpu_full)", "none", "none", "replicate=2", "passed", 1, null\],?$
      24 | ^\["opt", "cpu", .*"tf32", .*"refused", [01], [0-9]+\],?$
      48 | "(passed|refused|failed)"
      1 | "commit": "first", "ranks": \[2,4\])re");
  CHECK(test::matches(sh.text("out/support-matrix.json"), R"("not run", null, [0-9]+\],?\n)").size() >= 1000);
  Json const run = field(sh.json("out/support-matrix.json"), "runs", 0);
  CHECK(run.at("commit") == "first");
  CHECK(run.at("date") == "2026-01-02");
  CHECK(run.at("ranks") == Json{1, 2});
  CHECK(run.at("machine") != "");
  sh.page_says("out", ". --precision tf32");
  sh.page_says("out", "passed: none, block; not run (");
  sh.page_says("out", "| all | all | not run (");  // no training on this device

  std::string const one =
      " --precisions fp32 --offloads none --recompute none --variants plain --commit second --date "
      "2026-01-03";
  sh.ends(R"(
      0 | --check "$BIN" out | cells are all there
      0 | "$BIN" out --families opt --stages zs0 --ranks 1)" +
          one + " | 1 passed");
  sh.cells("out", R"(
      12 | "fp32", .*"none", "flat", "passed", [0-9], null
      11 | "fp32", .*"none", "flat", "passed", 0, null
      1 | "commit": "second", "ranks": \[1\])");
  sh.page_says("out", "(run ");
  sh.ends(R"(
      0 | "$BIN" other --families gpt2 --stages zs3 --precisions fp64 --offloads none --recompute none --variants plain --commit third --date 2026-01-04 | 2 passed
      0 | --merge other/support-matrix.json "$BIN" out
      0 | --check "$BIN" out | cells are all there)");
  sh.cells("out", R"(
      26 | "passed"
      2 | "gpt2", "cpu", .*"fp64", .*"passed", 0, null)");
}

TEST_CASE("support matrix: numbers of ranks without a common divisor train the same global batch") {
  Matrix const sh;
  sh.ends(R"(
      0 | "$BIN" out --families gpt2 --stages zs0 --precisions fp32 --offloads none --recompute none --variants plain,mesh --ranks 1,3 --commit odd | 2 passed)");
  sh.cells("out", R"(
      2 | "passed"
      1 | "commit": "odd", "ranks": \[1,3\]
      1 | "commit": "odd", "ranks": \[2,4\])");
}

TEST_CASE("support matrix: any text of one line is a commit or a date, and the file stays valid JSON") {
  Matrix const sh;
  std::string const run =
      R"sh("$(dirname "$(command -v compare)")" out --families gpt2 --stages zs0 --precisions fp32 --offloads none --recompute none --variants plain --ranks 1 )sh";
  std::string const script = R"("$TESSERA_SOURCE"/tests/matrix/run )";
  sh.passes(script + run + R"(--commit 'a"b\c|d' --date "it's now" 2> log.txt)");
  Json const made = field(sh.json("out/support-matrix.json"), "runs", 0);
  CHECK(made.at("commit") == R"(a"b\c|d)");
  CHECK(made.at("date") == "it's now");
  sh.page_says("out", R"(| it's now | a"b\c\|d | 1 |)");
  sh.passes(script + R"sh(--check "$(dirname "$(command -v compare)")" out)sh", "cells are all there");
  CHECK(sh.run(script + run + "--commit \"$(printf 'a\\nb')\"").err ==
        "tests/matrix/run: --commit has a line break or another control character; give one line of text\n");
}

TEST_CASE("support matrix: errors planted into weights, losses and rows of compare fail their cells") {
  Matrix const sh;
  sh.passes("ln -s \"$(command -v info)\" planted");
  std::string const flags =
      " --families gpt2 --stages zs2 --precisions fp32 --offloads none --recompute none --variants plain "
      "--commit planted";
  // Each row of the table below is: experiment name of a row of compare's results | commands of sed that
  // change this row | texts that the script must print.
  for (auto const& row : table(R"(
      zs2_fp32_ranks2_bs2_sl16 | s/"weights_hash": ".../"weights_hash": "123/ | 1 passed | 1 failed | zs2, fp32, offload none, recompute none, adapters none, mesh flat: 2 ranks: its weights differ from the weights of zs0
      zs2_fp32_ranks2_bs2_sl16 | /"losses"/,/]/ s/[0-9].*,/null,/ | 1 passed | 1 failed | 2 ranks: a loss is not finite
      zs2_fp32_ranks2_bs2_sl16 | s/"skipped_steps": 0/"skipped_steps": 3/ | 1 passed | 1 failed | 2 ranks: steps were skipped
      zs2_fp32_ranks2_bs2_sl16 | s/"world": 2/"world": 3/ | 1 passed | 1 failed | 2 ranks: compare has no such row
      zs2_fp32_ranks2_bs2_sl16 | s/"status": "ok"/"status": "oom"/ | 1 passed | 1 failed | zs2, fp32, offload none, recompute none, adapters none, mesh flat: 2 ranks
      zs0_fp32_ranks1_bs2_sl16_acc2 | s/"status": "ok"/"status": "failed"/ |  | 2 failed | zs0 without offload and recomputation did not pass)")) {
    sh.plant("compare",
             "sed -i '/\"experiment\": \"" + row[0] + "\"/,/\"hashed_steps\"/ { " + row[1] + " }' \"$last\"");
    sh.ends("1 | planted other" + flags + " | " + row[2] + " | " + row[3] + " | " + row[4]);
  }
  sh.cells("other", R"(1 | "zs2", "fp32", .*"failed", [0-9]+, [0-9]+)");
  sh.page_says("other", "failed (");
}

TEST_CASE("support matrix: pages, files and builds that do not match, and wrong command lines are errors") {
  Matrix const sh;
  sh.ends(
      "0 | \"$BIN\" out --families opt --stages zs0 --precisions fp32 --offloads none --recompute none "
      "--commit opt");
  std::string const page = sh.text("out/support-matrix.md"), json = sh.text("out/support-matrix.json");
  sh.write("out/support-matrix.md", page + "by hand\n");
  sh.ends("1 | --check \"$BIN\" out | support-matrix.md differs from | by hand");
  sh.write("out/support-matrix.md", page);
  sh.write("out/support-matrix.json",
           test::replaced(json, R"(\["opt", "cpu", "zs1", "fp32", "none", "none"[^\n]*\n)", ""));
  sh.ends("1 | --check \"$BIN\" out | does not have the cells of this build");
  sh.write("out/support-matrix.json", "{}\n");
  sh.ends("2 | --check \"$BIN\" out | is not a support matrix");
  sh.write("out/support-matrix.json", json);
  sh.plant("compare", "");
  sh.plant("info", R"(sed -i 's/^      "block": {$/      "some": {\n      },\n&/' "$last")");
  sh.ends(R"(
      1 | --check planted out | does not have the cells of this build | "some"
      2 | --check nowhere out | there is no program
      2 | "$BIN" out --stage zs1 | no option is called '--stage'
      2 | "$BIN" out --ranks 0 | --ranks '0' is not a list of numbers
      2 | "$BIN" out --mesh-ranks 2,3 | --mesh-ranks has 3, but two replicas need an even number of ranks
      2 | "$BIN" out --mesh-ranks two | --mesh-ranks 'two' is not a list of numbers
      2 | --merge nothing.json "$BIN" out | cannot be read)");
  sh.ends(test::each("FLAG", "families stages precisions offloads recompute variants device",
                     "2 | \"$BIN\" out --FLAG zs9 | 'zs9' is not a choice of | there are "));
  Json const cuda = field(Json::parse(sh.passes("info --json")), "slots", "device", "cuda");
  if (cuda.contains("reason") && cuda.at("reason").is_string())
    sh.ends("2 | \"$BIN\" out --device cuda | " + cuda.at("reason").get<std::string>());
}
