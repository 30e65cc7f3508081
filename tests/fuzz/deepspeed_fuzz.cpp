// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary text is read as a DeepSpeed configuration. It must give flags, or throw
// Error(config) with one line of text. This command builds the target:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Iexamples/programs
//     tests/fuzz/deepspeed_fuzz.cpp examples/programs/config/deepspeed*.cpp
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/core/error.hpp"

#include "config/deepspeed.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  std::string_view const text(reinterpret_cast<char const*>(bytes), size);
  try {
    programs::cli::DeepSpeedRun const run =
        programs::cli::read_deepspeed(text, "fuzz.json", [](std::string const&) { return nullptr; });
    for (auto const& setting : run.settings)
      if (!setting.flag.starts_with("--") || setting.where.empty()) std::abort();
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::config || std::strchr(error.what(), '\n') != nullptr)
      std::abort();
  }
  return 0;
}
