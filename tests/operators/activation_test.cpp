// SPDX-License-Identifier: Apache-2.0
// Tests activation functions as separate operations, which are not fused into a linear layer. The expected
// values are computed in double.
#include "tessera/ops/activation.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using test::Machine;
using test::OnPlace;
using test::part;

namespace {

/// Applies `activation` to the values of `pre` and returns the results. For the call, the values are copied
/// into the middle of a longer array. Checks that the elements before and after them do not change.
template <class T>
Array<T> activated(Machine& machine, Activation activation, Array<T> const& pre, std::int64_t offset = 0,
                   bool in_place = false) {
  std::int64_t const n = pre.shape.elements();
  Array<T> const around({n + 2}, T(-7.0f));
  Array<T> values = around, result({n});
  std::copy(pre.values.begin(), pre.values.end(), values.values.begin() + offset);
  OnPlace<T> from(values), other(around);
  OnPlace<T>& to = in_place ? from : other;
  ops::activate(machine.context, activation, part(from.cview(), offset, n), part(to.view(), offset, n));
  machine.finish();
  Array<T> const all = to.back();
  for (std::int64_t i = 0; i < n; ++i) result.at(i) = all.values[static_cast<std::size_t>(offset + i)];
  CHECK(all[offset ? 0 : n] == -7.0);
  CHECK(all[n + 1] == -7.0);
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("activations match their definitions", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const n : test::lengths) {
    CAPTURE(n);
    Array<T> pre = reference::random<T>({n}, 1, 6.0);
    if (n > 0) pre.at(0) = T(-100.0f);
    if (n > 0) pre.at(n / 2) = T(1000.0f);
    std::vector<double> gelu, relu;
    for (std::int64_t i = 0; i < n; ++i) {
      gelu.push_back(reference::gelu(pre[i]));
      relu.push_back(std::max(pre[i], 0.0));
    }
    Array<T> const smooth = activated(machine, Activation::gelu, pre),
                   rectified = activated(machine, Activation::relu, pre);
    CHECK(reference::error(smooth, gelu) < reference::tolerance<T>());
    CHECK(reference::error(rectified, relu) == 0.0);
    for (std::int64_t const offset : {0, 1})
      for (bool const in_place : {false, true}) {
        auto const same = [&](Activation activation, Array<T> const& first) {
          return reference::same_bits(activated(machine, activation, pre, offset, in_place).values,
                                      first.values);
        };
        CHECK(same(Activation::gelu, smooth));
        CHECK(same(Activation::relu, rectified));
      }
  }
}
