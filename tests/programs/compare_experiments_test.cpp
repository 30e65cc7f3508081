// SPDX-License-Identifier: Apache-2.0
// Checks every flags file of examples/experiments. compare must accept the flags of the file. The comments of
// the file must name the work that the experiment repeats and, for published figures, the assumptions. The
// table of the README must list the file.
#include "programs/harness.hpp"

using test::has;

TEST_CASE("compare: each flags file of the experiments is accepted, explained and listed") {
  test::Shell const sh;
  std::filesystem::path const folder = TESSERA_SOURCE "/examples/experiments";
  std::string const readme = test::read(folder / "README.md");
  int files = 0;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".flags") continue;
    ++files;
    std::string const name = entry.path().filename();
    INFO(name);
    std::string flags, comments;
    std::istringstream lines(test::read(entry.path()));
    for (std::string line; std::getline(lines, line);)
      (line[0] == '#' ? comments : flags) += " " + line + "\n";
    sh.passes("compare --list @" + entry.path().string());
    CHECK(std::count(comments.begin(), comments.end(), '\n') >= 2);
    CHECK(has(readme, "`" + name + "`"));
    // A GPU must work for seconds before its power and utilisation can be measured. Epochs are long enough
    // for this.
    if (!name.starts_with("cpu-")) test::shows(flags, "--min-time 3|--epochs ");
    if (has(comments, "# Published")) {
      // With --published, compare prints the published figures of published.json next to the measured ones.
      test::shows(flags, "--published " + entry.path().stem().string() + R"([ \n])");
      test::shows(comments, "[Aa]ssum");
    }
  }
  CHECK(files > 0);
}
