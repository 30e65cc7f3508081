// SPDX-License-Identifier: Apache-2.0
// The hash of a model's weights: equal hashes mean equal names, shapes and bits. Needs xxHash.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/xxhash.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// 32 hexadecimal digits, most significant first, as xxhsum prints them.
inline std::string hex_of(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char const byte : bytes.digest) text.append({digits[byte >> 4], digits[byte & 15]});
  return text;
}

}  // namespace detail

/// XXH3-128 (seed 0) over the logical fp32 master weights in name order. Per tensor these bytes, all
/// little-endian:
///   u64 length of the name, the name's bytes (UTF-8, no terminator),
///   u64 number of dims, one u64 per extent, outermost first,
///   the elements as IEEE binary32 in row-major order.
/// Vocabulary padding, tied copies and sharding are not part of it. Feeding is a stream: any chunks give the
/// same hash. Cost: memory speed.
class WeightsHash {
 public:
  WeightsHash() { XXH3_128bits_reset(&state_); }

  /// Opens the next tensor. Names must rise in byte order, extents be 0 or more, and the tensor before be
  /// complete.
  void begin(std::string_view name, std::span<std::int64_t const> shape) {
    finish_tensor();
    if (any_ && name <= std::string_view(name_))
      throw Error(ErrorKind::usage, "weights hash: " + std::string(name) + " comes after " + name_ +
                                        ", feed tensors once each, in byte order of their names");
    any_ = true;
    name_ = name;
    number(name.size());
    update(name.data(), name.size());
    number(shape.size());
    missing_ = 1;
    for (std::int64_t const extent : shape) {
      if (extent < 0)
        throw Error(ErrorKind::usage, "weights hash: " + name_ + " has extent " + std::to_string(extent));
      if (__builtin_mul_overflow(missing_, extent, &missing_))
        throw Error(ErrorKind::usage, "weights hash: " + name_ + " has too many elements to count");
      number(static_cast<std::uint64_t>(extent));
    }
  }

  void begin(std::string_view name, Shape const& shape) { begin(name, extents_of(shape)); }

  /// The next elements of the open tensor.
  void feed(std::span<float const> values) {
    if (static_cast<std::int64_t>(values.size()) > missing_)
      throw Error(ErrorKind::usage, "weights hash: " + (any_ ? name_ : std::string("no tensor")) + " got " +
                                        std::to_string(values.size()) + " elements, " +
                                        std::to_string(missing_) + " are missing");
    missing_ -= static_cast<std::int64_t>(values.size());
    update(values.data(), values.size_bytes());
  }

  /// Adds the next elements of a tensor. The first call for a name begins the tensor.
  void append(std::string_view name, Shape const& shape, std::span<float const> values) {
    if (!any_ || name != name_) begin(name, shape);
    feed(values);
  }

  /// A whole tensor.
  void add(std::string_view name, std::span<std::int64_t const> shape, std::span<float const> values) {
    begin(name, shape);
    feed(values);
  }
  void add(std::string_view name, Shape const& shape, std::span<float const> values) {
    add(name, extents_of(shape), values);
  }

  /// 32 hexadecimal digits. May be asked at any complete tensor.
  std::string digest() const {
    finish_tensor();
    return detail::hex_of(XXH3_128bits_digest(&state_));
  }

 private:
  void finish_tensor() const {
    if (missing_ != 0)
      throw Error(ErrorKind::usage,
                  "weights hash: " + name_ + " lacks " + std::to_string(missing_) + " elements");
  }
  void number(std::uint64_t value) { update(&value, sizeof value); }
  void update(void const* data, std::size_t size) {
    if (size > 0) XXH3_128bits_update(&state_, data, size);
  }

  static_assert(std::endian::native == std::endian::little);

  XXH3_state_t state_;
  std::string name_;
  std::int64_t missing_ = 0;
  bool any_ = false;
};

/// The XXH3-128 of some bytes as 32 hexadecimal digits, for schedules and plan files.
inline std::string hash_of(std::string_view bytes) {
  return detail::hex_of(XXH3_128bits(bytes.data(), bytes.size()));
}

/// The XXH3-128 of a file, as xxhsum -H2 prints it; `beat` is called for each mebibyte, or for as many bytes
/// as `room` has, through which it is read. Throws Error(data) that names the path.
inline std::string hash_of_file(std::string const& path, detail::FunctionRef<void()> beat = {},
                                std::span<char> room = {}) {
  detail::FileReader const file(path, true);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::vector<char> own(room.empty() ? std::min<std::size_t>(file.size(), std::size_t{1} << 20) : 0);
  if (room.empty()) room = own;
  for (std::size_t at = 0; at < file.size(); at += room.size()) {
    std::size_t const some = std::min(room.size(), file.size() - at);
    file.read(at, room.data(), some);
    XXH3_128bits_update(&state, room.data(), some);
    if (beat) beat();
  }
  return detail::hex_of(XXH3_128bits_digest(&state));
}

}  // namespace v0
}  // namespace tessera
