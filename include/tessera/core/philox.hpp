// SPDX-License-Identifier: Apache-2.0
// Provides the random-number generator Philox4x32-10. Its numbers are a pure function of a counter and a key,
// and are the same on host and device.
#pragma once

#include <cstdint>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// Four 32-bit words: the 128-bit counter of Philox4x32, or the 128 random bits that it returns.
struct PhiloxCounter {
  std::uint32_t word[4];
  friend constexpr bool operator==(PhiloxCounter const&, PhiloxCounter const&) = default;
};

/// The 64-bit key of Philox4x32.
struct PhiloxKey {
  std::uint32_t word[2];
  friend constexpr bool operator==(PhiloxKey const&, PhiloxKey const&) = default;
};

/// Returns the key that consists of the two words of a 64-bit seed, low word first.
TESSERA_HOST_DEVICE constexpr PhiloxKey philox_key(std::uint64_t seed) {
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
}

/// Returns four random words for a counter and a key: ten rounds of Philox4x32 (Salmon, Moraes, Dror, Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The function computes only with integers, so
/// every compiler and device gives the same words. It needs about 40 multiplications. Example:
/// `philox4x32({i, 0, 0, 0}, philox_key(seed)).word[0]`.
TESSERA_HOST_DEVICE constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const first = std::uint64_t{0xD2511F53u} * counter.word[0];
    std::uint64_t const second = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(second >> 32) ^ counter.word[1] ^ key.word[0],
                static_cast<std::uint32_t>(second),
                static_cast<std::uint32_t>(first >> 32) ^ counter.word[3] ^ key.word[1],
                static_cast<std::uint32_t>(first)}};
    key.word[0] += 0x9E3779B9u;  // the golden ratio
    key.word[1] += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

}  // namespace v0
}  // namespace tessera
