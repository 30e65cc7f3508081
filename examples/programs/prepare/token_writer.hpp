// SPDX-License-Identifier: Apache-2.0
// Writes a token file in the format of llm.c: a header, then the token ids. While the file is incomplete, its
// name ends in .partial, and a later run can continue it.
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
  static constexpr std::int64_t max_tokens = (std::int64_t{1} << 31) - 1;  // the header stores an int32

  /// Starts a new file if `hash` is empty. Otherwise continues the incomplete file of an earlier run after
  /// its first `tokens` tokens. `hash` must be the hash of these tokens. Throws Error if the file cannot be
  /// written or continued.
  TokenWriter(std::filesystem::path path, TokenFormat format, std::int64_t tokens = 0,
              std::string const& hash = {});

  /// Appends tokens. Throws Error(data) if the file would have more than `max_tokens` tokens.
  void write(std::span<std::uint32_t const> ids);
  /// Waits until all written data is on disk.
  void sync();
  /// Writes the header and renames the file to its final name.
  void commit();

  std::filesystem::path const& path() const { return path_; }
  std::int64_t tokens() const { return tokens_; }
  /// Returns the XXH3-128 of the stored ids as 32 hexadecimal digits.
  std::string hash() const;

  /// Returns the name that the file `path` has while it is incomplete.
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

/// Returns the XXH3-128 of the bytes of a file from byte `offset` to the end.
std::string hash_of_file(std::filesystem::path const& path, std::size_t offset);

}  // namespace cli
}  // namespace programs
