// SPDX-License-Identifier: Apache-2.0
// Operations that entries put off, to be one launch with others of their kind: the bits of those that run one
// by one.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/elementwise.cuh"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/adamw.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

/// Updates and norms of arrays of many lengths, one entry of a step each, or one by one; every fifth array is
/// not aligned, and after the eleventh an operation of another kind reads what was updated.
struct Joined {
  explicit Joined(bool in_entries) {
    AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    OnGpu<AdamWFactors<float>> const decayed(
        Array<AdamWFactors<float>>({1}, adamw_factors<float>(options, 3e-3, 0.9, 0.95, 0.3, true)));
    OnGpu<AdamWFactors<float>> const plain(
        Array<AdamWFactors<float>>({1}, adamw_factors<float>(options, 3e-3, 0.9, 0.95, 0.3, false)));
    OnGpu<std::int64_t> const skip(Array<std::int64_t>({1}, 0)), skipped(Array<std::int64_t>({1}, 1));
    constexpr std::int64_t lengths[] = {1, 7, 4096, 4097, 33000, 65536, 12289};
    OnGpu<float> read(poison<float>({12289}));
    int entry = 0;
    auto const in_entry = [&](auto const& work) {
      if (in_entries) gpu.context.begin(entry, Lane::compute, {});
      work();
      if (in_entries) gpu.context.end(entry, entry % 40 == 39);
      ++entry;
    };
    gpu.context.reserve(300, 4096);
    for (std::uint32_t i = 0; i < 120; ++i) {
      std::int64_t const n = lengths[i % 7], from = i % 5 == 4 && n > 1;
      arrays.push_back(std::make_unique<Arrays>(n, i));
      Arrays& at = *arrays.back();
      in_entry([&] {
        ops::adamw(gpu.context, n - from, static_cast<bfloat16 const*>(at.gradient.view().data() + from),
                   at.master.view().data() + from, at.first.view().data() + from,
                   at.second.view().data() + from, i % 3 ? at.weights.view().data() + from : nullptr,
                   (i % 2 ? decayed : plain).cview().data(), (i % 8 == 7 ? skipped : skip).cview().data());
      });
      if (i == 10)
        in_entry([&] {
          ops::copy(gpu.context, Tensor<float const, Cuda>{at.master.cview().data(), {n}},
                    Tensor<float, Cuda>{read.view().data(), {n}});
        });
    }
    for (auto& at : arrays)
      in_entry([&] { ops::norm_partials(gpu.context, at->gradient.cview(), at->partials.view()); });
    gpu.finish();
    keep(read.back().values);
    for (auto& at : arrays) {
      keep(at->master.back().values);
      keep(at->first.back().values);
      keep(at->second.back().values);
      keep(at->weights.back().values);
      keep(at->partials.back().values);
    }
  }
  template <class T>
  void keep(std::vector<T> const& values) {
    for (T const value : values) {
      float const wide = static_cast<float>(value);
      bits.push_back(0);
      std::memcpy(&bits.back(), &wide, sizeof wide);
    }
  }

  struct Arrays {
    Arrays(std::int64_t n, std::uint32_t seed)
        : gradient(reference::random<bfloat16>({n}, seed, 0.5)),
          weights(poison<bfloat16>({n})),
          master(reference::random<float>({n}, seed + 1000)),
          first(reference::random<float>({n}, seed + 2000, 1e-3)),
          second(Array<float>({n}, 1e-4f)),
          partials(poison<float>({(n + 4095) / 4096})) {}
    OnGpu<bfloat16> gradient, weights;
    OnGpu<float> master, first, second, partials;
  };
  Gpu gpu;
  std::vector<std::unique_ptr<Arrays>> arrays;
  std::vector<std::uint32_t> bits;
};

}  // namespace

TEST_CASE("GPU: updates and norms that entries put off have the bits of those that run one by one") {
  TESSERA_NEEDS_GPU();
  Joined const want(false), got(true);
  CHECK(want.bits == got.bits);
  CHECK(want.bits.size() > 1000000);
}
