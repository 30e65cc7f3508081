// SPDX-License-Identifier: Apache-2.0
// Tests embeddings and the classifier, the two ends of a model, against scalar code.
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/linear.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

Array<std::int32_t> random_tokens(Shape const& shape, std::int32_t vocabulary, std::uint32_t seed) {
  Array<std::int32_t> tokens(shape, 0);
  std::uint32_t state = seed;
  for (std::int32_t& token : tokens.values) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
  }
  return tokens;
}

struct Entropy {
  std::vector<double> losses, gradient;
};

template <class T>
Entropy entropy_reference(Array<T> const& logits, Array<std::int32_t> const& targets, double scale) {
  std::int64_t const rows = logits.shape.rows(), n = logits.shape.columns();
  Entropy result;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int32_t const target = targets.values[static_cast<std::size_t>(row)];
    double top = -1e300, total = 0;
    for (std::int64_t i = 0; i < n; ++i) top = std::max(top, logits[row * n + i]);
    for (std::int64_t i = 0; i < n; ++i) total += std::exp(logits[row * n + i] - top);
    double const normalizer = top + std::log(total);
    result.losses.push_back(target < 0 ? 0 : normalizer - logits[row * n + target]);
    for (std::int64_t i = 0; i < n; ++i)
      result.gradient.push_back(
          target < 0 ? 0 : (std::exp(logits[row * n + i] - normalizer) - (i == target ? 1.0 : 0.0)) * scale);
  }
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("cross entropy matches the definition", T, float, double, half, bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  for (std::int64_t rows : {1, 7, 33})
    for (std::int32_t n : {1, 7, 129, 256, 2049, 5003}) {
      Array<T> logits = reference::random<T>({rows, n}, 1, 8.0);
      Array<std::int32_t> targets = random_tokens({rows}, n, 3);
      if (rows > 2) targets.at(2) = -1;
      Entropy const want = entropy_reference(logits, targets, 0.25);
      Array<S> losses({rows});
      Array<T> const before = logits;
      ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), false, nullptr);
      CHECK(reference::same_bits(before.values, logits.values));
      CHECK(reference::error(losses, want.losses) < reference::tolerance<S>());
      S const scale = S(0.25);
      ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), true, &scale);
      CHECK(reference::error(losses, want.losses) < reference::tolerance<S>());
      CHECK(reference::error(logits, want.gradient) < reference::tolerance<T>());
      if (rows > 2)
        for (std::int64_t i = 2 * n; i < 3 * n; ++i) REQUIRE(logits[i] == 0.0);
    }
}

TEST_CASE_TEMPLATE("a head with padding rows has the bits of one without, and no gradient in them", T, float,
                   double, half, bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  std::int64_t const m = 11, k = 37;
  for (std::int64_t const n : {5, 61, 301}) {
    Array<T> x = reference::random<T>({m, k}, 1), unpadded = reference::random<T>({n, k}, 2);
    Array<std::int32_t> targets = random_tokens({m}, static_cast<std::int32_t>(n), 3);
    S const scale = S(0.25);
    auto const head = [&](std::int64_t padded) {
      Array<T> w({padded, k}, T(0.0f));
      std::copy(unpadded.values.begin(), unpadded.values.end(), w.values.begin());
      Array<T> logits({m, padded}, T(768.0f)), dx({m, k}), dw({padded, k}, T(768.0f));
      Array<S> losses({m}), sums({padded, k}, S(768.0f));
      ops::linear(machine.context, x.view(), w.view(), logits.view(), {.transposed = true});
      ops::cross_entropy(machine.context, logits.view(), n, targets.view(), losses.view(), true, &scale);
      ops::linear_backward_input(machine.context, logits.view(), w.view(), dx.view(), {.transposed = true});
      ops::linear_backward_weight(machine.context, x.view(), logits.view(), dw.view(), {.transposed = true});
      ops::linear_backward_weight(machine.context, x.view(), logits.view(), sums.view(),
                                  {.transposed = true});
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t column = n; column < padded; ++column)
          REQUIRE(logits[row * padded + column] == 0.0);
      for (std::int64_t i = n * k; i < padded * k; ++i) {
        REQUIRE(dw[i] == 0.0);
        REQUIRE(sums[i] == 0.0);
      }
      dw.values.resize(static_cast<std::size_t>(n * k));
      sums.values.resize(static_cast<std::size_t>(n * k));
      return std::tuple(losses.values, dx.values, dw.values, sums.values);
    };
    auto const [losses, dx, dw, sums] = head(n);
    auto const [wide_losses, wide_dx, wide_dw, wide_sums] = head(n + 13);
    CHECK(reference::same_bits(losses, wide_losses));
    CHECK(reference::same_bits(dx, wide_dx));
    CHECK(reference::same_bits(dw, wide_dw));
    CHECK(reference::same_bits(sums, wide_sums));
  }
}

TEST_CASE("cross entropy gradient matches central differences") {
  Machine machine(2);
  Array<double> logits = reference::random<double>({4, 9}, 1, 3.0), losses({4});
  Array<std::int32_t> targets = random_tokens({4}, 9, 5);
  targets.at(1) = -100;
  double total = 0;
  std::int64_t unmasked = 0;
  auto const loss = [&] {
    ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), false, nullptr);
    ops::sum_losses(machine.context, losses.view(), targets.view(), &total, &unmasked);
    return total;
  };
  std::vector<double> const want = reference::central_differences(logits, loss);
  CHECK(unmasked == 3);
  double const scale = 1;
  ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), true, &scale);
  CHECK(reference::error(logits, want) < 1e-8);
}

TEST_CASE_TEMPLATE("cross entropy has the same bits for every number of threads", T, float, half, bfloat16) {
  using S = compute_t<T>;
  Array<std::int32_t> targets = random_tokens({40}, 3001, 6);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> logits = reference::random<T>({40, 3001}, 1, 9.0);
    Array<S> losses({40});
    S const scale = S(1) / S(40);
    ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), true, &scale);
    return logits.values;
  }));
}

TEST_CASE("cross entropy of extreme and broken logits") {
  Machine machine(2);
  Array<float> logits = reference::random<float>({3, 40}, 1, 3e4), losses({3});
  Array<std::int32_t> targets = random_tokens({3}, 40, 7);
  logits.at(50) = std::numeric_limits<float>::quiet_NaN();
  float const scale = 1;
  ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), true, &scale);
  CHECK(std::isfinite(losses[0]));
  CHECK(std::isnan(losses[1]));
  CHECK(std::isfinite(losses[2]));
  int wrong = 0;
  for (std::int64_t i = 0; i < 120; ++i) wrong += std::isnan(logits[i]) != (i / 40 == 1);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("embedding adds token and position", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (std::int64_t n : {1, 7, 33, 128}) {
    std::int64_t const b = 3, t = 5, v = 11, p = 8;
    Array<std::int32_t> tokens = random_tokens({b, t}, static_cast<std::int32_t>(v), 1);
    Array<T> wte = reference::random<T>({v, n}, 1), wpe = reference::random<T>({p, n}, 2), y({b, t, n});
    for (bool positions : {false, true}) {
      std::vector<double> want;
      for (std::int64_t row = 0; row < b * t; ++row)
        for (std::int64_t i = 0; i < n; ++i)
          want.push_back(wte[tokens.values[static_cast<std::size_t>(row)] * n + i] +
                         (positions ? wpe[row % t * n + i] : 0.0));
      ops::embedding_forward(machine.context, tokens.view(), wte.view(), positions ? wpe.view() : Tensor<T>{},
                             y.view());
      CHECK(reference::error(y, want) < reference::tolerance<T>());
    }
  }
}

TEST_CASE_TEMPLATE("embedding gradient sums by token and position and rounds once", T, float, double, half,
                   bfloat16) {
  using S = compute_t<T>;
  Machine machine(2);
  for (std::int64_t n : {1, 7, 33, 100}) {
    std::int64_t const b = 3, t = 50, v = 11, p = 60;
    Array<std::int32_t> tokens = random_tokens({b, t}, 7, 2);
    Array<T> dy = reference::random<T>({b, t, n}, 1), dwte({v, n}, T(5.0f)), dwpe({p, n}, T(5.0f));
    Array<S> borrowed = reference::random<S>({v, n}, 2), partial = borrowed;
    std::vector<double> fresh(static_cast<std::size_t>(v * n), 0.0),
        positions(static_cast<std::size_t>(p * n), 0.0);
    for (std::int64_t row = 0; row < b * t; ++row)
      for (std::int64_t i = 0; i < n; ++i) {
        fresh[static_cast<std::size_t>(tokens.values[static_cast<std::size_t>(row)] * n + i)] +=
            dy[row * n + i];
        positions[static_cast<std::size_t>(row % t * n + i)] += dy[row * n + i];
      }
    std::vector<double> added = fresh;
    for (std::int64_t i = 0; i < v * n; ++i) added[static_cast<std::size_t>(i)] += borrowed[i];
    ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), false, dwte.view(),
                            dwpe.view());
    CHECK(reference::error(dwte, added) < reference::tolerance<T>());
    CHECK(reference::error(dwpe, positions) < reference::tolerance<T>());
    ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), true, dwte.view(), {});
    CHECK(reference::error(dwte, fresh) < reference::tolerance<T>());
    if constexpr (std::is_same_v<S, T>) {
      Array<T> in_place = borrowed;
      ops::embedding_backward(machine.context, tokens.view(), dy.view(), in_place.view(), false,
                              in_place.view(), {});
      CHECK(reference::error(in_place, added) < reference::tolerance<T>());
    }
  }
}

TEST_CASE_TEMPLATE("positions may begin at a later row, and a padding token has no gradient", T, float,
                   half) {
  using S = compute_t<T>;
  Machine machine(2);
  std::int64_t const b = 3, t = 5, n = 33, v = 6, p = 9;
  ops::EmbeddingOptions const with{.first_position = 2, .padding_token = 1};
  Array<std::int32_t> tokens = random_tokens({b, t}, static_cast<std::int32_t>(v), 1);
  tokens.at(3) = tokens.at(7) = 1;
  Array<T> wte = reference::random<T>({v, n}, 1), wpe = reference::random<T>({p, n}, 2), y({b, t, n}),
           shifted({p - 2, n}), want({b, t, n});
  shifted.values.assign(wpe.values.begin() + 2 * n, wpe.values.end());
  ops::embedding_forward(machine.context, tokens.view(), wte.view(), wpe.view(), y.view(), with);
  ops::embedding_forward(machine.context, tokens.view(), wte.view(), shifted.view(), want.view());
  CHECK(reference::same_bits(y.values, want.values));

  Array<T> dy = reference::random<T>({b, t, n}, 3), dwte({v, n}), dwpe({p, n}, T(5.0f)), want_dwte({v, n}),
           want_dwpe({p - 2, n});
  Array<S> lent = reference::random<S>({v, n}, 4), partial = lent, all = lent;
  ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), false, dwte.view(),
                          dwpe.view(), with);
  ops::embedding_backward(machine.context, tokens.view(), dy.view(), all.view(), false, want_dwte.view(),
                          want_dwpe.view());
  int wrong = 0;
  for (std::int64_t i = 0; i < v * n; ++i)
    wrong += i / n == 1 ? partial[i] != lent[i] || all[i] == lent[i] : dwte[i] != want_dwte[i];
  for (std::int64_t i = 0; i < p * n; ++i) wrong += dwpe[i] != (i < 2 * n ? 0.0 : want_dwpe[i - 2 * n]);
  CHECK(wrong == 0);

  Array<T> few({t + 1, n});
  CHECK_THROWS_AS(
      ops::embedding_forward(machine.context, tokens.view(), wte.view(), few.view(), y.view(), with), Error);
  CHECK_THROWS_AS(ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), false,
                                          dwte.view(), few.view(), with),
                  Error);
}

TEST_CASE("embedding gradient has the same bits for every number of threads") {
  Array<std::int32_t> tokens = random_tokens({4, 100}, 20, 3);
  Array<float> dy = reference::random<float>({4, 100, 333}, 1);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<float> dwte({20, 333});
    ops::embedding_backward(machine.context, tokens.view(), dy.view(), dwte.view(), true, dwte.view(), {});
    return dwte.values;
  }));
}

TEST_CASE("sum of losses counts unmasked targets in order") {
  Machine machine(1);
  Array<float> losses({4});
  Array<std::int32_t> targets({4}, 0);
  for (std::int64_t i = 0; i < 4; ++i) losses.at(i) = static_cast<float>(i + 1);
  targets.at(3) = -1;
  losses.at(3) = 0;
  double loss = 0;
  std::int64_t unmasked = 0;
  ops::sum_losses(machine.context, losses.view(), targets.view(), &loss, &unmasked);
  CHECK(loss == 6.0);
  CHECK(unmasked == 3);
}
