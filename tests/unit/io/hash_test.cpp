// SPDX-License-Identifier: Apache-2.0
// Tests the hash of a model's weights. Covers the bytes that it hashes, its errors, and that it does not
// depend on the sizes of the chunks in which it gets the weights.
#include "tessera/io/hash.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/shape.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;

TEST_CASE("XXH3-128 of known bytes") {
  // The expected values were printed by the command `xxhsum -H2`.
  CHECK(ts::hash_of("") == "99aa06d3014798d86001c324468d497f");
  CHECK(ts::WeightsHash().digest() == "99aa06d3014798d86001c324468d497f");
  CHECK(ts::hash_of("hello") == "b5e9c1ad071b3e7fc779cfaa5e523818");
}

TEST_CASE("the weights hash is XXH3-128 of the documented bytes") {
  std::vector<float> const weights = {1.0f, -2.5f, 0.0f, 3.0f, 4.0f, 1e-30f};
  std::vector<float> const bias = {7.0f};
  ts::WeightsHash hash;
  hash.add("h.0.weight", ts::Shape{2, 3}, weights);
  hash.add("scalar", ts::Shape{}, bias);
  hash.add("zero", ts::Shape{0, 5}, {});
  auto const word = [](std::uint64_t value) { return bytes_of(value); };
  std::string const expected = word(10) + "h.0.weight" + word(2) + word(2) + word(3) + bytes_of(weights) +  //
                               word(6) + "scalar" + word(0) + bytes_of(bias) +                              //
                               word(4) + "zero" + word(2) + word(0) + word(5);
  CHECK(hash.digest() == ts::hash_of(expected));
  CHECK(hash.digest().size() == 32);
}

TEST_CASE("chunks do not change the weights hash and everything else does") {
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  std::vector<std::int64_t> const shape = {50, 100};
  auto const hash = [&](std::string const& name, std::vector<std::int64_t> const& extents,
                        std::size_t chunk) {
    ts::WeightsHash result;
    result.begin(name, extents);
    for (std::size_t i = 0; i < values.size(); i += chunk)
      result.feed(std::span(values).subspan(i, std::min(chunk, values.size() - i)));
    return result.digest();
  };
  std::string const whole = hash("w", shape, 5000);
  CHECK(hash("w", shape, 1) == whole);
  CHECK(hash("w", shape, 777) == whole);
  ts::WeightsHash pieces;
  for (std::size_t i = 0; i < values.size(); i += 777)
    pieces.append("w", {50, 100},
                  std::span(values).subspan(i, std::min<std::size_t>(777, values.size() - i)));
  CHECK(pieces.digest() == whole);
  CHECK(hash("v", shape, 5000) != whole);
  CHECK(hash("w", {100, 50}, 5000) != whole);
  CHECK(hash("w", {5000}, 5000) != whole);
  values[0] = -0.0f;
  CHECK(hash("w", shape, 5000) != whole);
}

TEST_CASE("the weights hash refuses a wrong feed") {
  std::vector<float> const two = {1, 2};
  ts::WeightsHash hash;
  CHECK_ERROR(usage, hash.feed(two), "no tensor", "got 2 elements", "0 are missing");
  hash.add("b", ts::Shape{2}, two);
  CHECK_ERROR(usage, hash.begin("b", ts::Shape{2}), "b comes after b");
  CHECK_ERROR(usage, hash.begin("a", ts::Shape{2}), "a comes after b", "in byte order");
  CHECK_ERROR(usage, hash.begin("c", std::vector<std::int64_t>{-1}), "c has extent -1");
  ts::WeightsHash other;
  other.begin("w", ts::Shape{3});
  other.feed(two);
  CHECK_ERROR(usage, (void)other.digest(), "w lacks 1 elements");
  CHECK_ERROR(usage, other.begin("x", ts::Shape{1}), "w lacks 1 elements");
  CHECK_ERROR(usage, other.feed(two), "w got 2 elements", "1 are missing");
  ts::WeightsHash huge;
  CHECK_ERROR(usage, huge.begin("w", std::vector<std::int64_t>{INT64_MAX, 4}), "w has too many elements");
}
