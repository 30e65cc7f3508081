// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the reader of `monitor --marks` reads arbitrary bytes as the trace of a training run. It
// must return marks (times of steps and phases) in the order of time, or throw an Error with one line of
// text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"

#include "fuzz/support.hpp"
#include "trace/marks.hpp"

namespace cli = programs::cli;

namespace {

void expect_order(std::vector<cli::Mark> const& marks, bool phases) {
  std::int64_t end = 0;
  for (cli::Mark const& mark : marks) {
    if (mark.begin < end || mark.end < mark.begin || mark.step < 1) std::abort();
    if (phases ? mark.phase < 0 || mark.phase >= cli::phase_count : mark.phase != -1) std::abort();
    end = mark.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::string const& path = fuzz::file_of(fuzz::text_of(input, size));
  for (int const rank : {0, 1}) try {
      cli::Marks const marks = cli::read_marks(path, rank, "this");
      if (marks.steps.empty() || marks.rank != rank || marks.ranks <= rank) std::abort();
      expect_order(marks.steps, false);
      expect_order(marks.phases, true);
    } catch (tessera::Error const& error) {
      fuzz::check(error);
    }
  return 0;
}
