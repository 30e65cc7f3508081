// SPDX-License-Identifier: Apache-2.0
// Tests SwiGLU against its definition in double, central differences, and other numbers of threads.
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/swiglu.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

TEST_CASE_TEMPLATE("swiglu matches its definition", T, float, double, half, bfloat16) {
  Machine machine(2);
  double const limit = reference::tolerance<T>();
  for (std::int64_t n : {1, 15, 16, 17, 4095, 4097}) {
    Array<T> gate = reference::random<T>({n}, 1, 6.0), up = reference::random<T>({n}, 2, 2.0),
             dy = reference::random<T>({n}, 3), y({n}), dgate({n}), dup({n});
    if (n > 4) {  // where e^-x is infinite, and where it vanishes
      gate.at(1) = T(-1000.0f);
      gate.at(2) = T(1000.0f);
    }
    std::vector<double> want_y, want_gate, want_up;
    for (std::int64_t i = 0; i < n; ++i) {
      double const s = 1 / (1 + std::exp(-gate[i]));
      want_y.push_back(gate[i] * s * up[i]);
      want_gate.push_back(dy[i] * up[i] * (s + gate[i] * s * (1 - s)));
      want_up.push_back(dy[i] * gate[i] * s);
    }
    ops::swiglu_forward(machine.context, gate.view(), up.view(), y.view());
    CHECK(reference::error(y, want_y) < limit);
    ops::swiglu_backward(machine.context, gate.view(), up.view(), dy.view(), dgate.view(), dup.view());
    CHECK(reference::error(dgate, want_gate) < limit);
    CHECK(reference::error(dup, want_up) < limit);
    Array<T> in_place = dy, in_up = up;
    ops::swiglu_backward(machine.context, gate.view(), up.view(), in_place.view(), in_place.view(),
                         in_up.view());
    CHECK(reference::same_bits(in_place.values, dgate.values));
    ops::swiglu_forward(machine.context, gate.view(), up.view(), gate.view());
    CHECK(reference::same_bits(gate.values, y.values));
  }
}

TEST_CASE("swiglu gradients match central differences") {
  Machine machine(1);
  Array<double> gate = reference::random<double>({37}, 1, 4.0), up = reference::random<double>({37}, 2),
                weights = reference::random<double>({37}, 3), y({37}), dgate({37}), dup({37});
  auto const loss = [&] {
    ops::swiglu_forward(machine.context, gate.view(), up.view(), y.view());
    return reference::weighted(weights, y);
  };
  ops::swiglu_backward(machine.context, gate.view(), up.view(), weights.view(), dgate.view(), dup.view());
  CHECK(reference::error(dgate, reference::central_differences(gate, loss)) < 1e-8);
  CHECK(reference::error(dup, reference::central_differences(up, loss)) < 1e-8);
}

TEST_CASE("swiglu has the same bits for every number of threads, and refuses shapes that do not fit") {
  Array<float> gate = reference::random<float>({50001}, 1, 5.0), up = reference::random<float>({50001}, 2);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<float> y({50001});
    ops::swiglu_forward(machine.context, gate.view(), up.view(), y.view());
    return y.values;
  }));
  Machine machine(1);
  Array<float> less({50000});
  CHECK_THROWS_AS(ops::swiglu_forward(machine.context, gate.view(), up.view(), less.view()), Error);
}
