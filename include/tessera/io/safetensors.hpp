// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files. The reader loads only requested parts, the writer streams.
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

/// Reads a safetensors file. Opening checks the whole header against the file. Every error is Error(data)
/// that names file and tensor, also if the file is cut short while it is read. Format: u64 length, JSON, data
/// (huggingface/safetensors). Several threads may read. Move-only.
class SafetensorsFile {
 public:
  /// Without `keep_open`, each read opens the file again, for callers that read many files.
  static SafetensorsFile open(std::filesystem::path const& path, bool keep_open = true);

  /// Returns the path, for messages.
  std::string const& name() const noexcept { return name_; }
  /// Returns all tensors in byte order of their names.
  std::vector<SafetensorsEntry> const& tensors() const noexcept { return header_.entries; }
  std::map<std::string, std::string> const& metadata() const noexcept { return header_.metadata; }

  /// Returns the tensor of that name, or null.
  SafetensorsEntry const* find(std::string_view tensor) const noexcept;
  /// Returns the tensor of that name. Throws Error(data) if the file has none.
  SafetensorsEntry const& at(std::string_view tensor) const;

  /// Reads elements first..first+out.size()-1 of a tensor as floats. F64 is rounded, F16 and BF16 are exact.
  /// Throws for other types and for a range outside the tensor.
  void read_as_float(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  /// Same as read_as_float, for floats or doubles.
  void read_as(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  void read_as(std::string_view tensor, std::int64_t first, std::span<double> out) const;

  /// Reads a whole tensor as floats; `out` must have exactly its size.
  void read_as_float(std::string_view tensor, std::span<float> out) const;

  /// Throws Error(data) with both shapes unless the tensor has the shape `expected`.
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

/// The layout of a file that will be written: its length and header, then the tensors in their order.
struct SafetensorsLayout {
  std::string start;                 ///< length and header, padded to a multiple of 8
  std::vector<std::int64_t> begins;  ///< byte offset of each tensor in the file
  std::int64_t bytes = 0;            ///< size of the file
};

/// Lays out tensors. Adds "format": "pt" to `metadata`, which other readers require. Throws Error(usage) that
/// names file and tensor for a name given twice or a negative extent.
SafetensorsLayout safetensors_layout(std::filesystem::path const& path,
                                     std::vector<SafetensorsSpec> const& tensors,
                                     std::map<std::string, std::string> metadata = {});

/// Writes fp32 tensors to a safetensors file, whole or not at all. Names and shapes are given first. Then the
/// values stream in that order, in pieces of any size, so no copy of the model is needed. `__metadata__`
/// holds "format": "pt", which other readers require, and the given entries. Two runs with the same tensors
/// write the same bytes.
class SafetensorsWriter {
 public:
  /// Throws Error(usage) for a name given twice or a negative extent, and Error(failed) if the path cannot be
  /// written.
  SafetensorsWriter(std::filesystem::path const& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  /// Appends the next elements. `tensor` must be the first tensor in the given order that is not complete.
  void append(std::string_view tensor, std::span<float const> values);

  /// Makes the file appear. Throws Error(usage) if elements are missing; then nothing appears.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view tensor, std::string const& text) const;

  /// Moves to the next tensor that has elements.
  void skip_empty();

  std::vector<SafetensorsSpec> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;   // the tensor being written
  std::int64_t missing_ = 0;  // its elements not yet written
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/safetensors_definitions.hpp"
#endif
