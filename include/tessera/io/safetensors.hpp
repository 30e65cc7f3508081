// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files. The reader loads only the requested parts; the writer streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/safetensors_header.hpp"

namespace tessera {
inline namespace v0 {

/// Reads a safetensors file. Opening checks the whole header against the size of the file. Every error is
/// Error(data) that names the file and the tensor, even if another process truncates the file after it was
/// opened. Format: u64 length, JSON, data (huggingface/safetensors). Several threads may read. Move-only.
class SafetensorsFile {
 public:
  /// Opens the file and checks its header. If `keep_open` is false, each read opens the file again. This
  /// limits the number of open files of a caller with many files.
  static SafetensorsFile open(std::filesystem::path const& path, bool keep_open = true);

  /// Returns the path of the file, for messages.
  std::string const& name() const noexcept { return name_; }
  /// Returns all tensors in byte order of their names.
  std::vector<SafetensorsEntry> const& tensors() const noexcept { return header_.entries; }
  std::map<std::string, std::string> const& metadata() const noexcept { return header_.metadata; }

  /// Returns the tensor with the name `tensor`, or null if the file has none.
  SafetensorsEntry const* find(std::string_view tensor) const noexcept;
  /// Returns the tensor with the name `tensor`. Throws Error(data) if the file has none.
  SafetensorsEntry const& at(std::string_view tensor) const;

  /// Reads elements first..first+out.size()-1 of a tensor as floats. F64 is rounded; F16 and BF16 are exact.
  /// Throws Error(data) for other types, for a range outside the tensor, and for an F64 value beyond the
  /// range of fp32.
  void read_as_float(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  /// Reads elements like read_as_float, as floats or as doubles.
  void read_as(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  void read_as(std::string_view tensor, std::int64_t first, std::span<double> out) const;

  /// Reads a whole tensor as floats. `out` must have exactly the tensor's number of elements.
  void read_as_float(std::string_view tensor, std::span<float> out) const;

  /// Throws Error(data) with both shapes if the shape of the tensor is not `expected`.
  void expect_shape(std::string_view tensor, std::span<std::int64_t const> expected) const;

  void expect_shape(std::string_view tensor, Shape const& expected) const;

 private:
  SafetensorsFile(std::filesystem::path const& path, bool keep_open);

  template <class U>
  void read_converted(std::string_view tensor, std::int64_t first, std::span<U> out) const;
  template <class T>
  void read(SafetensorsEntry const& entry, std::int64_t first, std::span<T> out) const;
  template <class T, class U>
  void convert(SafetensorsEntry const& entry, std::int64_t first, std::span<U> out) const;
  [[noreturn]] void too_large(SafetensorsEntry const& entry, std::int64_t element, double value) const;

  std::string name_;
  files::FileReader reader_;
  SafetensorsHeader header_;
};

/// A tensor to write. Example: `{"wte.weight", extents_of(shape)}`.
struct SafetensorsSpec {
  std::string name{};
  std::vector<std::int64_t> shape{};
  DType type = DType::f32;
};

/// The layout of a file to write. The file consists of the header's length, the header, and the tensors in
/// their given order.
struct SafetensorsLayout {
  std::string start;                 ///< the length and the header, padded to a multiple of 8 bytes
  std::vector<std::int64_t> begins;  ///< byte offset of each tensor in the file
  std::int64_t bytes = 0;            ///< size of the file
};

/// Returns the layout of a file with these tensors. Adds "format": "pt" to `metadata`, because other readers
/// require it. `path` is for messages. Throws Error(usage) that names the file and the tensor if a name is
/// given twice or an extent is negative.
SafetensorsLayout safetensors_layout(std::filesystem::path const& path,
                                     std::vector<SafetensorsSpec> const& tensors,
                                     std::map<std::string, std::string> metadata = {});

/// Writes fp32 tensors to a safetensors file, which appears completely or not at all. The constructor gets
/// all names and shapes. Then the values arrive tensor by tensor in this order, in pieces of any size, so the
/// writer needs no copy of the model. The header's `__metadata__` holds the given entries and "format": "pt",
/// which other readers require. Two runs with the same tensors write the same bytes.
class SafetensorsWriter {
 public:
  /// Throws Error(usage) if a name is given twice or an extent is negative, and Error(failed) if the path
  /// cannot be written.
  SafetensorsWriter(std::filesystem::path const& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  /// Appends the next elements of `tensor`. `tensor` must be the first incomplete tensor in the given order.
  void append(std::string_view tensor, std::span<float const> values);

  /// Makes the file appear. If elements are missing, throws Error(usage), and no file appears.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view tensor, std::string const& text) const;

  /// Advances `current_` to the next tensor that has elements.
  void skip_empty();

  std::vector<SafetensorsSpec> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;   // index of the tensor that is written now
  std::int64_t missing_ = 0;  // number of its elements that are not yet written
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/safetensors_definitions.hpp"
#endif
