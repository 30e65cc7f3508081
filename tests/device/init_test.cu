// SPDX-License-Identifier: Apache-2.0
// Tests that initial weights that are computed on a GPU have the bits of initial weights that are computed on
// the host.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/init.cuh"

#include "device/device.hpp"
#include "operators/reference.hpp"

using namespace tessera;
using test::Gpu;
using test::OnGpu;
using test::poison;

TEST_CASE_TEMPLATE("on a GPU, initial weights have the host's bits", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (Init const init : {Init::normal(0.02), Init::uniform(0.5), Init::ones(), Init::zeros()})
    for (std::int64_t const first : {0ll, 1ll, 2ll, 3ll, 5ll, 64ll, 1ll << 20, (1ll << 35) + 13})
      for (std::int64_t const count : {1, 3, 4, 1000, 300001}) {
        CAPTURE(static_cast<int>(init.kind));
        CAPTURE(first);
        CAPTURE(count);
        constexpr std::uint64_t seed = 0x123456789abcdefu;
        std::vector<float> values(static_cast<std::size_t>(count));
        initial_values(seed, 7, 3, init, first, values);
        reference::Array<T> want({count});
        for (std::int64_t i = 0; i < count; ++i) want.at(i) = T(values[static_cast<std::size_t>(i)]);
        OnGpu<T> got(poison<T>({count}));
        CHECK(backend::InitialValues<Cuda>::fill(gpu.context, {seed, 7, 3, init}, init.kind, first,
                                                 got.view().data(), count));
        CHECK(reference::same_bits(got.back().values, want.values));
      }
}
