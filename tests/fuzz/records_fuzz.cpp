// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: an arbitrary line is read as a JSON Lines record. It must give valid UTF-8, or throw
// Error(data) with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/core/error.hpp"
#include "tessera/io/json_lines.hpp"

#include "text/unicode.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::string_view const line(reinterpret_cast<char const*>(input), size);
  try {
    std::string const text = tessera::field_of(line, "text", "input: line 1");
    if (programs::text::first_invalid(text) != text.size() || text.size() > 3 * line.size()) std::abort();
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
