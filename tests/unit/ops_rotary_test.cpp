// SPDX-License-Identifier: Apache-2.0
// Tests rotary positions against their definition in double, central differences, and at offsets.
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/rotary.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

/// x (B,T,C) with every pair rotated, using angles with the rounding of T's sums.
template <class T>
std::vector<double> turned(Array<T> const& x, ops::RotaryFrequencies const& frequencies, std::int64_t first) {
  using S = compute_t<T>;
  std::int64_t const c = x.shape.columns(), pairs = frequencies.pairs;
  std::vector<double> result;
  for (std::int64_t row = 0; row < x.shape.rows(); ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      bool const high = i % (2 * pairs) >= pairs;
      double const angle = static_cast<S>(first + row % x.shape[1]) *
                           static_cast<S>(frequencies.inverse[i % pairs]),
                   other = x[row * c + (high ? i - pairs : i + pairs)];
      result.push_back(x[row * c + i] * std::cos(angle) + (high ? other : -other) * std::sin(angle));
    }
  return result;
}

}  // namespace

TEST_CASE("rotary frequencies are powers of theta, and Llama 3 stretches the long waves") {
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
      int kept = 0, stretched = 0, wrong = 0;
      for (int i = 0; i < plain.pairs; ++i) {
        double const wave = 2 * M_PI / plain.inverse[i], ratio = longer.inverse[i] / plain.inverse[i],
                     blend = (8192 / wave - 1) / 3;
        double const want = wave < 2048 ? 1.0 : wave > 8192 ? 0.125 : (1 - blend) / 8 + blend;
        wrong += std::fabs(ratio - want) > 1e-5;
        kept += want == 1.0;
        stretched += want == 0.125;
      }
      CHECK(wrong == 0);
      if (head == 128) {
        CHECK(kept > 0);
        CHECK(stretched > 0);
        CHECK(kept + stretched < plain.pairs);
      }
    }
  CHECK_THROWS_WITH_AS(ops::rotary_frequencies(7),
                       "rotary positions turn pairs of channels: a head of 7 has to have an even number from "
                       "2 to 512",
                       Error);
  CHECK_THROWS_AS(ops::rotary_frequencies(514), Error);
}

TEST_CASE_TEMPLATE("rotary matches its definition", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (std::int64_t head : {2, 6, 32, 80, 130})
    for (std::int64_t first : {0, 1000}) {
      std::int64_t const b = 2, t = 19, c = 3 * head;
      auto const frequencies = ops::rotary_frequencies(head);
      Array<T> x = reference::random<T>({b, t, c}, 1, 2.0), y({b, t, c}), back({b, t, c});
      ops::rotary(machine.context, x.view(), y.view(), frequencies, {.first = first});
      CHECK(reference::error(y, turned(x, frequencies, first)) < reference::tolerance<T>());
      ops::rotary(machine.context, y.view(), back.view(), frequencies, {.first = first, .transposed = true});
      CHECK(reference::error(back, {x.values.begin(), x.values.end()}) < 2 * reference::tolerance<T>());
      Array<T> in_place = x;
      ops::rotary(machine.context, in_place.view(), in_place.view(), frequencies, {.first = first});
      CHECK(reference::same_bits(in_place.values, y.values));

      // A span of the positions, and columns of wider rows whose other columns must not change.
      Array<T> last({1, t - 5, c}), wide({b, t, c + 7}, T(3.0f));
      last.values.assign(x.values.begin() + 5 * c, x.values.begin() + t * c);
      ops::rotary(machine.context, last.view(), last.view(), frequencies, {.first = first + 5});
      for (std::int64_t row = 0; row < b * t; ++row)
        for (std::int64_t i = 0; i < c; ++i) wide.at(row * (c + 7) + 4 + i) = x.at(row * c + i);
      ops::Columns<T, Cpu> const columns(wide.view(), 4, c);
      ops::rotary(machine.context, columns, columns, t, frequencies, {.first = first});
      int wrong = 0;
      for (std::int64_t i = 0; i < (t - 5) * c; ++i) wrong += last[i] != y[5 * c + i];
      for (std::int64_t row = 0; row < b * t; ++row)
        for (std::int64_t i = 0; i < c + 7; ++i)
          wrong += wide[row * (c + 7) + i] != (i < 4 || i >= c + 4 ? 3.0 : y[row * c + i - 4]);
      CHECK(wrong == 0);
    }
}

TEST_CASE("rotary backward is the derivative, and products depend on distances alone") {
  Machine machine(1);
  auto const frequencies = ops::rotary_frequencies(6);
  Array<double> x = reference::random<double>({2, 3, 12}, 1),
                weights = reference::random<double>({2, 3, 12}, 2), y({2, 3, 12}), dx({2, 3, 12});
  auto const loss = [&] {
    ops::rotary(machine.context, x.view(), y.view(), frequencies, {.first = 4});
    return reference::weighted(weights, y);
  };
  ops::rotary(machine.context, weights.view(), dx.view(), frequencies, {.first = 4, .transposed = true});
  CHECK(reference::error(dx, reference::central_differences(x, loss)) < 1e-8);

  auto const dot = [&](std::int64_t query, std::int64_t key) {
    Array<double> q = reference::random<double>({1, 1, 6}, 3), k = reference::random<double>({1, 1, 6}, 4);
    ops::rotary(machine.context, q.view(), q.view(), frequencies, {.first = query});
    ops::rotary(machine.context, k.view(), k.view(), frequencies, {.first = key});
    return reference::weighted(q, k);
  };
  CHECK(std::fabs(dot(17, 5) - dot(112, 100)) < 1e-12);
  CHECK(std::fabs(dot(17, 5) - dot(17, 6)) > 1e-3);
}

TEST_CASE("rotary has the same bits for every number of threads, and refuses shapes that do not fit") {
  Array<float> x = reference::random<float>({3, 41, 64}, 1);
  auto const frequencies = ops::rotary_frequencies(32);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<float> y({3, 41, 64});
    ops::rotary(machine.context, x.view(), y.view(), frequencies);
    return y.values;
  }));
  Machine machine(1);
  Array<float> y({3, 41, 64}), narrow({3, 41, 48});
  CHECK_THROWS_AS(ops::rotary(machine.context, narrow.view(), narrow.view(), frequencies), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), narrow.view(), frequencies), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), y.view(), {}), Error);
  CHECK_THROWS_AS(ops::rotary(machine.context, x.view(), y.view(), frequencies, {.first = -1}), Error);
}
