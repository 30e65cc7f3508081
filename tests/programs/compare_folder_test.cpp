// SPDX-License-Identifier: Apache-2.0
// Tests of several runs of the program `compare` that use one output folder, at the same time or one after
// the other.
#include "programs/compare_support.hpp"

using test::Compare;

namespace {

std::string const folder_row = "compare --ranks 1 --precisions fp32 --offloads none" + Compare::brief;

/// Returns a shell script. The script starts a comparison, executes the commands `meanwhile` while the
/// comparison trains for its first row, and then kills the comparison.
std::string during_a_row(std::string const& flags, std::string const& meanwhile) {
  return "rm -f first.txt; " + folder_row + "--stages 0 --min-time 60 " + flags +
         R"( > first.txt & pid=$!; tries=0
      trap 'kill -9 $pid; wait $pid 2> /dev/null || :' EXIT
      until grep -qs ' rows ' first.txt; do
        tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.05
      done
      )" +
         meanwhile;
}

}  // namespace

TEST_CASE("compare folder: a second comparison is refused in the folder or file of a running one") {
  Compare const sh;
  auto end = sh.run(during_a_row("", folder_row + "--output-dir elsewhere > second.txt; " + folder_row));
  CHECK(end.code == 1);
  CHECK(end.err ==
        "error: results: another compare is writing its files there; wait until it has ended, or give "
        "another --output-dir\n");
  sh.write("rows.json", "of an earlier comparison");
  end = sh.run(during_a_row("--json rows.json", folder_row + "--json rows.json"));
  CHECK(end.code == 1);
  CHECK(end.err ==
        "error: rows.json: another run writes there; wait until it has ended, or give another name\n");
  sh.passes(folder_row);  // the killed process no longer locks the folder
}

TEST_CASE("compare folder: older runs of the rows are removed, and foreign files and other rows are not") {
  Compare const sh;
  sh.passes(folder_row + "--stages 0,1 --repeat 3");
  sh.write("results/zs1_fp32_ranks1_bs2_sl16/run3/notes.txt", "mine");
  sh.write("results/zs1_fp32_ranks1_bs2_sl16/runs/step_log.csv", "mine");
  sh.passes(folder_row + "--stages 1");
  CHECK(sh.passes("cd results; LC_ALL=C; echo compare.* */*/* report.html") ==
        "compare.csv compare.json "
        "zs0_fp32_ranks1_bs2_sl16/run1/step_log.csv zs0_fp32_ranks1_bs2_sl16/run2/step_log.csv "
        "zs0_fp32_ranks1_bs2_sl16/run3/step_log.csv zs1_fp32_ranks1_bs2_sl16/run1/step_log.csv "
        "zs1_fp32_ranks1_bs2_sl16/run3/notes.txt zs1_fp32_ranks1_bs2_sl16/runs/step_log.csv report.html\n");
  CHECK_FALSE(sh.exists("results/zs1_fp32_ranks1_bs2_sl16/run2"));
}
