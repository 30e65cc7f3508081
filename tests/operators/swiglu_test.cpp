// SPDX-License-Identifier: Apache-2.0
// Tests the activation SwiGLU against its definition in double and against numerical derivatives.
#include "tessera/ops/swiglu.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using test::Machine;
using test::OnPlace;

namespace {

template <class T>
struct SwiGluInput {
  explicit SwiGluInput(std::int64_t n)
      : gate(reference::random<T>({n}, 1, 6.0)),
        up(reference::random<T>({n}, 2, 2.0)),
        dy(reference::random<T>({n}, 3)) {}
  Array<T> gate, up, dy;
};

template <class T>
struct SwiGluOutput {
  Array<T> y, dgate, dup;

  bool operator==(SwiGluOutput const&) const = default;
};

/// Runs forward and backward of SwiGLU and returns the results. Every operand starts `offset` elements after
/// an aligned address. If `in_place` is true, y overwrites a copy of gate, dgate overwrites dy, and dup
/// overwrites up.
template <class T>
SwiGluOutput<T> swiglu(Machine& machine, SwiGluInput<T> const& in, std::int64_t offset = 0,
                       bool in_place = false) {
  Array<T> const poisoned = poison<T>(in.gate.shape);
  OnPlace<T> gate(in.gate, offset), up(in.up, offset), dy(in.dy, offset),
      y(in_place ? in.gate : poisoned, offset), own_dgate(poisoned, offset), own_dup(poisoned, offset);
  OnPlace<T>&dgate = in_place ? dy : own_dgate, &dup = in_place ? up : own_dup;
  ops::swiglu_forward(machine.context, in_place ? y.view() : gate.view(), up.view(), y.view());
  ops::swiglu_backward(machine.context, gate.view(), up.view(), dy.view(), dgate.view(), dup.view());
  machine.finish();
  return {y.back(), dgate.back(), dup.back()};
}

}  // namespace

TEST_CASE_TEMPLATE("swiglu matches its definition", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  double const limit = reference::tolerance<T>();
  for (std::int64_t const n : {1, 7, 15, 16, 17, 255, 2047, 4095, 4096, 4097, 13001, 100003}) {
    CAPTURE(n);
    SwiGluInput<T> in(n);
    in.gate.at(0) = T(-1000.0f);     // here exp(-gate) is infinite
    in.gate.at(n / 2) = T(1000.0f);  // here exp(-gate) is 0
    std::vector<double> y, dgate, dup;
    for (std::int64_t i = 0; i < n; ++i) {
      double const gate = in.gate[i], s = 1 / (1 + std::exp(-gate));
      y.push_back(gate * s * in.up[i]);
      dgate.push_back(in.dy[i] * in.up[i] * (s + gate * s * (1 - s)));
      dup.push_back(in.dy[i] * gate * s);
    }
    SwiGluOutput<T> const got = swiglu(machine, in);
    CHECK(reference::error(got.y, y) < limit);
    CHECK(reference::error(got.dgate, dgate) < limit);
    CHECK(reference::error(got.dup, dup) < limit);
    for (std::int64_t const offset : {0, 1})
      for (bool const in_place : {false, true}) CHECK(got == swiglu(machine, in, offset, in_place));
  }
}

TEST_CASE("swiglu gradients match central differences") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  SwiGluInput<double> in(37);
  SwiGluOutput<double> const got = swiglu(machine, in);
  auto const loss = [&] { return reference::weighted(in.dy, swiglu(machine, in).y); };
  CHECK(reference::error(got.dgate, reference::central_differences(in.gate, loss)) < 1e-8);
  CHECK(reference::error(got.dup, reference::central_differences(in.up, loss)) < 1e-8);
}

TEST_CASE("swiglu has the same bits every time and refuses shapes that do not fit") {
  TESSERA_NEEDS_PLACE();
  SwiGluInput<float> const in(50001);
  CHECK(test::same_bits_every_time([&](Machine& machine) { return swiglu(machine, in); }));
  Machine machine;
  OnPlace<float> gate(in.gate), up(in.up), less(Array<float>({50000}));
  CHECK_THROWS_AS(ops::swiglu_forward(machine.context, gate.view(), up.view(), less.view()), Error);
}
