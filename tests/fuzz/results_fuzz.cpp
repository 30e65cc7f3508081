// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the programs read arbitrary bytes as the result file that the flag --from names. The
// reader must return command-line flags, or throw an Error with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/core/error.hpp"

#include "config/config_file.hpp"
#include "fuzz/support.hpp"
#include "results/results.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::string const& path = fuzz::file_of(fuzz::text_of(input, size));
  for (char const* row : {"", "zs2_fp16_ranks4_bs4_sl128"}) try {
      auto const document = programs::results::read_results(path);
      for (auto const& setting : programs::cli::row_settings(
               document, "compare.json", programs::cli::chosen_row(document, "compare.json", row)))
        if (!setting.flag.starts_with("--") || setting.where.empty()) std::abort();
    } catch (tessera::Error const& error) {
      fuzz::check(error, {tessera::ErrorKind::data, tessera::ErrorKind::config});
    }
  return 0;
}
