// SPDX-License-Identifier: Apache-2.0
// Text to read: files, folders, standard input, compressed by gzip or zstd or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace text {

/// The bytes of one input, unpacked where its first bytes say that it is packed. Takes a fixed amount of
/// memory.
class ByteStream {
 public:
  /// "-" is standard input. Throws Error(data) that names the path.
  static std::unique_ptr<ByteStream> open(std::string const& path);
  virtual ~ByteStream() = default;

  /// Up to `size` next bytes, 0 at the end only. Throws Error(data) for a file that is damaged or cut short.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Passes over bytes that were read in an earlier run; false where there are not so many.
  virtual bool skip(std::int64_t bytes);
  /// Bytes of the file that were read so far, packed as they are.
  virtual std::int64_t consumed() const = 0;
};

/// Appends to `out` until it has `size` bytes; false at the end of the stream.
bool fill(ByteStream& stream, std::string& out, std::size_t size);

enum class InputFormat { by_name, text, records };

struct InputFile {
  std::string path;          ///< "-": standard input
  bool records = false;      ///< JSONL: each line is a document
  std::int64_t size = 0;     ///< as it lies on the disk; 0 for standard input
  std::int64_t changed = 0;  ///< when, in nanoseconds
};

struct Inputs {
  std::vector<InputFile> files;
  std::int64_t skipped = 0;  ///< entries of folders
  std::int64_t bytes() const;
};

/// What `paths` name, folders opened up as `--data` does it: regular files that are not hidden, in the byte
/// order of their paths; those that are no text by their first bytes are skipped. By name, JSONL is what ends
/// in .jsonl or .ndjson, and in .json if each line is an object; a named .json of another form is refused.
/// Throws Error(data).
Inputs find_inputs(std::vector<std::string> const& paths, InputFormat format);

}  // namespace text
}  // namespace programs
