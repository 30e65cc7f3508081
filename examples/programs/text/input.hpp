// SPDX-License-Identifier: Apache-2.0
// Finds and reads input text: files, folders and standard input, optionally compressed by gzip or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace text {

/// Reads the bytes of one input. Decompresses the input if its first bytes are those of gzip or zstd. Needs a
/// fixed amount of memory.
class ByteStream {
 public:
  /// Opens a path; "-" is standard input. Throws Error(data), which names the path.
  static std::unique_ptr<ByteStream> open(std::string const& path);
  virtual ~ByteStream() = default;

  /// Reads up to `size` bytes. Returns 0 only at the end. Throws Error(data) for a damaged or truncated file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Skips bytes that an earlier run has read. Returns false if the input is shorter.
  virtual bool skip(std::int64_t bytes);
  /// Returns the number of bytes read from the file so far, before decompression.
  virtual std::int64_t consumed() const = 0;
};

/// Reads from the stream until `out` has `size` bytes. Returns false if the stream ended first.
bool fill(ByteStream& stream, std::string& out, std::size_t size);

enum class InputFormat { by_name, text, records };

struct InputFile {
  std::string path;          ///< "-": standard input
  bool records = false;      ///< JSONL: each line is a document
  std::int64_t size = 0;     ///< size on disk in bytes; 0 for standard input
  std::int64_t changed = 0;  ///< modification time in nanoseconds
};

struct Inputs {
  std::vector<InputFile> files;
  std::int64_t skipped = 0;  ///< number of skipped folder entries
  std::int64_t bytes() const;
};

/// Finds the input files that `paths` name. In a folder it takes regular files that are not hidden, sorted by
/// path, and skips files whose first bytes are not text, as --data does. A name that ends in .jsonl or
/// .ndjson means JSONL (one JSON object per line), and so does .json if each line is an object. Throws
/// Error(data), also if a .json file that `paths` name directly has another form.
Inputs find_inputs(std::vector<std::string> const& paths, InputFormat format);

}  // namespace text
}  // namespace programs
