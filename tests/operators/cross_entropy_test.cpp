// SPDX-License-Identifier: Apache-2.0
// Tests cross-entropy, the output head and the sum of losses against their definitions in double.
#include "tessera/ops/cross_entropy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/linear.hpp"

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;

namespace {

/// Returns a random target class for each of `rows` rows. Some rows have the first class, the last class or
/// class 7, and every ninth row is masked (-1).
Array<std::int32_t> some_targets(std::int64_t rows, std::int64_t classes, std::uint32_t seed) {
  Array<std::int32_t> targets({rows}, 0);
  std::uint32_t state = seed;
  for (std::int64_t row = 0; row < rows; ++row) {
    state = state * 1664525u + 1013904223u;
    std::int64_t const some[] = {(state >> 8) % classes, classes - 1, -1, 0,
                                 std::min<std::int64_t>(classes - 1, 7)};
    targets.at(row) = static_cast<std::int32_t>(some[row % 9 < 5 ? row % 9 : 0]);
  }
  return targets;
}

struct ExpectedEntropy {
  std::vector<double> losses, gradient;
};

/// Returns the losses and the gradients, computed from the definition of cross-entropy. `n` is the number of
/// classes, which is the number of columns of `logits`.
template <class Values>
ExpectedEntropy entropy_definition(Values const& logits, std::int64_t n, Array<std::int32_t> const& targets,
                                   double scale) {
  ExpectedEntropy want;
  for (std::int64_t row = 0; row < targets.shape.elements(); ++row) {
    std::int32_t const target = targets.values[static_cast<std::size_t>(row)];
    auto const logit = [&](std::int64_t i) { return logits[static_cast<std::size_t>(row * n + i)]; };
    double top = -1e300, total = 0;
    for (std::int64_t i = 0; i < n; ++i) top = std::max(top, double(logit(i)));
    for (std::int64_t i = 0; i < n; ++i) total += std::exp(logit(i) - top);
    double const normalizer = top + std::log(total);
    want.losses.push_back(target < 0 ? 0 : normalizer - logit(target));
    for (std::int64_t i = 0; i < n; ++i)
      want.gradient.push_back(
          target < 0 ? 0 : (std::exp(logit(i) - normalizer) - (i == target ? 1.0 : 0.0)) * scale);
  }
  return want;
}

template <class T>
struct EntropyOutput {
  Array<T> logits;
  Array<compute_t<T>> losses;

  bool operator==(EntropyOutput const&) const = default;
};

/// Runs ops::cross_entropy and returns the losses and the gradient, which overwrites the logits. The logits
/// start `offset` elements after an aligned address.
template <class T>
EntropyOutput<T> cross_entropy(Machine& machine, Array<T> const& logits, Array<std::int32_t> const& targets,
                               double scale, std::int64_t offset = 0) {
  using S = compute_t<T>;
  OnPlace<T> values(logits, offset);
  OnPlace<std::int32_t> classes(targets);
  OnPlace<S> losses(poison<S>(targets.shape)), factor(Array<S>({1}, static_cast<S>(scale)));
  ops::cross_entropy(machine.context, values.view(), classes.cview(), losses.view(), true,
                     factor.cview().data());
  machine.finish();
  return {values.back(), losses.back()};
}

template <class T>
void check_cross_entropy(Machine& machine, std::int64_t rows, std::int64_t n, double range = 8.0,
                         double scale = 0.25) {
  using S = compute_t<T>;
  CAPTURE(rows);
  CAPTURE(n);
  Array<T> const logits = reference::random<T>({rows, n}, static_cast<std::uint32_t>(n), range);
  Array<std::int32_t> const targets = some_targets(rows, n, 3);
  ExpectedEntropy const want = entropy_definition(logits.values, n, targets, scale);
  EntropyOutput<T> const got = cross_entropy(machine, logits, targets, scale);
  CHECK(reference::error(got.losses, want.losses) < reference::tolerance<S>());
  CHECK(reference::error(got.logits, want.gradient, scale) < reference::tolerance<T>());
  int wrong = 0;  // the loss and the gradient of masked rows must be exactly 0
  for (std::int64_t row = 2; row < rows; row += 9) {
    wrong += got.losses[row] != 0.0;
    for (std::int64_t i = row * n; i < (row + 1) * n; ++i) wrong += got.logits[i] != 0.0;
  }
  CHECK(wrong == 0);
  for (std::int64_t const offset : {0, 1})
    CHECK(got == cross_entropy(machine, logits, targets, scale, offset));
  // If no gradient is requested, the operation must not change the logits.
  OnPlace<T> unchanged(logits);
  OnPlace<std::int32_t> classes(targets);
  OnPlace<S> losses(poison<S>({rows}));
  ops::cross_entropy(machine.context, unchanged.view(), classes.cview(), losses.view(), false, nullptr);
  machine.finish();
  CHECK(same_bits(got.losses.values, losses.back().values));
  CHECK(same_bits(unchanged.back().values, logits.values));
}

template <class T>
struct HeadOutput {
  Array<T> logits, dx, dw;
  Array<compute_t<T>> losses, sums;
};

/// Runs the output head of a model: a linear layer, its loss and its gradients. The weights have shape (P,
/// K). The first `n` of their rows belong to classes, and the remaining rows are padding. The weight gradient
/// is computed in T and, in a second call, in the type of sums.
template <class T>
HeadOutput<T> head(Machine& machine, Array<T> const& inputs, Array<T> const& weights, std::int64_t n,
                   Array<std::int32_t> const& targets, double scale) {
  using S = compute_t<T>;
  std::int64_t const m = inputs.shape.rows(), padded = weights.shape.rows();
  OnPlace<T> x(inputs), w(weights), logits(poison<T>({m, padded})), dx(poison<T>(inputs.shape)),
      dw(poison<T>(weights.shape));
  OnPlace<S> losses(poison<S>({m})), sums(poison<S>(weights.shape)),
      factor(Array<S>({1}, static_cast<S>(scale)));
  OnPlace<std::int32_t> classes(targets);
  auto& context = machine.context;
  ops::linear(context, x.cview(), w.cview(), logits.view(), {.transposed = true});
  ops::cross_entropy(context, logits.view(), n, classes.cview(), losses.view(), true, factor.cview().data());
  ops::linear_backward_input(context, logits.cview(), w.cview(), dx.view(), {.transposed = true});
  ops::linear_backward_weight(context, x.cview(), logits.cview(), dw.view(), {.transposed = true});
  ops::linear_backward_weight(context, x.cview(), logits.cview(), sums.view(), {.transposed = true});
  machine.finish();
  return {logits.back(), dx.back(), dw.back(), losses.back(), sums.back()};
}

}  // namespace

TEST_CASE_TEMPLATE("cross entropy matches its definition", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const rows : {1, 7, 33})
    for (std::int64_t const n : {1, 7, 8, 9, 15, 129, 256, 2049, 5003})
      check_cross_entropy<T>(machine, rows, n);
  check_cross_entropy<T>(machine, 40, 3001, 9.0, 1.0 / 40);
  // The logits of a row with the first two lengths fit into on-chip memory, with the last length they do not.
  if (test::on_gpu)
    for (std::int64_t const n : {50257, 50304, 131075}) check_cross_entropy<T>(machine, 12, n);
}

TEST_CASE_TEMPLATE("cross entropy has a small relative error for small probabilities", T, float, double) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  Array<T> const logits = reference::random<T>({5, 3001}, 5, 20.0);
  Array<std::int32_t> const targets({5}, 17);
  ExpectedEntropy const want = entropy_definition(logits.values, 3001, targets, 1.0);
  EntropyOutput<T> const got = cross_entropy(machine, logits, targets, 1.0);
  CHECK(reference::error(got.losses, want.losses) < reference::tolerance<T>());
  CHECK(reference::error(got.logits, want.gradient, 1e-25) < reference::tolerance<T>());
}

TEST_CASE("cross entropy gradient matches central differences of the sum of losses") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  Array<double> logits = reference::random<double>({4, 9}, 1, 3.0);
  Array<std::int32_t> targets = some_targets(4, 9, 5);
  targets.at(2) = -100;
  OnPlace<std::int32_t> classes(targets);
  OnPlace<double> total(poison<double>({1}));
  OnPlace<std::int64_t> valid_tokens(Array<std::int64_t>({1}, -7));
  auto const loss = [&] {
    OnPlace<double> losses(cross_entropy(machine, logits, targets, 1.0).losses);
    ops::sum_losses(machine.context, losses.view(), classes.cview(), total.view().data(),
                    valid_tokens.view().data());
    machine.finish();
    return total.back()[0];
  };
  std::vector<double> const want = reference::central_differences(logits, loss);
  CHECK(valid_tokens.back().values[0] == 3);
  CHECK(reference::error(cross_entropy(machine, logits, targets, 1.0).logits, want) < 1e-8);
}

TEST_CASE_TEMPLATE("cross entropy has the same bits every time", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Array<T> const logits = reference::random<T>({40, 3001}, 1, 9.0);
  Array<std::int32_t> const targets = some_targets(40, 3001, 6);
  CHECK(test::same_bits_every_time(
      [&](Machine& machine) { return cross_entropy(machine, logits, targets, 1.0 / 40); }));
}

TEST_CASE("cross entropy keeps extreme and broken logits in their rows") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  std::int64_t const n = 3000;  // the CPU reads the classes of a row in several parts
  Array<float> logits = reference::random<float>({6, n}, 1, 3e4);
  Array<std::int32_t> targets = some_targets(6, n, 7);
  targets.at(2) = 5;
  targets.at(3) = n - 1;
  float const infinity = std::numeric_limits<float>::infinity();
  logits.at(1 * n + 50) = std::numeric_limits<float>::quiet_NaN();
  logits.at(2 * n + 60) = infinity;
  for (std::int64_t i = 0; i < n; ++i) {
    logits.at(3 * n + i) = i == n - 1 ? 1.0f : -infinity;  // all classes except the target have probability 0
    logits.at(4 * n + i) = i < 2500 ? -infinity : 2.0f;    // the target is class 7 and has probability 0
  }
  EntropyOutput<float> const got = cross_entropy(machine, logits, targets, 1.0);
  for (std::int64_t const row : {0, 5}) CHECK(std::isfinite(got.losses[row]));
  CHECK(std::isnan(got.losses[1]));
  CHECK(!std::isfinite(got.losses[2]));
  CHECK(got.losses[3] == doctest::Approx(0.0));
  CHECK(got.losses[4] == infinity);
  int wrong = 0;
  for (std::int64_t i = 0; i < 6 * n; ++i) {
    std::int64_t const row = i / n;
    if (row == 1) wrong += !std::isnan(got.logits[i]);
    if (row == 0 || row >= 3) wrong += !std::isfinite(got.logits[i]);
    // On CPUs without AVX-512, the vectorized exp(-infinity) is a denormal number instead of 0.
    if (row == 3) wrong += !(std::fabs(got.logits[i]) <= (test::on_gpu ? 0.0 : 0x1p-126));
    if (row == 4 && i % n != 7) wrong += std::fabs(got.logits[i] - (i % n < 2500 ? 0.0 : 0.002)) > 1e-8;
  }
  CHECK(wrong == 0);
  CHECK(got.logits[4 * n + 7] == -1.0);
}

TEST_CASE_TEMPLATE("a head with padding rows matches scalar code and has no gradient in them", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  std::vector<std::array<std::int64_t, 4>> sizes{
      {11, 37, 5, 18}, {11, 37, 61, 64}, {11, 37, 61, 74}, {11, 37, 301, 314}, {130, 64, 301, 320}};
  if (test::on_gpu) sizes.push_back({96, 128, 5003, 5008});
  for (std::array<std::int64_t, 4> const& size : sizes) {
    CAPTURE(size[0]);
    CAPTURE(size[3]);
    auto const [m, k, n, padded] = size;
    double const scale = 0.25, limit = 4 * reference::tolerance<T>();
    Array<T> const x = reference::random<T>({m, k}, 1), unpadded = reference::random<T>({n, k}, 2);
    // The rows of w from row n on are padding and must not affect the results.
    Array<T> w = reference::random<T>({padded, k}, 3);
    std::copy(unpadded.values.begin(), unpadded.values.end(), w.values.begin());
    Array<std::int32_t> const targets = some_targets(m, n, 3);
    HeadOutput<T> const got = head(machine, x, w, n, targets, scale);
    std::vector<double> const logits = reference::product(x, false, unpadded, true, m, n, k);
    ExpectedEntropy const want = entropy_definition(logits, n, targets, scale);
    Array<double> gradient({m, padded});
    for (std::int64_t i = 0; i < m * n; ++i)
      gradient.at(i / n * padded + i % n) = want.gradient[static_cast<std::size_t>(i)];
    auto const dw = reference::product(gradient, true, x, false, padded, k, m);
    CHECK(reference::error(got.losses, want.losses) < limit);
    CHECK(reference::error(got.logits, gradient.values) < limit);
    CHECK(reference::error(got.dx, reference::product(gradient, false, w, false, m, k, padded)) < limit);
    CHECK(reference::error(got.dw, dw) < limit);
    CHECK(reference::error(got.sums, dw) < limit);
    int wrong = 0;  // the gradients of the padding must be exactly 0
    for (std::int64_t i = 0; i < m * padded; ++i) wrong += i % padded >= n && got.logits[i] != 0.0;
    for (std::int64_t i = n * k; i < padded * k; ++i) wrong += got.dw[i] != 0.0 || got.sums[i] != 0.0;
    CHECK(wrong == 0);
    if (test::on_gpu) continue;
    HeadOutput<T> const alone = head(machine, x, unpadded, n, targets, scale);
    auto const begins = [&](auto const& all, auto const& with) {
      return std::memcmp(all.values.data(), with.values.data(), with.values.size() * sizeof with.values[0]) ==
             0;
    };
    CHECK(begins(got.losses, alone.losses));
    CHECK(begins(got.dx, alone.dx));
    CHECK(begins(got.dw, alone.dw));
    CHECK(begins(got.sums, alone.sums));
  }
}

TEST_CASE_TEMPLATE("the sum of losses counts valid targets, and the CPU adds in order", T, float, double) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const rows : {0, 1, 31, 33, 1023, 1024, 1025, 8192, 70001}) {
    CAPTURE(rows);
    // These values are so large that the order of the additions changes the sum.
    Array<T> const losses = reference::random<T>({rows}, 1, 12.3);
    Array<std::int32_t> const targets = some_targets(rows, 100, 5);
    double want = 0, size = 0;
    std::int64_t valid_tokens = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      want += losses[row];
      size += std::fabs(losses[row]);
      valid_tokens += targets.values[static_cast<std::size_t>(row)] >= 0;
    }
    OnPlace<T> values(losses);
    OnPlace<std::int32_t> classes(targets);
    OnPlace<double> sums(poison<double>({2}));
    OnPlace<std::int64_t> counts(Array<std::int64_t>({2}, -7));
    for (int run = 0; run < 2; ++run)
      ops::sum_losses(machine.context, values.view(), classes.cview(), sums.view().data() + run,
                      counts.view().data() + run);
    machine.finish();
    Array<double> const got = sums.back();
    CHECK(std::fabs(got[0] - want) <= (test::on_gpu ? 1e-13 * size : 0.0));
    CHECK(same_bits<double>({got.values[0]}, {got.values[1]}));
    CHECK(counts.back().values == std::vector<std::int64_t>{valid_tokens, valid_tokens});
  }
}
