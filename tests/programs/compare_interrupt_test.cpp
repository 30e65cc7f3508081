// SPDX-License-Identifier: Apache-2.0
// Tests comparisons of the program `compare` that a signal ends. The test sends the signal as soon as the
// printed text in out.txt shows that a certain row of the table is complete.
#include "programs/compare_support.hpp"

using test::column, test::Compare, test::field, test::Json, test::matches, test::shows;

namespace {

std::string const ended_rows =
    "compare --model layers=1,heads=2,channels=32 --data text.txt --sequence 32 --batch 2 --warmup 0 "
    "--ranks 2 --offloads none --steps 1 ";

}  // namespace

TEST_CASE("compare interrupt: Ctrl-C, SIGTERM and SIGHUP end the row after its step, and rows are written") {
  Compare const sh;
  for (auto const& row : test::table("INT | 130\n TERM | 143\n HUP | 129")) {
    sh.passes("rm -f out.txt rows.json");
    int const code = sh.signalled(
        row[0], "^.1/3.", "out.txt",
        ended_rows + "--stages 0 --precisions fp32,bf16,fp16 --min-time 1 --json rows.json", "0.2");
    CHECK_MESSAGE(std::to_string(code) == row[1], sh.text("err.txt"));
    Json const rows = field(sh.json("rows.json"), "rows");
    CHECK(column(rows, "status") == Json{"ok", "failed", "failed"});
    shows(field(rows, 1, "reason"), "^interrupted by SIG" + row[0] + " after step [0-9]+");
    shows(field(rows, 2, "reason"), "^not run: interrupted by SIG" + row[0]);
  }
}

TEST_CASE("compare interrupt: SIGKILL loses no finished row") {
  for (std::string const files :
       {"--output-dir results", "--json results/compare.json --csv results/compare.csv"}) {
    Compare const sh;
    sh.write("results/report.html", "of an earlier comparison");
    CHECK(sh.signalled("KILL", "^.4/6.", "out.txt",
                       ended_rows +
                           "--stages 1 --precisions fp32,bf16,fp16 --recompute none,block --min-time 0.3 " +
                           files) == 137);
    Json const document = sh.json("results/compare.json"), rows = document.at("rows");
    CHECK(document.at("wall_s").is_null());
    // The test kills `compare` after the fourth row is complete. At this moment, a fifth row is possibly
    // complete too. `compare` writes the step log of a row before the JSON file, and the JSON file before the
    // CSV file.
    CHECK(rows.size() >= 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(field(rows, i, "status") == "ok");
    std::size_t const lines = sh.lines("results/compare.csv").size();
    CHECK(lines >= 5);
    CHECK(lines <= 6);
    bool const in_folder = files.starts_with("--output-dir");
    // At its start, `compare` removes the HTML page of an earlier comparison only if --output-dir names the
    // folder.
    CHECK(sh.exists("results/report.html") != in_folder);
    if (in_folder) CHECK(matches(sh.listed("results"), "/run1/step_log\\.csv\n").size() >= rows.size());
  }
}

TEST_CASE("compare interrupt: before a row has finished nothing is written, and earlier files stay") {
  Compare const sh;
  sh.write("old.json", "of an earlier comparison");
  CHECK(sh.signalled("INT", " rows ", "out.txt",
                     ended_rows + "--stages 0 --precisions fp32 --min-time 60 --json old.json --csv new.csv",
                     "0.5") == 130);
  CHECK(sh.text("old.json") == "of an earlier comparison");
  CHECK(sh.exists("new.csv"));
  shows(sh.text("out.txt"), "left old.json as it was: interrupted before a row was finished");
}
