// SPDX-License-Identifier: Apache-2.0
// Hashes the weights of a model. Equal hashes mean equal names, shapes and bits.
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

/// Computes XXH3-128 (seed 0) of the logical fp32 master weights in name order. Each tensor contributes these
/// bytes, all little-endian:
///   u64 length of the name, the name's bytes (UTF-8, no terminator),
///   u64 number of dims, one u64 per extent, outermost first,
///   the elements as IEEE binary32 in row-major order.
/// The hash does not cover the padding of the vocabulary or the second copy of tied weights, and it does not
/// depend on the sharding. The values of a tensor may arrive in several chunks. The sizes of the chunks do
/// not change the hash. Cost: memory speed. Move-only.
class WeightsHash {
 public:
  WeightsHash();
  WeightsHash(WeightsHash&&) noexcept;
  WeightsHash& operator=(WeightsHash&&) noexcept;
  ~WeightsHash();

  /// Begins the next tensor. Names must come in ascending byte order, and extents must be 0 or more. The
  /// previous tensor must be complete.
  void begin(std::string_view name, std::span<std::int64_t const> shape);

  void begin(std::string_view name, Shape const& shape);

  /// Adds the next elements of the tensor that `begin` began.
  void feed(std::span<float const> values);

  /// Adds the next elements of a tensor. The first call for a name begins the tensor.
  void append(std::string_view name, Shape const& shape, std::span<float const> values);

  /// Adds a complete tensor: `begin` and `feed` in one call.
  void add(std::string_view name, std::span<std::int64_t const> shape, std::span<float const> values);
  void add(std::string_view name, Shape const& shape, std::span<float const> values);

  /// Returns the hash as 32 hexadecimal digits. Call it only when every begun tensor is complete.
  std::string digest() const;

 private:
  void finish_tensor() const;
  void number(std::uint64_t value);
  void update(void const* data, std::size_t size);

  struct State;  // the state of the library xxHash

  std::unique_ptr<State> state_;
  std::string name_;
  std::int64_t missing_ = 0;
  bool any_ = false;
};

/// Returns the XXH3-128 of `bytes` as 32 hexadecimal digits. Other code uses this hash as a checksum, for
/// example of trainer.json, and to identify texts, for example the files of a tokenizer.
std::string hash_of(std::string_view bytes);

/// Returns the XXH3-128 of a file, in the format of xxhsum -H2. Reads the file in chunks into `buffer`. If
/// `buffer` is empty, uses its own buffer of at most 1 MiB. Calls `heartbeat`, if it is set, after each
/// chunk. Throws Error(data) that names the path if the file cannot be read.
std::string hash_of_file(std::string const& path, detail::FunctionRef<void()> heartbeat = {},
                         std::span<char> buffer = {});

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/hash_definitions.hpp"
#endif
