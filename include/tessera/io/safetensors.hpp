// SPDX-License-Identifier: Apache-2.0
// Weights on disk in the safetensors format: a reader that reads what it is asked for, a writer that streams.
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

/// A safetensors file to read, held open. Opening checks the whole header against the file; every error is
/// Error(data) and names file and tensor, that of a file that is cut short while it is read, too. Format: u64
/// length, JSON, data (huggingface/safetensors). Several threads may read. Move-only.
class SafetensorsFile {
 public:
  /// Without `keep_open` each read opens the file again, for who reads many of them.
  static SafetensorsFile open(std::filesystem::path const& path, bool keep_open = true);

  /// The path, for messages.
  std::string const& name() const noexcept { return name_; }
  /// All tensors in byte order of their names.
  std::vector<SafetensorsEntry> const& tensors() const noexcept { return header_.entries; }
  std::map<std::string, std::string> const& metadata() const noexcept { return header_.metadata; }

  /// The tensor of that name, or null.
  SafetensorsEntry const* find(std::string_view tensor) const noexcept;
  /// The tensor of that name; throws Error(data) when the file has none.
  SafetensorsEntry const& at(std::string_view tensor) const;

  /// Elements first..first+out.size()-1 of a tensor as floats. F64 is rounded, F16 and BF16 are exact; other
  /// types throw, and so does a range outside the tensor.
  void read_as_float(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  /// Same as read_as_float, for floats or doubles.
  void read_as(std::string_view tensor, std::int64_t first, std::span<float> out) const;
  void read_as(std::string_view tensor, std::int64_t first, std::span<double> out) const;

  /// A whole tensor as floats; `out` must have exactly its elements.
  void read_as_float(std::string_view tensor, std::span<float> out) const;

  /// Throws Error(data) with both shapes unless the tensor has the shape `wanted`.
  void expect_shape(std::string_view tensor, std::span<std::int64_t const> wanted) const;

  void expect_shape(std::string_view tensor, Shape const& wanted) const;

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

/// A tensor to write. `{"wte.weight", extents_of(shape)}`.
struct SafetensorsSpec {
  std::string name{};
  std::vector<std::int64_t> shape{};
  DType type = DType::f32;
};

/// Where everything lies in a file that is going to be written: its length and header, then the tensors in
/// their order.
struct SafetensorsLayout {
  std::string start;                 ///< padded to a multiple of 8
  std::vector<std::int64_t> begins;  ///< of each tensor, in bytes of the file
  std::int64_t bytes = 0;            ///< of the file
};

/// Lays tensors out; `metadata` gets "format": "pt", which other readers ask for. Throws Error(usage) that
/// names file and tensor for a name given twice or a negative extent.
SafetensorsLayout safetensors_layout(std::filesystem::path const& path,
                                     std::vector<SafetensorsSpec> const& tensors,
                                     std::map<std::string, std::string> metadata = {});

/// Writes fp32 tensors to a safetensors file, whole or not at all. Names and shapes are given first, then the
/// values stream in that order, in pieces of any size, so no copy of the model is needed. `__metadata__`
/// holds "format": "pt", which other readers ask for, and what is added. Two runs with the same tensors write
/// the same bytes.
class SafetensorsWriter {
 public:
  /// Throws Error(usage) for a name given twice or a negative extent, Error(failed) when the path cannot be
  /// written.
  SafetensorsWriter(std::filesystem::path const& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  /// The next elements, which must belong to `tensor`: the first tensor in the order given that is not
  /// complete.
  void append(std::string_view tensor, std::span<float const> values);

  /// Makes the file appear. Throws Error(usage) while elements are missing; then nothing appears.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view tensor, std::string const& text) const;

  /// Moves to the next tensor that has elements.
  void skip_empty();

  std::vector<SafetensorsSpec> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;   // the tensor being written
  std::int64_t missing_ = 0;  // its elements to come
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/safetensors_definitions.hpp"
#endif
