// SPDX-License-Identifier: Apache-2.0
// A token file as it is written: llm.c's header, then ids. Until it is whole it has another name, under which
// a later run finds it and goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/file_bytes.hpp"
#include "tessera/data/token_file.hpp"
#include "tessera/io/xxhash.hpp"

namespace programs {
using namespace tessera;
namespace cli {

class TokenWriter {
 public:
  static constexpr std::int64_t most_tokens = (std::int64_t{1} << 31) - 1;  // what the header can say

  /// Begins anew, or goes on behind `tokens` tokens of an earlier run whose hash must be `hash`. Throws
  /// Error.
  TokenWriter(std::filesystem::path path, TokenFormat format, std::int64_t tokens = 0,
              std::string const& hash = {});

  /// Throws Error(data) for more tokens than a header can say.
  void write(std::span<std::uint32_t const> ids);
  /// What was written is on the disk when this returns.
  void sync();
  /// Writes the header and gives the file its name.
  void commit();

  std::filesystem::path const& path() const { return path_; }
  std::int64_t tokens() const { return tokens_; }
  /// XXH3-128 of the ids as they are stored, 32 hexadecimal digits.
  std::string hash() const;

  /// The name until the file is whole.
  static std::filesystem::path partial(std::filesystem::path path) { return path += ".partial"; }

 private:
  void flush();

  std::filesystem::path path_;
  TokenFormat format_;
  files::Descriptor file_;
  std::string buffer_;
  XXH3_state_t state_;
  std::int64_t tokens_ = 0;
};

/// XXH3-128 of bytes from `offset` to the end of a file.
std::string hash_of_file(std::filesystem::path const& path, std::size_t offset);

}  // namespace cli
}  // namespace programs
