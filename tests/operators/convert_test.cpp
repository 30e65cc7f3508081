// SPDX-License-Identifier: Apache-2.0
// Tests the operations that convert, fill and copy arrays. Their results must have exactly the expected bits.
#include "tessera/ops/convert.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;
using test::part;
using test::Place;

namespace {

/// Returns `n` values for tests of conversions: random values of many magnitudes and the edge cases, which
/// are zeros, denormals, values halfway between two results, the largest value, and infinities.
template <class T>
Array<T> awkward(std::int64_t n) {
  double const edges[] = {0.0,
                          -0.0,
                          1e-8,
                          5.9604644775390625e-8,
                          2.98e-8,
                          6.1e-5,
                          1.0 + 0x1p-11,
                          1 + 0x1p-8,
                          1 + 3 * 0x1p-9,
                          65504.0,
                          65519.0,
                          65520.0,
                          1e-40,
                          3.3e38,
                          -1e300,
                          0x1.fffffep+127,
                          0x1p-149,
                          std::numeric_limits<double>::infinity()};
  Array<T> values = reference::random<T>({n}, 1);
  for (std::int64_t i = 0; i < n; ++i) {
    if (i % 3 == 1) values.at(i) = static_cast<T>(std::ldexp(values[i], static_cast<int>(i % 61) - 40));
    if (i % 3 == 2) values.at(i) = static_cast<T>(edges[static_cast<std::size_t>(i / 3) % std::size(edges)]);
  }
  return values;
}

template <class S, class D>
void check_convert(Machine& machine) {
  for (std::int64_t const n : test::lengths) {
    Array<S> const source = awkward<S>(n + 2);
    OnPlace<S> from(source);
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      // `want` has 2 elements more than the conversion writes. These 2 elements must not change.
      Array<D> want = poison<D>({n + 2});
      OnPlace<D> to(want);
      for (std::int64_t i = offset; i < offset + n; ++i)
        want.at(i) = static_cast<D>(source.values[static_cast<std::size_t>(i)]);
      ops::convert(machine.context, part(from.view(), offset, n), part(to.view(), offset, n));
      machine.finish();
      CHECK(same_bits(to.back().values, want.values));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("convert has the bits of the scalar conversions", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  check_convert<T, float>(machine);
  check_convert<T, double>(machine);
  check_convert<T, tessera::half>(machine);
  check_convert<T, bfloat16>(machine);
}

TEST_CASE("convert keeps NaN and works in place between formats of one size") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OnPlace<float> nan(poison<float>({37}));
  OnPlace<tessera::half> halves(Array<tessera::half>({37}));
  OnPlace<bfloat16> bf16_values(Array<bfloat16>({37}));
  OnPlace<double> doubles(Array<double>({37}));
  Array<tessera::half> const values = reference::random<tessera::half>({1001}, 1, 100.0);
  Array<bfloat16> want({1001});
  for (std::int64_t i = 0; i < 1001; ++i) want.at(i) = bfloat16(values[i]);
  OnPlace<tessera::half> in_place(values);
  ops::convert(machine.context, nan.view(), halves.view());
  ops::convert(machine.context, nan.view(), bf16_values.view());
  ops::convert(machine.context, halves.view(), doubles.view());
  ops::convert(machine.context, in_place.view(),
               Tensor<bfloat16, Place>{reinterpret_cast<bfloat16*>(in_place.view().data()), {1001}});
  machine.finish();
  auto const h = halves.back();
  auto const b = bf16_values.back();
  auto const d = doubles.back();
  int numbers = 0;
  for (std::int64_t i = 0; i < 37; ++i) numbers += !std::isnan(h[i]) + !std::isnan(b[i]) + !std::isnan(d[i]);
  CHECK(numbers == 0);
  CHECK(std::memcmp(in_place.back().values.data(), want.values.data(), 1001 * sizeof(bfloat16)) == 0);
}

TEST_CASE_TEMPLATE("fill and copy write every element and no other", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const n : test::lengths)
    for (std::int64_t const offset : {0, 1}) {
      CAPTURE(n);
      CAPTURE(offset);
      Array<T> want = reference::random<T>({n + 2}, 1);
      OnPlace<T> filled(want), copied(want);
      for (std::int64_t i = offset; i < offset + n; ++i) want.at(i) = T(1.5f);
      ops::fill(machine.context, part(filled.view(), offset, n), compute_t<T>(1.5));
      ops::copy(machine.context, part(filled.view(), offset, n), part(copied.view(), offset, n));
      ops::copy(machine.context, copied.view(), copied.view());
      machine.finish();
      CHECK(same_bits(filled.back().values, want.values));
      CHECK(same_bits(copied.back().values, want.values));
    }
}
