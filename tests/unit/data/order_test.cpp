// SPDX-License-Identifier: Apache-2.0
// Tests the order in which training samples are read. The random generator Philox must give its published
// test vectors. Each epoch must be a permutation of the samples. A global batch must be divided over the
// ranks.
#include "tessera/data/order.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/philox.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;

TEST_CASE("philox4x32 gives the published vectors") {
  // The expected values are the lines "philox4x32 10" of the file kat_vectors of the library Random123.
  CHECK(ts::philox4x32({0, 0, 0, 0}, {0, 0}) ==
        ts::PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(ts::philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        ts::PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(ts::philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        ts::PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
  static_assert(ts::philox4x32({0, 0, 0, 0}, {0, 0}).word[0] == 0x6627e8d5u);
  CHECK(ts::philox_key(0x0123456789abcdefu) == ts::PhiloxKey{0x89abcdefu, 0x01234567u});
}

TEST_CASE("samples in a number of tokens") {
  CHECK(ts::samples_in(0, 4) == 0);
  CHECK(ts::samples_in(4, 4) == 0);
  CHECK(ts::samples_in(5, 4) == 1);
  CHECK(ts::samples_in(8, 4) == 1);
  CHECK(ts::samples_in(9, 4) == 2);
  CHECK(ts::samples_in(10'000'000'001, 1) == 10'000'000'000);
}

TEST_CASE("a shuffled epoch is a permutation for any sample count") {
  for (std::int64_t const samples : {1, 2, 3, 5, 63, 64, 65, 100, 1000, 1023, 1024, 1025, 20233}) {
    ts::SampleOrder const order(ts::Order::shuffled, samples, 42);
    for (std::int64_t const epoch : {0, 1, 7}) {
      std::vector<bool> seen(static_cast<std::size_t>(samples));
      for (std::int64_t i = 0; i < samples; ++i) {
        std::int64_t const sample = order(epoch * samples + i);
        REQUIRE(sample >= 0);
        REQUIRE(sample < samples);
        REQUIRE(!seen[static_cast<std::size_t>(sample)]);
        seen[static_cast<std::size_t>(sample)] = true;
      }
    }
  }
}

TEST_CASE("a shuffled order depends on seed and epoch and on nothing else") {
  constexpr std::int64_t samples = 1000;
  auto const epoch_of = [](std::uint64_t seed, std::int64_t epoch) {
    ts::SampleOrder const order(ts::Order::shuffled, samples, seed);
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < samples; ++i) result.push_back(order(epoch * samples + i));
    return result;
  };
  std::set<std::vector<std::int64_t>> distinct;
  for (std::uint64_t const seed : {0u, 1u, 2u})
    for (std::int64_t const epoch : {0, 1, 2}) distinct.insert(epoch_of(seed, epoch));
  distinct.insert(epoch_of(std::uint64_t{1} << 32, 0));
  CHECK(distinct.size() == 10);
  CHECK(epoch_of(1, 2) == epoch_of(1, 2));
  // The expected values were computed by a separate program. If this test fails, the order of shuffled data
  // has changed, and earlier training runs cannot be reproduced.
  ts::SampleOrder const order(ts::Order::shuffled, samples, 1);
  std::vector<std::int64_t> const first = {order(0), order(1), order(2), order(3), order(1000)};
  CHECK(first == std::vector<std::int64_t>{288, 235, 648, 959, 180});
}

TEST_CASE("a number that is no order is refused") {
  CHECK_THROWS_WITH_AS(ts::SampleOrder(static_cast<ts::Order>(7), 5, 1), "data order 7 does not exist",
                       ts::Error);
}

TEST_CASE("a shuffled order mixes") {
  // The mean distance between neighbors is n/3 in a random permutation of n values, and 1 if the values are
  // sorted.
  constexpr std::int64_t samples = 4096;
  ts::SampleOrder const order(ts::Order::shuffled, samples, 3);
  double distance = 0;
  std::int64_t low_in_low_half = 0;
  for (std::int64_t i = 0; i + 1 < samples; ++i)
    distance += static_cast<double>(std::abs(order(i + 1) - order(i)));
  for (std::int64_t i = 0; i < samples / 2; ++i) low_in_low_half += order(i) < samples / 2 ? 1 : 0;
  CHECK(distance / samples > 0.30 * samples);
  CHECK(distance / samples < 0.37 * samples);
  CHECK(low_in_low_half > samples / 4 - 150);  // the standard deviation of this number is about 16
  CHECK(low_in_low_half < samples / 4 + 150);
  // Three samples have 6 permutations. Each of them must occur in some of the 200 epochs.
  ts::SampleOrder const three(ts::Order::shuffled, 3, 0);
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 200; ++epoch)
    orders.insert({three(3 * epoch), three(3 * epoch + 1), three(3 * epoch + 2)});
  CHECK(orders.size() == 6);
}

TEST_CASE("a sequential order wraps at the end") {
  ts::SampleOrder const order(ts::Order::sequential, 5, 9);
  std::vector<std::int64_t> got;
  for (std::int64_t i = 0; i < 12; ++i) got.push_back(order(i));
  CHECK(got == std::vector<std::int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1});
  CHECK(order.epoch(4) == 0);
  CHECK(order.epoch(5) == 1);
}

TEST_CASE("the same global batch is the same micro-batches however it is split") {
  constexpr std::int64_t batch = 3, micro_batches = 8;
  std::vector<std::int64_t> expected;
  for (std::int64_t m = 0; m < micro_batches; ++m) expected.push_back(5 * batch * micro_batches + m * batch);
  for (std::int64_t const world : {1, 2, 4, 8}) {
    ts::BatchSplit const split{batch, micro_batches / world, world};
    CHECK(split.global_batch() == batch * micro_batches);
    std::vector<std::int64_t> got(static_cast<std::size_t>(micro_batches));
    for (std::int64_t rank = 0; rank < world; ++rank)
      for (std::int64_t a = 0; a < split.accumulation; ++a)
        got[static_cast<std::size_t>(a * world + rank)] = split.position(5, rank, a);
    CHECK(got == expected);
  }
}

TEST_CASE("an order needs samples") {
  CHECK_ERROR(usage, ts::SampleOrder(ts::Order::shuffled, 0, 1), "1 to 2^62 samples", "got 0");
  CHECK_ERROR(usage, ts::SampleOrder(ts::Order::shuffled, -4, 1), "got -4");
  // 2^62 is the largest allowed number of samples. SampleOrder permutes each index as two words of 31 bits.
  ts::SampleOrder const huge(ts::Order::shuffled, std::int64_t{1} << 62, 1);
  CHECK(huge(0) != huge(1));
  CHECK(huge(12345) >= 0);
}
