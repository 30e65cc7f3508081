// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the program `report` reads arbitrary bytes as a file of results. The reader must return
// rows that name their source and whose numbers can be drawn in figures, or throw an Error with one line of
// text.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/core/error.hpp"

#include "fuzz/support.hpp"
#include "report/reading.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  using namespace programs::reporting;
  std::string const& path = fuzz::file_of(fuzz::text_of(input, size));
  try {
    Inputs inputs;
    read_file(path, inputs);
    name_sources(inputs.sources);
    if (inputs.sources.size() != 1 || inputs.sources[0].label.empty()) std::abort();
    auto const check_row = [](Row const& row) {
      if (row.source != 0 || row[Word::experiment].empty()) std::abort();
      for (auto const& number : row.numbers)
        if (number && !std::isfinite(*number)) std::abort();
    };
    for (auto const* const rows : {&inputs.rows, &inputs.plans})
      for (Row const& row : *rows) check_row(row);
    for (Rival const& rival : inputs.rivals) {
      check_row(rival.row);
      if (rival.program.empty() || rival.machine.empty()) std::abort();
    }
    for (Recording const& recording : inputs.recordings)
      if (recording.values.size() != recording.columns.size()) std::abort();
  } catch (tessera::Error const& error) {
    fuzz::check(error);
  }
  return 0;
}
