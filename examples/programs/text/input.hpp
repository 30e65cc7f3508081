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

/// The bytes of one input. Decompresses it if its first bytes show that it is compressed. Takes a fixed
/// amount of memory.
class ByteStream {
 public:
  /// Opens a path; "-" is standard input. Throws Error(data), which names the path.
  static std::unique_ptr<ByteStream> open(std::string const& path);
  virtual ~ByteStream() = default;

  /// Reads up to `size` bytes. Returns 0 only at the end. Throws Error(data) for a damaged or truncated file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Skips bytes that an earlier run has read. Returns false if there are fewer.
  virtual bool skip(std::int64_t bytes);
  /// Returns the number of (compressed) bytes read from the file so far.
  virtual std::int64_t consumed() const = 0;
};

/// Appends to `out` until it has `size` bytes. Returns false at the end of the stream.
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

/// Finds the input files that `paths` name. Searches folders as `--data` does: takes regular files that are
/// not hidden, in byte order of their paths, and skips files whose first bytes are not text. A name ending in
/// .jsonl or .ndjson means JSONL, and so does .json if each line is an object. Throws Error(data), also for a
/// named .json file of another form.
Inputs find_inputs(std::vector<std::string> const& paths, InputFormat format);

}  // namespace text
}  // namespace programs
