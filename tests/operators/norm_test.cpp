// SPDX-License-Identifier: Apache-2.0
// Tests the operation norm_partials. It computes the sum of squares of each block of 4096 values, which must
// have exact bits. It also finds the first value that is not finite.
#include "tessera/ops/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::part;

namespace {

constexpr float not_finite[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()};

}  // namespace

TEST_CASE_TEMPLATE("norm partials sum squares by blocks of 4096 in the documented order", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  for (std::int64_t const n : test::lengths) {
    std::int64_t const blocks = (n + 4095) / 4096;
    Array<T> const values = reference::random<T>({n + 1}, static_cast<std::uint32_t>(n), 3.0);
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      Array<S> want({blocks});
      Array<float> want_rounded({blocks});
      for (std::int64_t block = 0; block < blocks; ++block) {
        want.at(block) = reference::block_sum(values, offset + block * 4096,
                                              offset + std::min(n, (block + 1) * 4096), true);
        want_rounded.at(block) = static_cast<float>(want.at(block));
      }
      OnPlace<T> from(values);
      OnPlace<S> got(poison<S>({blocks}));
      OnPlace<float> rounded(poison<float>({blocks}));
      ops::norm_partials(machine.context, part(from.view(), offset, n), got.view());
      ops::norm_partials(machine.context, part(from.view(), offset, n), rounded.view());
      machine.finish();
      CHECK(same_bits(got.back().values, want.values));
      CHECK(same_bits(rounded.back().values, want_rounded.values));
      if (n == 0) continue;
      for (float const broken : not_finite)
        for (std::int64_t const where : {std::int64_t{0}, n - 1}) {
          Array<T> copy = values;
          copy.at(offset + where) = T(broken);
          OnPlace<T> broken_values(copy);
          ops::norm_partials(machine.context, part(broken_values.view(), offset, n), got.view());
          machine.finish();
          CHECK(!std::isfinite(got.back()[where / 4096]));
        }
    }
  }
}

TEST_CASE_TEMPLATE(
    "norm partials note the first value that is not finite, of the unit that backward met first", T,
    TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  std::int64_t const n = 40 * 4096 + 17, begin = 1000;
  double const infinity = std::numeric_limits<double>::infinity();
  Array<T> const finite = reference::random<T>({n}, 5, 3.0);
  using Noted = std::pair<std::int64_t, std::int64_t>;  // a unit (layer), and the index of an element in it
  auto const noted = [&](std::vector<std::int64_t> const& where, double value, BadElement before) {
    Array<T> values = finite;
    for (std::int64_t const i : where) values.at(i) = static_cast<T>(value);
    OnPlace<T> from(values);
    OnPlace<float> partials(poison<float>({41}));
    OnPlace<BadElement> bad(Array<BadElement>({1}, before));
    ops::norm_partials(machine.context, from.view(), partials.view(), {bad.view().data(), 3, begin});
    machine.finish();
    BadElement const after = bad.back().values[0];
    return Noted(after.unit, after.element);
  };
  CHECK(noted({}, 0, {}) == Noted(-1, -1));
  CHECK(noted({n - 1}, infinity, {}) == Noted(3, begin + n - 1));
  CHECK(noted({8191, 4096, 4100, 100000, n - 1}, infinity, {}) == Noted(3, begin + 4096));
  // The third argument of `noted` is a bad element (infinite or NaN) that was found earlier. If two units
  // have bad elements, the unit that backward reaches first is kept. The new element is in unit 3. Backward
  // reaches unit 3 before unit 2, but after unit 4.
  CHECK(noted({30000}, infinity, {2, 7}) == Noted(3, begin + 30000));
  CHECK(noted({30000}, infinity, {4, 7}) == Noted(4, 7));
  // If both values are in unit 3, the value with the smaller index is kept.
  CHECK(noted({30000}, infinity, {3, begin + 7}) == Noted(3, begin + 7));
  CHECK(noted({30000}, infinity, {3, begin + 40000}) == Noted(3, begin + 30000));
  std::vector<std::int64_t> all;
  for (std::int64_t i = 5; i < n; ++i) all.push_back(i);
  CHECK(noted(all, infinity, {}) == Noted(3, begin + 5));
  // 1e25 is finite, but its square overflows, so the sum of its block of 4096 values is not finite. The block
  // has no infinite or NaN value, so the first element of the block is noted.
  if constexpr (!std::is_same_v<T, tessera::half>) CHECK(noted({4100}, 1e25, {}) == Noted(3, begin + 4096));
}

TEST_CASE_TEMPLATE("the first value that is not finite is found", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OnPlace<std::int64_t> index(Array<std::int64_t>({1}, 77));
  auto const found = [&](Array<T> const& values, std::int64_t offset = 0) {
    OnPlace<T> from(values);
    ops::first_non_finite(machine.context, part(from.view(), offset, values.shape.elements() - offset),
                          index.view().data());
    machine.finish();
    return index.back().values[0];
  };
  for (std::int64_t const n : test::lengths) {
    CAPTURE(n);
    Array<T> const values = reference::random<T>({n}, 1, 60000.0);
    CHECK(found(values) == -1);
    if (n == 0) continue;
    for (std::int64_t const where : {std::int64_t{0}, n / 3, n / 2, n - 1}) {
      Array<T> broken = values;
      broken.at(where) = T(where % 2 ? not_finite[0] : -not_finite[1]);
      CHECK(found(broken) == where);
      if (where > 0) CHECK(found(broken, 1) == where - 1);
      broken.at(n - 1) = T(not_finite[1]);
      CHECK(found(broken) == where);
    }
  }
  CHECK(found(Array<T>({200003}, T(not_finite[0]))) == 0);
}
