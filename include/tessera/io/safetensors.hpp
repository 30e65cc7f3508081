// SPDX-License-Identifier: Apache-2.0
// Weights on disk in the safetensors format: a reader that reads what it is asked for, a writer that streams.
// Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
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
  static SafetensorsFile open(std::filesystem::path const& path) {
    SafetensorsFile file(path);
    std::size_t const size = file.reader_.size();
    std::vector<std::byte> start(std::min<std::size_t>(size, 8));
    file.reader_.read(0, start.data(), start.size());
    if (start.size() == 8) {
      start.resize(std::min(size, safetensors_start(start)));
      file.reader_.read(0, start.data(), start.size());
    }
    file.header_ = parse_safetensors(start, size, file.name_);
    return file;
  }

  /// The path, for messages.
  std::string const& name() const noexcept { return name_; }
  /// All tensors in byte order of their names.
  std::vector<SafetensorsEntry> const& tensors() const noexcept { return header_.entries; }
  std::map<std::string, std::string> const& metadata() const noexcept { return header_.metadata; }

  /// The tensor of that name, or null.
  SafetensorsEntry const* find(std::string_view tensor) const noexcept {
    auto const at = std::lower_bound(
        header_.entries.begin(), header_.entries.end(), tensor,
        [](SafetensorsEntry const& entry, std::string_view wanted) { return entry.name < wanted; });
    return at != header_.entries.end() && at->name == tensor ? &*at : nullptr;
  }
  /// The tensor of that name; throws Error(data) when the file has none.
  SafetensorsEntry const& at(std::string_view tensor) const {
    SafetensorsEntry const* const entry = find(tensor);
    if (entry == nullptr)
      throw Error(ErrorKind::data, name_ + ": has no tensor " + detail::printable(tensor) + " among its " +
                                       std::to_string(header_.entries.size()));
    return *entry;
  }

  /// Elements first..first+out.size()-1 of a tensor as floats. F64 is rounded, F16 and BF16 are exact; other
  /// types throw, and so does a range outside the tensor.
  void read_as_float(std::string_view tensor, std::int64_t first, std::span<float> out) const {
    SafetensorsEntry const& entry = at(tensor);
    auto const count = static_cast<std::int64_t>(out.size());
    if (first < 0 || first > entry.elements() || count > entry.elements() - first)
      throw Error(ErrorKind::data, name_ + ": tensor " + detail::printable(tensor) + " of shape " +
                                       detail::shape_text(entry.shape) + " has " +
                                       std::to_string(entry.elements()) + " elements, " +
                                       std::to_string(first) + " to " + std::to_string(first + count) +
                                       " were asked for");
    if (entry.type == "F32") {
      read(entry, first, out);
    } else if (entry.type == "F64") {
      convert<double>(entry, first, out);
    } else if (entry.type == "F16") {
      convert<half>(entry, first, out);
    } else if (entry.type == "BF16") {
      convert<bfloat16>(entry, first, out);
    } else {
      throw Error(ErrorKind::data, name_ + ": tensor " + detail::printable(tensor) + " has dtype " +
                                       std::string(entry.type) +
                                       ", weights are read from F64, F32, F16 or BF16");
    }
  }

  /// A whole tensor as floats; `out` must have exactly its elements.
  void read_as_float(std::string_view tensor, std::span<float> out) const {
    SafetensorsEntry const& entry = at(tensor);
    if (static_cast<std::int64_t>(out.size()) != entry.elements())
      throw Error(ErrorKind::data, name_ + ": tensor " + detail::printable(tensor) + " of shape " +
                                       detail::shape_text(entry.shape) + " has " +
                                       std::to_string(entry.elements()) + " elements, " +
                                       std::to_string(out.size()) + " are wanted");
    read_as_float(tensor, 0, out);
  }

  /// Throws Error(data) with both shapes unless the tensor has the shape `wanted`.
  void expect_shape(std::string_view tensor, std::span<std::int64_t const> wanted) const {
    SafetensorsEntry const& entry = at(tensor);
    if (!std::equal(wanted.begin(), wanted.end(), entry.shape.begin(), entry.shape.end()))
      throw Error(ErrorKind::data, name_ + ": tensor " + detail::printable(tensor) + " has shape " +
                                       detail::shape_text(entry.shape) + ", the model wants " +
                                       detail::shape_text(wanted));
  }

  void expect_shape(std::string_view tensor, Shape const& wanted) const {
    expect_shape(tensor, extents_of(wanted));
  }

 private:
  explicit SafetensorsFile(std::filesystem::path const& path)
      : name_(detail::path_text(path)), reader_(path, true) {}

  template <class T>
  void read(SafetensorsEntry const& entry, std::int64_t first, std::span<T> out) const {
    std::int64_t const begin =
        header_.data_offset + entry.begin + first * static_cast<std::int64_t>(sizeof(T));
    reader_.read(static_cast<std::size_t>(begin), out.data(), out.size_bytes());
  }
  template <class T>
  void convert(SafetensorsEntry const& entry, std::int64_t first, std::span<float> out) const {
    std::array<T, 4096> stored;
    for (std::size_t at = 0; at < out.size(); at += stored.size()) {
      auto const some = std::span(stored).first(std::min(stored.size(), out.size() - at));
      read(entry, first + static_cast<std::int64_t>(at), some);
      std::transform(some.begin(), some.end(), out.begin() + static_cast<std::ptrdiff_t>(at),
                     [](T value) { return static_cast<float>(value); });
    }
  }

  std::string name_;
  detail::FileReader reader_;
  SafetensorsHeader header_;
};

/// A tensor to write. `{"wte.weight", extents_of(shape)}`.
struct SafetensorsSpec {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Writes fp32 tensors to a safetensors file, whole or not at all. Names and shapes are given first, then the
/// values stream in that order, in pieces of any size, so no copy of the model is needed. `__metadata__`
/// holds "format": "pt", which other readers ask for, and what is added. Two runs with the same tensors write
/// the same bytes.
class SafetensorsWriter {
 public:
  /// Throws Error(usage) for a name given twice or a negative extent, Error(failed) when the path cannot be
  /// written.
  SafetensorsWriter(std::filesystem::path const& path, std::vector<SafetensorsSpec> tensors,
                    std::map<std::string, std::string> metadata = {})
      : tensors_(std::move(tensors)), file_(path) {
    metadata.try_emplace("format", "pt");
    nlohmann::ordered_json header;
    header["__metadata__"] = metadata;
    std::set<std::string_view> names{"__metadata__"};
    std::int64_t offset = 0;
    for (SafetensorsSpec const& tensor : tensors_) {
      if (!names.insert(tensor.name).second) fail(tensor.name, "is given twice or has a reserved name");
      std::int64_t const begin = offset;
      std::int64_t elements = 1;
      for (std::int64_t const extent : tensor.shape)
        if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 8)
          fail(tensor.name, "has the impossible shape " + detail::shape_text(tensor.shape));
      if (__builtin_add_overflow(offset, elements * 4, &offset))
        fail(tensor.name, "makes the file larger than 2^63 bytes");
      header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, offset}}};
    }
    std::string text = encoded(header);
    text.append((8 - text.size() % 8) % 8, ' ');
    if (text.size() > detail::safetensors_header_limit)
      throw Error(ErrorKind::usage, detail::path_text(path) + ": the header would take " +
                                        std::to_string(text.size()) + " bytes, the format allows 100000000");
    auto const length = static_cast<std::uint64_t>(text.size());
    file_.write(&length, sizeof length);
    file_.write(text);
    skip_empty();
  }

  /// The next elements, which must belong to `tensor`: the first tensor in the order given that is not
  /// complete.
  void append(std::string_view tensor, std::span<float const> values) {
    if (values.empty()) return;
    if (current_ == tensors_.size()) fail(tensor, "comes after the last tensor was complete");
    SafetensorsSpec const& expected = tensors_[current_];
    if (tensor != expected.name)
      fail(tensor, "is out of order, " + detail::printable(expected.name) + " lacks " +
                       std::to_string(missing_) + " of its elements");
    if (static_cast<std::int64_t>(values.size()) > missing_)
      fail(tensor, "got " + std::to_string(values.size()) + " elements, " + std::to_string(missing_) +
                       " are missing");
    file_.write(values.data(), values.size_bytes());
    missing_ -= static_cast<std::int64_t>(values.size());
    if (missing_ == 0) {
      ++current_;
      skip_empty();
    }
  }

  /// Makes the file appear. Throws Error(usage) while elements are missing; then nothing appears.
  void commit() {
    if (current_ != tensors_.size())
      fail(tensors_[current_].name,
           "lacks " + std::to_string(missing_) + " elements, the file was not written");
    file_.commit();
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, std::string const& text) const {
    throw Error(ErrorKind::usage,
                detail::path_text(file_.path()) + ": tensor " + detail::printable(tensor) + " " + text);
  }

  std::string encoded(nlohmann::ordered_json const& header) const {
    try {
      return header.dump();
    } catch (nlohmann::json::exception const&) {
      throw Error(ErrorKind::usage,
                  detail::path_text(file_.path()) + ": a tensor name or metadata is not UTF-8");
    }
  }

  /// Moves to the next tensor that has elements.
  void skip_empty() {
    for (; current_ < tensors_.size(); ++current_) {
      missing_ = 1;
      for (std::int64_t const extent : tensors_[current_].shape) missing_ *= extent;
      if (missing_ != 0) return;
    }
  }

  static_assert(std::endian::native == std::endian::little);

  std::vector<SafetensorsSpec> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;   // the tensor being written
  std::int64_t missing_ = 0;  // its elements to come
};

}  // namespace v0
}  // namespace tessera
