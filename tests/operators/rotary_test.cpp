// SPDX-License-Identifier: Apache-2.0
// Tests rotary position embeddings (RoPE) against their definition in double, against numerical derivatives,
// and for queries that do not start at position 0.
#include "tessera/ops/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

/// Returns x (B, T, C) after rotary position embedding, computed from the definition: each pair of values is
/// rotated by the angle of its position and frequency. Angles are rounded to compute_t<T>.
template <class T>
std::vector<double> rotary_definition(Array<T> const& x, ops::RotaryFrequencies const& frequencies,
                                      ops::RotaryOptions const& with) {
  using S = compute_t<T>;
  std::int64_t const c = x.shape.columns(), pairs = frequencies.pairs;
  std::vector<double> result;
  for (std::int64_t row = 0; row < x.shape.rows(); ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      bool const high = i % (2 * pairs) >= pairs;
      double const angle = static_cast<S>(with.first + row % x.shape[1]) *
                           static_cast<S>(frequencies.inverse[i % pairs]),
                   other = x[row * c + (high ? i - pairs : i + pairs)];
      result.push_back(x[row * c + i] * std::cos(angle) +
                       (high != with.transposed ? other : -other) * std::sin(angle));
    }
  return result;
}

template <class T>
Array<T> rotated(Machine& machine, Array<T> const& x, ops::RotaryFrequencies const& frequencies,
                 ops::RotaryOptions const& with = {}, bool in_place = false) {
  OnPlace<T> from(x), own(poison<T>(x.shape));
  OnPlace<T>& to = in_place ? from : own;
  ops::rotary(machine.context, from.cview(), to.view(), frequencies, with);
  machine.finish();
  return to.back();
}

/// Rotates x in place and returns the rotated x. For the call, x is copied into wider rows with `before`
/// additional columns in front of x and `after` columns behind it. Checks that the additional columns do not
/// change.
template <class T>
Array<T> rotated_in_columns(Machine& machine, Array<T> const& x, ops::RotaryFrequencies const& frequencies,
                            ops::RotaryOptions const& with, std::int64_t before, std::int64_t after) {
  std::int64_t const c = x.shape.columns(), width = before + c + after;
  Array<T> wide({x.shape[0], x.shape[1], width}, T(3.0f)), result(x.shape);
  auto const place_of = [&](std::int64_t i) { return i / c * width + before + i % c; };
  for (std::int64_t i = 0; i < x.shape.elements(); ++i)
    wide.at(place_of(i)) = x.values[static_cast<std::size_t>(i)];
  OnPlace<T> rows(wide);
  ops::Columns<T, Place> const columns(rows.view(), before, c);
  ops::rotary(machine.context, columns, columns, x.shape[1], frequencies, with);
  machine.finish();
  wide = rows.back();
  for (std::int64_t i = 0; i < x.shape.elements(); ++i) {
    result.at(i) = wide.at(place_of(i));
    wide.at(place_of(i)) = T(3.0f);
  }
  CHECK(same_bits(wide.values, Array<T>(wide.shape, T(3.0f)).values));
  return result;
}

}  // namespace

TEST_CASE("rotary frequencies are powers of theta, and Llama 3 stretches the long waves") {
  TESSERA_NEEDS_PLACE();
  for (std::int64_t head : {2, 64, 80, 128, 512})
    for (double theta : {10000.0, 500000.0}) {
      auto const plain = ops::rotary_frequencies(head, theta);
      CHECK(plain.pairs == head / 2);
      double worst = 0;
      for (int i = 0; i < plain.pairs; ++i)
        worst = std::max(
            worst, std::fabs(plain.inverse[i] * std::pow(theta, 2.0 * i / static_cast<double>(head)) - 1));
      CHECK(worst < 1e-6);
      CHECK(plain.inverse[0] == 1.0f);

      auto const longer = ops::scaled(
          plain, {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 8192});
      int unscaled = 0, rescaled = 0, wrong = 0;
      for (int i = 0; i < plain.pairs; ++i) {
        double const wave = 2 * M_PI / plain.inverse[i], ratio = longer.inverse[i] / plain.inverse[i],
                     blend = (8192 / wave - 1) / 3;
        double const want = wave < 2048 ? 1.0 : wave > 8192 ? 0.125 : (1 - blend) / 8 + blend;
        wrong += std::fabs(ratio - want) > 1e-5;
        unscaled += want == 1.0;
        rescaled += want == 0.125;
      }
      CHECK(wrong == 0);
      if (head == 128) {
        CHECK(unscaled > 0);
        CHECK(rescaled > 0);
        CHECK(unscaled + rescaled < plain.pairs);
      }
    }
  CHECK_THROWS_WITH_AS(ops::rotary_frequencies(7),
                       "rotary positions rotate pairs of channels: a head has 7 channels, but needs an even "
                       "number from 2 to 512",
                       Error);
  CHECK_THROWS_AS(ops::rotary_frequencies(514), Error);
}

TEST_CASE_TEMPLATE("rotary matches its definition", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const head : {2, 6, 32, 64, 80, 96, 128, 130, 512})
    for (std::int64_t const first : {0, 1000, 4000})
      for (bool const transposed : {false, true}) {
        CAPTURE(head);
        CAPTURE(first);
        CAPTURE(transposed);
        std::int64_t const t = 19, c = 3 * head;
        auto const frequencies = ops::rotary_frequencies(head);
        ops::RotaryOptions const with{first, transposed};
        Array<T> const x = reference::random<T>({2, t, c}, 1, 2.0),
                       y = rotated(machine, x, frequencies, with);
        CHECK(reference::error(y, rotary_definition(x, frequencies, with)) < reference::tolerance<T>());
        CHECK(reference::error(rotated(machine, y, frequencies, {first, !transposed}), x.values) <
              2 * reference::tolerance<T>());
        CHECK(same_bits(rotated(machine, x, frequencies, with, true).values, y.values));
        // In the first call, the rows are not aligned for the vector loads of a GPU. In the second call,
        // which has 8 and 16 additional columns, the rows are aligned.
        CHECK(same_bits(rotated_in_columns(machine, x, frequencies, with, 4, 3).values, y.values));
        CHECK(same_bits(rotated_in_columns(machine, x, frequencies, with, 8, 16).values, y.values));

        Array<T> last({1, t - 5, c});
        auto const span_of = [&](Array<T> const& all) {
          return std::vector<T>(all.values.begin() + 5 * c, all.values.begin() + t * c);
        };
        last.values = span_of(x);
        CHECK(same_bits(rotated(machine, last, frequencies, {first + 5, transposed}).values, span_of(y)));
      }
}

TEST_CASE("rotary backward is the derivative, and products depend on distances alone") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  auto const frequencies = ops::rotary_frequencies(6);
  Array<double> x = reference::random<double>({2, 3, 12}, 1);
  Array<double> const weights = reference::random<double>({2, 3, 12}, 2),
                      dx = rotated(machine, weights, frequencies, {.first = 4, .transposed = true});
  auto const loss = [&] {
    return reference::weighted(weights, rotated(machine, x, frequencies, {.first = 4}));
  };
  CHECK(reference::error(dx, reference::central_differences(x, loss)) < 1e-8);

  auto const dot = [&](std::int64_t query, std::int64_t key) {
    auto const at = [&](std::int64_t position, std::uint32_t seed) {
      return rotated(machine, reference::random<double>({1, 1, 6}, seed), frequencies, {.first = position});
    };
    return reference::weighted(at(query, 3), at(key, 4));
  };
  CHECK(std::fabs(dot(17, 5) - dot(112, 100)) < 1e-12);
  CHECK(std::fabs(dot(17, 5) - dot(17, 6)) > 1e-3);
}

TEST_CASE("rotary has the same bits every time and refuses shapes that do not fit") {
  TESSERA_NEEDS_PLACE();
  auto const frequencies = ops::rotary_frequencies(32);
  Array<float> const values = reference::random<float>({3, 41, 64}, 1);
  CHECK(test::same_bits_every_time([&](Machine& machine) { return rotated(machine, values, frequencies); }));
  Machine machine;
  OnPlace<float> x(values), y(values), narrow(Array<float>({3, 41, 48}));
  CHECK_THROWS_AS(ops::rotary(machine.context, narrow.view(), narrow.view(), frequencies), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), narrow.view(), frequencies), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), y.view(), {}), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), y.view(), frequencies, {.first = -1}), Error);
}
