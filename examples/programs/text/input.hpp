// SPDX-License-Identifier: Apache-2.0
// Finds and reads input text: files, folders and standard input. The input may be compressed with gzip or
// zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace text {

/// Reads the bytes of one input. If the input begins with the magic bytes of gzip or zstd, decompresses it.
/// Needs a fixed amount of memory.
class ByteStream {
 public:
  /// Opens the file `path`; "-" is standard input. Throws Error(data), which names the path.
  static std::unique_ptr<ByteStream> open(std::string const& path);
  virtual ~ByteStream() = default;

  /// Reads up to `size` bytes into `out` and returns their number. Returns 0 only at the end. Throws
  /// Error(data) if the file is damaged or truncated.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Skips bytes that an earlier run has already read. Returns false if the input is shorter than `bytes`.
  virtual bool skip(std::int64_t bytes);
  /// Returns the number of bytes read from the file so far, counted before decompression.
  virtual std::int64_t consumed() const = 0;
};

/// Reads from the stream until `out` has `size` bytes. Returns false if the stream ends before that.
bool fill(ByteStream& stream, std::string& out, std::size_t size);

enum class InputFormat { by_name, text, records };

struct InputFile {
  std::string path;          ///< path of the file; "-" is standard input
  bool records = false;      ///< whether the file is JSONL, in which each line is a document
  std::int64_t size = 0;     ///< size on disk in bytes; 0 for standard input
  std::int64_t changed = 0;  ///< modification time in nanoseconds since 1970
};

struct Inputs {
  std::vector<InputFile> files;
  std::int64_t skipped = 0;  ///< number of entries of folders that were skipped
  std::int64_t bytes() const;
};

/// Returns the input files that `paths` name. In a folder, these are the regular files that are not hidden,
/// sorted by path. Files in a folder whose first bytes are not text are skipped, as for --data. A name that
/// ends in .jsonl or .ndjson means JSONL, which is one JSON object per line. A name that ends in .json means
/// JSONL if each line is an object. Throws Error(data) that names the path. It is also an error if `paths`
/// names a .json file that is an array or one object on several lines.
Inputs find_inputs(std::vector<std::string> const& paths, InputFormat format);

}  // namespace text
}  // namespace programs
