// SPDX-License-Identifier: Apache-2.0
// Checks every flags file (file with command-line flags of `compare`) in examples/experiments. The program
// `compare` must accept the flags. The comments in the flags file must name the publication whose experiment
// it repeats and, for published figures, the assumptions. The table of the README must list the flags file.
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
    // The power and the utilisation of a GPU can be measured only if the GPU works for some seconds. Whole
    // epochs take long enough for this.
    if (!name.starts_with("cpu-")) test::shows(flags, "--min-time 3|--epochs ");
    if (has(comments, "# Published")) {
      // With --published, compare prints the published figures of published.json next to the measured ones.
      test::shows(flags, "--published " + entry.path().stem().string() + R"([ \n])");
      test::shows(comments, "[Aa]ssum");
    }
  }
  CHECK(files > 0);
}
