// SPDX-License-Identifier: Apache-2.0
// Parses the header of a safetensors file. The file is not trusted, so all of the header is checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {

/// An element type of safetensors: its name in the format and the number of bits of one element.
struct SafetensorsType {
  std::string_view name;
  std::int64_t bits;
};

inline constexpr std::array<SafetensorsType, 22> safetensors_types = {
    {{"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},   {"I64", 64},        {"I32", 32},
     {"I16", 16},    {"I8", 8},      {"U64", 64},        {"U32", 32},    {"U16", 16},        {"U8", 8},
     {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8},
     {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},          {"C64", 64}}};

/// A tensor of a safetensors file. Its bytes are little-endian and row-major, and are not necessarily
/// aligned.
struct SafetensorsEntry {
  std::string name;
  std::string_view type;            ///< one of `safetensors_types`
  std::vector<std::int64_t> shape;  ///< outermost first; empty for a scalar
  std::int64_t begin = 0;           ///< index of the first byte, counted from the end of the header
  std::int64_t end = 0;             ///< index after the last byte, counted from the end of the header

  std::int64_t elements() const noexcept {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    std::int64_t product = 1;
    for (std::int64_t const extent : shape) product *= extent;
    return product;
  }
};

/// The contents of the header: tensors in byte order of their names, and the `__metadata__` strings.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::int64_t data_offset = 0;  ///< number of bytes in the file before the data: the length and the header
};

namespace detail {

inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Returns the safetensors name of a number format, as in `safetensors_types`.
constexpr char const* safetensors_name(DType type) {
  switch (type) {
    case DType::f64:
      return "F64";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::u8:
      return "U8";
    case DType::f32:
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
      break;
  }
  return "F32";
}

/// Returns a shape as text, such as "[2, 3]". With more than 8 dims, the text has the first 8 extents and the
/// number of dims: "[1, 2, 3, 4, 5, 6, 7, 8, ... 300,000 dims]".
std::string shape_text(std::span<std::int64_t const> shape);

/// Appends a list of names to a message, such as "missing: a, b, c and 4 more; ". `what` is the text before
/// the names, here "missing:". Appends nothing if there are no names.
void append_names(std::string& text, char const* what, std::vector<std::string> const& names);

}  // namespace detail

/// Returns the number of bytes of the length and the header together. `first` are the first 8 bytes of the
/// file, which hold the length. Returns 8 if the length is above the limit of the format, 100 MB.
std::size_t safetensors_start(std::span<std::byte const> first);

/// Returns the checked header of a safetensors file of `size` bytes. `bytes` are the first bytes of the file,
/// including the header. `file` is the name of the file, for errors. Throws Error(data).
SafetensorsHeader parse_safetensors(std::span<std::byte const> bytes, std::size_t size,
                                    std::string const& file);

/// Returns the checked header of a file, given all bytes of the file.
SafetensorsHeader parse_safetensors(std::span<std::byte const> bytes, std::string const& file);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/safetensors_header_definitions.hpp"
#endif
