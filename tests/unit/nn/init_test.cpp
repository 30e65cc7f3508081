// SPDX-License-Identifier: Apache-2.0
// Tests the initial weights of a model. Each value must depend only on the seed, the parameter and the
// position in the parameter, and the values must have a normal distribution.
#include "tessera/nn/init.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

namespace {

using namespace tessera;

std::vector<float> drawn(std::uint64_t seed, int unit, int parameter, std::int64_t offset, std::int64_t count,
                         Init const& init = Init::normal(0.02)) {
  std::vector<float> values(static_cast<std::size_t>(count), -7.0f);
  initial_values(seed, unit, parameter, init, offset, values);
  return values;
}

}  // namespace

TEST_CASE("initial values do not depend on how they are cut") {
  std::vector<float> const whole = drawn(1, 3, 4, 0, 5000);
  std::mt19937 bits(7);
  for (int round = 0; round < 50; ++round)
    for (std::int64_t at = 0; at < 5000;) {
      std::int64_t const count = std::min<std::int64_t>(1 + bits() % (round < 25 ? 9 : 700), 5000 - at);
      std::vector<float> const piece = drawn(1, 3, 4, at, count);
      REQUIRE(std::equal(piece.begin(), piece.end(), whole.begin() + at));
      at += count;
    }
  CHECK(drawn(1, 3, 4, 17, 0).empty());
  // `far` is a position that needs more than 32 bits.
  std::int64_t const far = (std::int64_t{1} << 35) + 13;
  std::vector<float> const there = drawn(1, 3, 4, far, 300), later = drawn(1, 3, 4, far + 100, 200);
  CHECK(std::equal(later.begin(), later.end(), there.begin() + 100));
  CHECK(drawn(1, 3, 4, (std::int64_t{1} << 34) + 8, 100) != drawn(1, 3, 4, 8, 100));
}

TEST_CASE("seeds units and parameters draw different values") {
  std::vector<float> const one = drawn(1, 0, 0, 0, 400);
  CHECK(drawn(1, 0, 0, 0, 400) == one);
  for (auto const& other : {drawn(2, 0, 0, 0, 400), drawn(1, 1, 0, 0, 400), drawn(1, 0, 1, 0, 400),
                            drawn(std::uint64_t{1} << 32 | 1, 0, 0, 0, 400), drawn(1, 0, 0, 400, 400)}) {
    int equal = 0;
    for (std::size_t i = 0; i < one.size(); ++i) equal += one[i] == other[i];
    CHECK(equal <= 1);
  }
}

TEST_CASE("zeros and ones are just that") {
  CHECK(drawn(1, 0, 0, 3, 100, Init::zeros()) == std::vector<float>(100, 0.0f));
  CHECK(drawn(1, 0, 0, 3, 100, Init::ones()) == std::vector<float>(100, 1.0f));
}

TEST_CASE("initial values are normal with the deviation asked for") {
  constexpr std::int64_t n = 1 << 20;
  std::vector<float> const values = drawn(42, 1, 2, 0, n, Init::normal(0.5));
  double sum = 0, square = 0, cube = 0, fourth = 0;
  for (float const value : values) {
    double const z = static_cast<double>(value) / 0.5;
    sum += z;
    square += z * z;
    cube += z * z * z;
    fourth += z * z * z * z;
  }
  double const count = static_cast<double>(n);
  // Each of the first four moments of the values must be within five standard errors of the corresponding
  // moment of a normal distribution.
  CHECK(std::fabs(sum / count) < 5 / std::sqrt(count));
  CHECK(std::fabs(square / count - 1) < 5 * std::sqrt(2 / count));
  CHECK(std::fabs(cube / count) < 5 * std::sqrt(15 / count));
  CHECK(std::fabs(fourth / count - 3) < 5 * std::sqrt(96 / count));
  // Neighboring values must be uncorrelated. This includes the four values that come from one block of
  // Philox, the random generator.
  for (std::size_t const lag : {1u, 2u, 4u, 64u}) {
    double product = 0;
    for (std::size_t i = lag; i < values.size(); ++i)
      product += static_cast<double>(values[i]) * static_cast<double>(values[i - lag]) * 4;
    CHECK(std::fabs(product / count) < 5 / std::sqrt(count));
  }
}

TEST_CASE("every drawn value is the normal quantile of its word") {
  // Each value must be the normal quantile of (word + 0.5) / 2^32. `word` is the 32-bit random number of this
  // value. This test computes the error of the value with std::erfc, not with the tested code.
  PhiloxKey const key = philox_key(9);
  std::vector<float> const values = drawn(9, 5, 6, 0, 1 << 18, Init::normal(1.0));
  double worst = 0, farthest = 0;
  for (std::int64_t i = 0; i < 1 << 18; ++i) {
    std::uint32_t const word = philox4x32({{static_cast<std::uint32_t>(i / 4), 5u, 6u, 1u}}, key).word[i % 4];
    double const z = static_cast<double>(values[static_cast<std::size_t>(i)]);
    // `side` is the exact probability of the tail that `word` selects. `beyond` is the probability of the
    // tail beyond |z|. The difference of these probabilities, divided by the normal density at z, is the
    // error of z.
    double const side = (static_cast<double>(word < 0x80000000u ? word : ~word) + 0.5) * 0x1p-32;
    double const beyond = 0.5 * std::erfc(std::fabs(z) / std::sqrt(2.0));
    REQUIRE((word < 0x80000000u ? z <= 0 : z >= 0));
    double const density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
    worst = std::max(worst, std::fabs(beyond - side) / density);  // the largest error of z so far
    farthest = std::max(farthest, std::fabs(z));
  }
  CHECK(worst < 4e-6);
  CHECK(farthest > 4.0);
}

TEST_CASE("the outermost words give the outermost quantiles") {
  // The smallest random word, 0, gives the quantile of (0 + 0.5) / 2^32, which is 6.34 standard deviations
  // below the mean. A random draw hardly ever gives this word, so this test passes it directly to the
  // functions of the quantile formula.
  auto const at = [](std::uint32_t word) {
    float const x = detail::quantile_x(word), w = detail::quantile_w(word);
    return static_cast<double>(w >= 5.0f ? detail::quantile_far(x, w) : detail::quantile_near(x, w));
  };
  for (std::uint32_t const word : {0u, 1u, 2u, 1000u, 1u << 20, 1u << 24, 1u << 30, (1u << 31) - 1}) {
    double const side = (static_cast<double>(word) + 0.5) * 0x1p-32;
    double const z = at(word);
    double const density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
    INFO(word, " at ", z);
    // The formula is accurate for tail probabilities down to 2^-24. Only the words 0 to 63 and their
    // complements (together one word in 2^25) have smaller tail probabilities. Their z is wrong by less than
    // 0.05 %.
    CHECK(std::fabs(0.5 * std::erfc(-z / std::sqrt(2.0)) - side) / density < (word < 64 ? 3e-3 : 1e-5));
    CHECK(at(~word) == -z);  // the complement of a word gives exactly -z
  }
  CHECK(at(0) < -6.2);
  CHECK(at(0) > -6.4);
}

TEST_CASE("uniform values fill their bounds evenly and do not depend on how they are cut") {
  Init const init = Init::uniform(0.25);
  std::vector<float> const whole = drawn(1, 3, 4, 0, 100000, init);
  double mean = 0.0, square = 0.0;
  for (float const value : whole) {
    REQUIRE(std::fabs(value) <= 0.25f);
    mean += static_cast<double>(value) / 100000.0;
    square += static_cast<double>(value) * static_cast<double>(value) / 100000.0;
  }
  CHECK(std::fabs(mean) < 2e-3);
  CHECK(std::fabs(square - 0.0625 / 3.0) < 2e-4);
  CHECK(*std::max_element(whole.begin(), whole.end()) > 0.2499f);
  std::vector<float> const piece = drawn(1, 3, 4, 777, 1001, init);
  CHECK(std::equal(piece.begin(), piece.end(), whole.begin() + 777));
}
