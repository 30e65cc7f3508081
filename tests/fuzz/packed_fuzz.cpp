// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a text file, compressed or not. They must be decompressed in
// a fixed amount of memory, or throw Error(data) with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "tessera/core/error.hpp"

#include "text/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  // The first input byte selects the magic number at the start of the file: none, gzip or zstd. Without this,
  // hardly any arbitrary bytes would begin with a magic number.
  static constexpr char const* magics[] = {"", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd"};
  std::string bytes = size > 0 ? magics[input[0] % 3] : "";
  if (size > 1) bytes.append(reinterpret_cast<char const*>(input) + 1, size - 1);
  static int const file = ::memfd_create("input", 0);
  static std::string const path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  try {
    auto const stream = programs::text::ByteStream::open(path);
    char block[4096];
    for (int times = 0; times < 4096; ++times) {
      std::size_t const got = stream->read(block, sizeof block);
      if (got > sizeof block) std::abort();
      if (got == 0) break;
    }
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
