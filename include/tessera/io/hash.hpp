// SPDX-License-Identifier: Apache-2.0
// The hash of a model's weights: equal hashes mean equal names, shapes and bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/config.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/detail/function_ref.hpp"

namespace tessera {
inline namespace v0 {

/// XXH3-128 (seed 0) over the logical fp32 master weights in name order. Per tensor these bytes, all
/// little-endian:
///   u64 length of the name, the name's bytes (UTF-8, no terminator),
///   u64 number of dims, one u64 per extent, outermost first,
///   the elements as IEEE binary32 in row-major order.
/// Vocabulary padding, tied copies and sharding are not part of it. Feeding is a stream: any chunks give the
/// same hash. Cost: memory speed. Move-only.
class WeightsHash {
 public:
  WeightsHash();
  WeightsHash(WeightsHash&&) noexcept;
  WeightsHash& operator=(WeightsHash&&) noexcept;
  ~WeightsHash();

  /// Opens the next tensor. Names must rise in byte order, extents be 0 or more, and the tensor before be
  /// complete.
  void begin(std::string_view name, std::span<std::int64_t const> shape);

  void begin(std::string_view name, Shape const& shape);

  /// The next elements of the open tensor.
  void feed(std::span<float const> values);

  /// Adds the next elements of a tensor. The first call for a name begins the tensor.
  void append(std::string_view name, Shape const& shape, std::span<float const> values);

  /// A whole tensor.
  void add(std::string_view name, std::span<std::int64_t const> shape, std::span<float const> values);
  void add(std::string_view name, Shape const& shape, std::span<float const> values);

  /// 32 hexadecimal digits. May be asked at any complete tensor.
  std::string digest() const;

 private:
  void finish_tensor() const;
  void number(std::uint64_t value);
  void update(void const* data, std::size_t size);

  struct State;  // of xxHash

  std::unique_ptr<State> state_;
  std::string name_;
  std::int64_t missing_ = 0;
  bool any_ = false;
};

/// The XXH3-128 of some bytes as 32 hexadecimal digits, for schedules and plan files.
std::string hash_of(std::string_view bytes);

/// The XXH3-128 of a file, as xxhsum -H2 prints it; `beat` is called for each mebibyte, or for as many bytes
/// as `room` has, through which it is read. Throws Error(data) that names the path.
std::string hash_of_file(std::string const& path, detail::FunctionRef<void()> beat = {},
                         std::span<char> room = {});

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/hash_definitions.hpp"
#endif
