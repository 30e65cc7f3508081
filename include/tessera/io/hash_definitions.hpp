// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/hash.hpp. Needs xxHash.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/io/extents.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/xxhash.hpp"

namespace tessera {
inline namespace v0 {

static_assert(std::endian::native == std::endian::little);

namespace detail {

/// Returns the hash as 32 hexadecimal digits, most significant first, in the format of xxhsum.
inline std::string hex_of(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char const byte : bytes.digest) text.append({digits[byte >> 4], digits[byte & 15]});
  return text;
}

}  // namespace detail

struct WeightsHash::State {
  XXH3_state_t xxhash;
};

TESSERA_INLINE WeightsHash::WeightsHash() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxhash);
}
TESSERA_INLINE WeightsHash::WeightsHash(WeightsHash&&) noexcept = default;
TESSERA_INLINE WeightsHash& WeightsHash::operator=(WeightsHash&&) noexcept = default;
TESSERA_INLINE WeightsHash::~WeightsHash() = default;

TESSERA_INLINE void WeightsHash::begin(std::string_view name, std::span<std::int64_t const> shape) {
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

TESSERA_INLINE void WeightsHash::begin(std::string_view name, Shape const& shape) {
  begin(name, extents_of(shape));
}

TESSERA_INLINE void WeightsHash::feed(std::span<float const> values) {
  if (static_cast<std::int64_t>(values.size()) > missing_)
    throw Error(ErrorKind::usage, "weights hash: " + (any_ ? name_ : std::string("no tensor")) + " got " +
                                      std::to_string(values.size()) + " elements, " +
                                      std::to_string(missing_) + " are missing");
  missing_ -= static_cast<std::int64_t>(values.size());
  update(values.data(), values.size_bytes());
}

TESSERA_INLINE void WeightsHash::append(std::string_view name, Shape const& shape,
                                        std::span<float const> values) {
  if (!any_ || name != name_) begin(name, shape);
  feed(values);
}

TESSERA_INLINE void WeightsHash::add(std::string_view name, std::span<std::int64_t const> shape,
                                     std::span<float const> values) {
  begin(name, shape);
  feed(values);
}

TESSERA_INLINE void WeightsHash::add(std::string_view name, Shape const& shape,
                                     std::span<float const> values) {
  add(name, extents_of(shape), values);
}

TESSERA_INLINE std::string WeightsHash::digest() const {
  finish_tensor();
  return detail::hex_of(XXH3_128bits_digest(&state_->xxhash));
}

TESSERA_INLINE void WeightsHash::finish_tensor() const {
  if (missing_ != 0)
    throw Error(ErrorKind::usage,
                "weights hash: " + name_ + " lacks " + std::to_string(missing_) + " elements");
}

TESSERA_INLINE void WeightsHash::number(std::uint64_t value) { update(&value, sizeof value); }

TESSERA_INLINE void WeightsHash::update(void const* data, std::size_t size) {
  if (size > 0) XXH3_128bits_update(&state_->xxhash, data, size);
}

TESSERA_INLINE std::string hash_of(std::string_view bytes) {
  return detail::hex_of(XXH3_128bits(bytes.data(), bytes.size()));
}

TESSERA_INLINE std::string hash_of_file(std::string const& path, detail::FunctionRef<void()> heartbeat,
                                        std::span<char> buffer) {
  files::FileReader const file(path, true);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::vector<char> own(buffer.empty() ? std::min<std::size_t>(file.size(), std::size_t{1} << 20) : 0);
  if (buffer.empty()) buffer = own;
  for (std::size_t at = 0; at < file.size(); at += buffer.size()) {
    std::size_t const some = std::min(buffer.size(), file.size() - at);
    file.read(at, buffer.data(), some);
    XXH3_128bits_update(&state, buffer.data(), some);
    if (heartbeat) heartbeat();
  }
  return detail::hex_of(XXH3_128bits_digest(&state));
}

}  // namespace v0
}  // namespace tessera
