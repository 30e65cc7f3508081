// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a safetensors file. They must give tensors that are inside
// the file, or throw Error(data). This command builds the target:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/safetensors_fuzz.cpp
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/safetensors_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  // For most inputs, this code replaces the first eight bytes by a valid length of the header. Without this,
  // the reader would refuse almost all inputs at this length.
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), input, size);
  if (size > 8 && bytes[7] == std::byte{0}) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    length %= size - 7;
    std::memcpy(bytes.data(), &length, sizeof length);
  }
  try {
    auto const header = tessera::parse_safetensors(bytes, "input");
    std::uint64_t covered = 0;
    unsigned sum = 0;
    for (auto const& entry : header.entries) {
      if (entry.elements() < 0 || entry.begin > entry.end) std::abort();
      auto const data = std::span(bytes).subspan(static_cast<std::size_t>(header.data_offset + entry.begin),
                                                 static_cast<std::size_t>(entry.end - entry.begin));
      for (std::byte const byte : data) sum += std::to_integer<unsigned>(byte);
      covered += data.size();
    }
    if (covered + static_cast<std::uint64_t>(header.data_offset) != size) std::abort();
    [[maybe_unused]] unsigned const volatile kept = sum;
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
