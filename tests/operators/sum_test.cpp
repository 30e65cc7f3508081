// SPDX-License-Identifier: Apache-2.0
// Tests the operations axpy, sum, sum_of_squares and norm. The sums must have exact bits, because their order
// is documented.
#include "tessera/ops/sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/axpy.hpp"

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::part;

namespace {

/// Returns the sum of the values [begin, begin + n), or of their squares, in the documented order. The values
/// are divided into blocks of 4096. The sum of block i goes to lane i % 256 in double, and the lanes are
/// added pairwise.
template <class T>
double documented_sum(Array<T> const& values, std::int64_t begin, std::int64_t n, bool squares) {
  double lanes[256] = {};
  for (std::int64_t block = 0; block * 4096 < n; ++block)
    lanes[block % 256] += static_cast<double>(
        reference::block_sum(values, begin + block * 4096, begin + std::min(n, (block + 1) * 4096), squares));
  for (int half_lanes = 128; half_lanes > 0; half_lanes /= 2)
    for (int lane = 0; lane < half_lanes; ++lane) lanes[lane] += lanes[lane + half_lanes];
  return lanes[0];
}

}  // namespace

TEST_CASE_TEMPLATE("sums over all elements have the bits of the documented order", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  std::vector<std::int64_t> sizes(std::begin(test::lengths), std::end(test::lengths));
  sizes.push_back(257 * 4096 + 5);  // more than one block in a lane
  for (std::int64_t const n : sizes) {
    Array<T> const values = reference::random<T>({n + 1}, static_cast<std::uint32_t>(n), 3.0);
    OnPlace<T> from(values);
    OnPlace<S> partials(poison<S>({ops::partial_sums(n)}));
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      OnPlace<double> result(poison<double>({3}));
      auto const slot = [&](std::int64_t index) { return part(result.view(), index, 1); };
      ops::sum(machine.context, part(from.view(), offset, n), partials.view(), slot(0));
      ops::sum_of_squares(machine.context, part(from.view(), offset, n), partials.view(), slot(1));
      ops::norm(machine.context, part(from.view(), offset, n), partials.view(), slot(2));
      machine.finish();
      double const squares = documented_sum(values, offset, n, true);
      std::vector<double> const want{documented_sum(values, offset, n, false), squares, std::sqrt(squares)};
      CHECK(same_bits(result.back().values, want));
      // A plain sum in double gives the same value up to rounding.
      double plain = 0.0, magnitude = 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        double const value =
            static_cast<double>(static_cast<S>(values.values[static_cast<std::size_t>(offset + i)]));
        plain += value;
        magnitude += std::abs(value);
      }
      CHECK(std::abs(want[0] - plain) <= 1e-5 * magnitude);
    }
  }
}

TEST_CASE_TEMPLATE("axpy adds a multiple of one array to another with one rounding", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  S const a = static_cast<S>(-0.3);
  for (std::int64_t const n : test::lengths)
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      Array<T> const x = reference::random<T>({n + 1}, 1, 3.0), y = reference::random<T>({n + 1}, 2, 3.0);
      Array<T> want({n + 1});
      want.values = y.values;
      for (std::int64_t i = offset; i < n + offset; ++i) {
        auto const at = static_cast<std::size_t>(i);
        want.values[at] =
            static_cast<T>(std::fma(a, static_cast<S>(x.values[at]), static_cast<S>(y.values[at])));
      }
      OnPlace<T> in(x), sum(y);
      ops::axpy(machine.context, a, part(in.view(), offset, n), part(sum.view(), offset, n));
      machine.finish();
      CHECK(same_bits(sum.back().values, want.values));
    }
  OnPlace<T> same(Array<T>({5}, T(2.0f)));
  ops::axpy(machine.context, 0.5, same.view(), same.view());
  machine.finish();
  CHECK(same.back()[4] == 3.0);
}

TEST_CASE("sums and axpy refuse shapes that do not fit") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OnPlace<float> values(Array<float>({4097})), partials(Array<float>({1})), two(Array<float>({2}));
  OnPlace<double> result(Array<double>({1})), results(Array<double>({2}));
  CHECK_THROWS_WITH_AS(ops::sum(machine.context, values.view(), partials.view(), result.view()),
                       "sum got shapes [4097] [1] [1], which do not fit: it takes values (n), partials "
                       "(ceil(n/4096)), result (1)",
                       Error);
  CHECK_THROWS_WITH_AS(ops::norm(machine.context, values.view(), two.view(), results.view()),
                       "norm got shapes [4097] [2] [2], which do not fit: it takes values (n), partials "
                       "(ceil(n/4096)), result (1)",
                       Error);
  CHECK_THROWS_AS(ops::sum_of_squares(machine.context, values.view(), two.view(), {}), Error);
  CHECK_THROWS_WITH_AS(
      ops::axpy(machine.context, 1.0f, two.view(), partials.view()),
      "axpy got shapes [2] [1], which do not fit: it takes x and y with the same number of elements", Error);
}
