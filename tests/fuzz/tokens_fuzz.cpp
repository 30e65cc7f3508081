// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a token file. They must give tokens that are inside the file,
// or throw Error(data). This command builds the target:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/tokens_fuzz.cpp
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/token_file.hpp"

namespace {

template <class T>
void check_scan(std::byte const* data, std::int64_t tokens, std::int64_t vocabulary) {
  auto const* const values = reinterpret_cast<T const*>(data);
  std::int64_t const found = tessera::detail::first_at_or_above(values, tokens, vocabulary);
  for (std::int64_t i = 0; i < (found < 0 ? tokens : found); ++i)
    if (values[i] >= vocabulary) std::abort();
  if (found >= tokens || (found >= 0 && values[found] < vocabulary)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::vector<std::byte> bytes(size);  // aligned, and without spare bytes after the end
  if (size > 0) std::memcpy(bytes.data(), input, size);
  try {
    auto const layout = tessera::token_layout(
        std::span<std::byte const>(bytes).first(std::min(size, tessera::token_head_bytes)), size,
        "input.bin");
    auto const width = tessera::bytes_per_token(layout.format);
    if (layout.tokens < 1) std::abort();
    if (layout.offset + static_cast<std::size_t>(layout.tokens * width) != size) std::abort();
    for (std::int64_t const vocabulary : {1, 256, 50257, 65536, 128256}) {
      if (layout.format == tessera::TokenFormat::u16)
        check_scan<std::uint16_t>(bytes.data() + layout.offset, layout.tokens, vocabulary);
      else
        check_scan<std::uint32_t>(bytes.data() + layout.offset, layout.tokens, vocabulary);
    }
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
