// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/safetensors.hpp. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/io/safetensors_header.hpp"

namespace tessera {
inline namespace v0 {

static_assert(std::endian::native == std::endian::little);

TESSERA_INLINE SafetensorsFile SafetensorsFile::open(std::filesystem::path const& path, bool keep_open) {
  SafetensorsFile file(path, keep_open);
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

TESSERA_INLINE SafetensorsEntry const* SafetensorsFile::find(std::string_view tensor) const noexcept {
  auto const at =
      std::lower_bound(header_.entries.begin(), header_.entries.end(), tensor,
                       [](SafetensorsEntry const& entry, std::string_view key) { return entry.name < key; });
  return at != header_.entries.end() && at->name == tensor ? &*at : nullptr;
}

TESSERA_INLINE SafetensorsEntry const& SafetensorsFile::at(std::string_view tensor) const {
  SafetensorsEntry const* const entry = find(tensor);
  if (entry == nullptr)
    throw Error(ErrorKind::data, name_ + ": has no tensor " + files::printable(tensor) + " among its " +
                                     std::to_string(header_.entries.size()));
  return *entry;
}

TESSERA_INLINE void SafetensorsFile::read_as_float(std::string_view tensor, std::int64_t first,
                                                   std::span<float> out) const {
  read_as(tensor, first, out);
}

TESSERA_INLINE void SafetensorsFile::read_as_float(std::string_view tensor, std::span<float> out) const {
  SafetensorsEntry const& entry = at(tensor);
  if (static_cast<std::int64_t>(out.size()) != entry.elements())
    throw Error(ErrorKind::data, name_ + ": tensor " + files::printable(tensor) + " of shape " +
                                     detail::shape_text(entry.shape) + " has " +
                                     std::to_string(entry.elements()) + " elements, " +
                                     std::to_string(out.size()) + " were requested");
  read_as_float(tensor, 0, out);
}

TESSERA_INLINE void SafetensorsFile::expect_shape(std::string_view tensor,
                                                  std::span<std::int64_t const> expected) const {
  SafetensorsEntry const& entry = at(tensor);
  if (!std::equal(expected.begin(), expected.end(), entry.shape.begin(), entry.shape.end()))
    throw Error(ErrorKind::data, name_ + ": tensor " + files::printable(tensor) + " has shape " +
                                     detail::shape_text(entry.shape) + ", the model needs " +
                                     detail::shape_text(expected));
}

TESSERA_INLINE void SafetensorsFile::expect_shape(std::string_view tensor, Shape const& expected) const {
  expect_shape(tensor, extents_of(expected));
}

TESSERA_INLINE SafetensorsFile::SafetensorsFile(std::filesystem::path const& path, bool keep_open)
    : name_(files::path_text(path)), reader_(path, keep_open) {}

TESSERA_INLINE void SafetensorsFile::too_large(SafetensorsEntry const& entry, std::int64_t element,
                                               double value) const {
  char number[32];
  std::snprintf(number, sizeof number, "%g", value);
  throw Error(ErrorKind::data, name_ + ": tensor " + files::printable(entry.name) + " holds " + number +
                                   " at element " + std::to_string(element) +
                                   ", which is outside the range of fp32; these weights cannot be trained");
}

template <class T>
void SafetensorsFile::read(SafetensorsEntry const& entry, std::int64_t first, std::span<T> out) const {
  std::int64_t const begin = header_.data_offset + entry.begin + first * static_cast<std::int64_t>(sizeof(T));
  reader_.read(static_cast<std::size_t>(begin), out.data(), out.size_bytes());
}

template <class T, class U>
void SafetensorsFile::convert(SafetensorsEntry const& entry, std::int64_t first, std::span<U> out) const {
  if constexpr (std::is_same_v<T, U>) {
    read(entry, first, out);
  } else {
    std::array<T, 4096> stored;
    for (std::size_t at = 0; at < out.size(); at += stored.size()) {
      auto const some = std::span(stored).first(std::min(stored.size(), out.size() - at));
      read(entry, first + static_cast<std::int64_t>(at), some);
      for (std::size_t i = 0; i < some.size(); ++i) {
        out[at + i] = static_cast<U>(static_cast<compute_t<T>>(some[i]));
        if constexpr (sizeof(U) < sizeof(T))
          if (std::isinf(out[at + i]) && std::isfinite(some[i]))
            too_large(entry, first + static_cast<std::int64_t>(at + i), some[i]);
      }
    }
  }
}

template <class U>
void SafetensorsFile::read_converted(std::string_view tensor, std::int64_t first, std::span<U> out) const {
  SafetensorsEntry const& entry = at(tensor);
  auto const count = static_cast<std::int64_t>(out.size());
  if (first < 0 || first > entry.elements() || count > entry.elements() - first)
    throw Error(ErrorKind::data, name_ + ": tensor " + files::printable(tensor) + " of shape " +
                                     detail::shape_text(entry.shape) + " has " +
                                     std::to_string(entry.elements()) + " elements, " +
                                     std::to_string(first) + " to " + std::to_string(first + count) +
                                     " were requested");
  if (entry.type == "F32") {
    convert<float>(entry, first, out);
  } else if (entry.type == "F64") {
    convert<double>(entry, first, out);
  } else if (entry.type == "F16") {
    convert<half>(entry, first, out);
  } else if (entry.type == "BF16") {
    convert<bfloat16>(entry, first, out);
  } else {
    throw Error(ErrorKind::data, name_ + ": tensor " + files::printable(tensor) + " has dtype " +
                                     std::string(entry.type) +
                                     ", weights are read from F64, F32, F16 or BF16");
  }
}

TESSERA_INLINE void SafetensorsFile::read_as(std::string_view tensor, std::int64_t first,
                                             std::span<float> out) const {
  read_converted(tensor, first, out);
}
TESSERA_INLINE void SafetensorsFile::read_as(std::string_view tensor, std::int64_t first,
                                             std::span<double> out) const {
  read_converted(tensor, first, out);
}

TESSERA_INLINE SafetensorsLayout safetensors_layout(std::filesystem::path const& path,
                                                    std::vector<SafetensorsSpec> const& tensors,
                                                    std::map<std::string, std::string> metadata) {
  auto const fail = [&](std::string_view tensor, std::string const& text) {
    throw Error(ErrorKind::usage,
                files::path_text(path) + ": tensor " + files::printable(tensor) + " " + text);
  };
  metadata.try_emplace("format", "pt");
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  std::set<std::string_view> names{"__metadata__"};
  SafetensorsLayout layout;
  std::int64_t offset = 0;
  for (SafetensorsSpec const& tensor : tensors) {
    if (!names.insert(tensor.name).second) fail(tensor.name, "is given twice or has a reserved name");
    std::int64_t const begin = offset;
    std::int64_t elements = 1;
    for (std::int64_t const extent : tensor.shape)
      if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 8)
        fail(tensor.name, "has the impossible shape " + detail::shape_text(tensor.shape));
    if (__builtin_add_overflow(offset, elements * static_cast<std::int64_t>(size_of(tensor.type)), &offset))
      fail(tensor.name, "makes the file larger than 2^63 bytes");
    header[tensor.name] = {{"dtype", detail::safetensors_name(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, offset}}};
    layout.begins.push_back(begin);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (nlohmann::json::exception const&) {
    throw Error(ErrorKind::usage, files::path_text(path) + ": a tensor name or metadata is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > detail::safetensors_header_limit)
    throw Error(ErrorKind::usage, files::path_text(path) + ": the header would take " +
                                      std::to_string(text.size()) + " bytes, the format allows 100000000");
  auto const length = static_cast<std::uint64_t>(text.size());
  layout.start.assign(reinterpret_cast<char const*>(&length), sizeof length);
  layout.start += text;
  auto const start = static_cast<std::int64_t>(layout.start.size());
  for (std::int64_t& begin : layout.begins) begin += start;
  layout.bytes = start + offset;
  return layout;
}

TESSERA_INLINE SafetensorsWriter::SafetensorsWriter(std::filesystem::path const& path,
                                                    std::vector<SafetensorsSpec> tensors,
                                                    std::map<std::string, std::string> metadata)
    : tensors_(std::move(tensors)), file_(path) {
  for (SafetensorsSpec const& tensor : tensors_)
    if (tensor.type != DType::f32) fail(tensor.name, "is not fp32, and only fp32 tensors can be streamed");
  file_.write(safetensors_layout(path, tensors_, std::move(metadata)).start);
  skip_empty();
}

TESSERA_INLINE void SafetensorsWriter::append(std::string_view tensor, std::span<float const> values) {
  if (values.empty()) return;
  if (current_ == tensors_.size()) fail(tensor, "comes after the last tensor was complete");
  SafetensorsSpec const& expected = tensors_[current_];
  if (tensor != expected.name)
    fail(tensor, "is out of order, " + files::printable(expected.name) + " lacks " +
                     std::to_string(missing_) + " of its elements");
  if (static_cast<std::int64_t>(values.size()) > missing_)
    fail(tensor,
         "got " + std::to_string(values.size()) + " elements, " + std::to_string(missing_) + " are missing");
  file_.write(values.data(), values.size_bytes());
  missing_ -= static_cast<std::int64_t>(values.size());
  if (missing_ == 0) {
    ++current_;
    skip_empty();
  }
}

TESSERA_INLINE void SafetensorsWriter::commit() {
  if (current_ != tensors_.size())
    fail(tensors_[current_].name,
         "lacks " + std::to_string(missing_) + " elements, the file was not written");
  file_.commit();
}

TESSERA_INLINE void SafetensorsWriter::fail(std::string_view tensor, std::string const& text) const {
  throw Error(ErrorKind::usage,
              files::path_text(file_.path()) + ": tensor " + files::printable(tensor) + " " + text);
}

TESSERA_INLINE void SafetensorsWriter::skip_empty() {
  for (; current_ < tensors_.size(); ++current_) {
    missing_ = 1;
    for (std::int64_t const extent : tensors_[current_].shape) missing_ *= extent;
    if (missing_ != 0) return;
  }
}

}  // namespace v0
}  // namespace tessera
