// SPDX-License-Identifier: Apache-2.0
// Tests the classifier on a GPU against its definition in double and against the CPU, and the sum of losses.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/cross_entropy.cuh"
#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/linear.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using reference::same_bits;
using test::DeviceBytes;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

/// Targets over the whole range, including the first and last class and masked rows.
Array<std::int32_t> some_targets(std::int64_t rows, std::int32_t classes, std::uint32_t seed) {
  Array<std::int32_t> targets({rows}, 0);
  std::uint32_t state = seed;
  for (std::int64_t row = 0; row < rows; ++row) {
    state = state * 1664525u + 1013904223u;
    targets.at(row) = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(classes));
    if (row % 9 == 1) targets.at(row) = classes - 1;
    if (row % 9 == 2) targets.at(row) = -1;
    if (row % 9 == 3) targets.at(row) = 0;
    if (row % 9 == 4) targets.at(row) = std::min(classes - 1, 7);
  }
  return targets;
}

struct Entropy {
  std::vector<double> losses, gradient;
};

template <class T>
Entropy definition(Array<T> const& logits, Array<std::int32_t> const& targets, double scale) {
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

template <class T>
struct Results {
  Array<T> logits;
  Array<compute_t<T>> losses;
};

/// Runs the classifier on logits that start `offset` elements after an aligned address.
template <class T>
Results<T> on_gpu(Gpu& gpu, Array<T> const& logits, Array<std::int32_t> const& targets, bool gradient,
                  compute_t<T> scale, std::int64_t offset = 0) {
  using S = compute_t<T>;
  Array<T> shifted({logits.shape.elements() + offset});
  std::copy(logits.values.begin(), logits.values.end(), shifted.values.begin() + offset);
  OnGpu<T> device(shifted);
  OnGpu<S> losses(poison<S>(targets.shape)), device_scale(Array<S>({1}, scale));
  OnGpu<std::int32_t> device_targets(targets);
  ops::cross_entropy(gpu.context, Tensor<T, Cuda>{device.view().data() + offset, logits.shape},
                     device_targets.cview(), losses.view(), gradient,
                     gradient ? device_scale.cview().data() : nullptr);
  gpu.finish();
  Array<T> result(logits.shape), all = device.back();
  result.values.assign(all.values.begin() + offset, all.values.end());
  return {result, losses.back()};
}

template <class T>
void matches_the_definition(Gpu& gpu, std::int64_t rows, std::int32_t n) {
  using S = compute_t<T>;
  CAPTURE(rows);
  CAPTURE(n);
  Array<T> const logits = reference::random<T>({rows, n}, static_cast<std::uint32_t>(n), 8.0);
  Array<std::int32_t> const targets = some_targets(rows, n, 3);
  Entropy const want = definition(logits, targets, 0.25);
  Results<T> const evaluated = on_gpu(gpu, logits, targets, false, S(0)),
                   got = on_gpu(gpu, logits, targets, true, S(0.25));
  CHECK(same_bits(evaluated.logits.values, logits.values));
  CHECK(same_bits(evaluated.losses.values, got.losses.values));
  CHECK(reference::error(got.losses, want.losses) < reference::tolerance<S>());
  CHECK(reference::error(got.logits, want.gradient) < reference::tolerance<T>());
  int wrong = 0;
  for (std::int64_t row = 2; row < rows; row += 9) {
    wrong += got.losses[row] != 0.0;
    for (std::int64_t i = row * n; i < (row + 1) * n; ++i) wrong += got.logits[i] != 0.0;
  }
  CHECK(wrong == 0);
  for (std::int64_t offset : {0, 1}) {
    Results<T> const again = on_gpu(gpu, logits, targets, true, S(0.25), offset);
    CHECK(same_bits(again.logits.values, got.logits.values));
    CHECK(same_bits(again.losses.values, got.losses.values));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: cross entropy matches the definition", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (std::int64_t rows : {1, 7, 33})
    for (std::int32_t n : {1, 7, 8, 9, 15, 129, 256, 2049, 5003}) matches_the_definition<T>(gpu, rows, n);
}

TEST_CASE_TEMPLATE("GPU: cross entropy of large vocabularies", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  // Row lengths that stay on chip, and one that does not fit.
  for (std::int32_t n : {50257, 50304, 131075}) matches_the_definition<T>(gpu, 12, n);
}

TEST_CASE_TEMPLATE("GPU: the relative error of small probabilities", T, float, double) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  std::int64_t const rows = 5, n = 3001;
  Array<T> const logits = reference::random<T>({rows, n}, 5, 20.0);
  Array<std::int32_t> const targets({rows}, 17);
  Entropy const want = definition(logits, targets, 1.0);
  Results<T> const got = on_gpu(gpu, logits, targets, true, T(1));
  CHECK(reference::error(got.losses, want.losses) < reference::tolerance<T>());
  CHECK(reference::error(got.logits, want.gradient, 1e-25) < reference::tolerance<T>());
}

TEST_CASE_TEMPLATE("GPU: cross entropy agrees with the CPU", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  using S = compute_t<T>;
  Machine machine(2);
  Gpu gpu;
  Array<T> logits = reference::random<T>({40, 3001}, 9, 9.0);
  Array<std::int32_t> targets = some_targets(40, 3001, 6);
  Results<T> const got = on_gpu(gpu, logits, targets, true, S(1) / S(40));
  Array<S> losses = poison<S>({40});
  S const scale = S(1) / S(40);
  ops::cross_entropy(machine.context, logits.view(), targets.view(), losses.view(), true, &scale);
  std::vector<double> const want(logits.values.begin(), logits.values.end());
  CHECK(reference::error(got.losses, {losses.values.begin(), losses.values.end()}) <
        reference::tolerance<S>());
  CHECK(reference::error(got.logits, want, 1.0 / 40) < 2 * reference::tolerance<T>());
}

TEST_CASE("GPU: cross entropy of extreme and broken logits") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  std::int64_t const n = 1000;
  Array<float> logits = reference::random<float>({6, n}, 1, 3e4);
  Array<std::int32_t> targets = some_targets(6, static_cast<std::int32_t>(n), 7);
  targets.at(2) = 5;
  float const infinity = std::numeric_limits<float>::infinity();
  logits.at(1 * n + 50) = std::numeric_limits<float>::quiet_NaN();
  logits.at(2 * n + 60) = infinity;
  for (std::int64_t i = 0; i < n; ++i) {
    logits.at(3 * n + i) = i == 0 ? 1.0f : -infinity;   // only the target is possible
    logits.at(4 * n + i) = i < 500 ? -infinity : 2.0f;  // the target, 7, is impossible
  }
  Results<float> const got = on_gpu(gpu, logits, targets, true, 1.0f);
  for (std::int64_t row : {0, 5}) CHECK(std::isfinite(got.losses[row]));
  CHECK(std::isnan(got.losses[1]));
  CHECK(!std::isfinite(got.losses[2]));
  CHECK(got.losses[3] == doctest::Approx(0.0));
  CHECK(got.losses[4] == infinity);
  int wrong = 0;
  for (std::int64_t i = 0; i < 6 * n; ++i) {
    std::int64_t const row = i / n;
    if (row == 1) wrong += !std::isnan(got.logits[i]);
    if (row == 0 || row >= 3) wrong += !std::isfinite(got.logits[i]);
    if (row == 3) wrong += got.logits[i] != 0.0;
    if (row == 4 && i % n != 7) wrong += std::fabs(got.logits[i] - (i % n < 500 ? 0.0 : 0.002)) > 1e-8;
  }
  CHECK(wrong == 0);
  CHECK(got.logits[4 * n + 7] == -1.0);
}

TEST_CASE("GPU: cross entropy reaches logits beyond the 2^31st") {
  TESSERA_NEEDS_GPU();
  std::int64_t const n = 50257, rows = (std::int64_t{1} << 31) / n + 3;
  std::size_t unused = 0, total = 0;
  cuda::require(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  if (unused < (std::size_t{8} << 30)) {
    MESSAGE("skipped: the GPU has too little free memory");
    return;
  }
  Gpu gpu;
  DeviceBytes memory(static_cast<std::size_t>(rows * n) * sizeof(bfloat16));
  cuda::require(cudaMemset(memory.data(), 0, memory.span().size()), "cudaMemset");
  bfloat16* const logits = reinterpret_cast<bfloat16*>(memory.data());
  OnGpu<std::int32_t> targets(Array<std::int32_t>({rows}, 50256));
  OnGpu<float> losses(poison<float>({rows})), scale(Array<float>({1}, 64.0f));
  ops::cross_entropy(gpu.context, Tensor<bfloat16, Cuda>{logits, {rows, n}}, targets.cview(), losses.view(),
                     true, scale.cview().data());
  gpu.finish();
  Array<float> const got = losses.back();
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    worst = std::max(worst, std::fabs(got[row] - std::log(static_cast<double>(n))));
  CHECK(worst < 1e-4);
  bfloat16 last[2];
  cuda::require(cudaMemcpy(last, logits + rows * n - 2, sizeof last, cudaMemcpyDeviceToHost), "cudaMemcpy");
  CHECK(static_cast<float>(last[0]) == doctest::Approx(64.0 / 50257).epsilon(0.01));
  CHECK(static_cast<float>(last[1]) == -64.0f);
}

TEST_CASE_TEMPLATE("on a GPU, a head with padding rows matches the CPU's", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  using S = compute_t<T>;
  Machine machine(2);
  Gpu gpu;
  for (auto const& [m, k, n, padded] :
       {std::array<std::int64_t, 4>{11, 37, 61, 64}, {130, 64, 301, 320}, {96, 128, 5003, 5008}}) {
    CAPTURE(n);
    Array<T> x = reference::random<T>({m, k}, 1), w = reference::random<T>({padded, k}, 2);
    std::fill(w.values.begin() + n * k, w.values.end(), T(0.0f));
    Array<std::int32_t> targets({m});
    for (std::int64_t row = 0; row < m; ++row)
      targets.at(row) = row % 5 == 4 ? -1 : static_cast<std::int32_t>(row * 7919 % n);
    Array<T> logits({m, padded}, T(768.0f)), dx({m, k}), dw({padded, k}, T(768.0f));
    Array<S> losses({m});
    Array<S> const scale({1}, S(0.25));
    OnGpu<T> glogits(logits), gx(x), gw(w), gdx(dx), gdw(dw);
    OnGpu<S> glosses(losses), gscale(scale);
    OnGpu<std::int32_t> gtargets(targets);

    ops::linear(machine.context, x.view(), w.view(), logits.view(), {.transposed = true});
    ops::cross_entropy(machine.context, logits.view(), n, targets.view(), losses.view(), true,
                       scale.values.data());
    ops::linear_backward_input(machine.context, logits.view(), w.view(), dx.view(), {.transposed = true});
    ops::linear_backward_weight(machine.context, x.view(), logits.view(), dw.view(), {.transposed = true});

    ops::linear(gpu.context, gx.cview(), gw.cview(), glogits.view(), {.transposed = true});
    ops::cross_entropy(gpu.context, glogits.view(), n, gtargets.cview(), glosses.view(), true,
                       gscale.cview().data());
    ops::linear_backward_input(gpu.context, glogits.cview(), gw.cview(), gdx.view(), {.transposed = true});
    ops::linear_backward_weight(gpu.context, gx.cview(), glogits.cview(), gdw.view(), {.transposed = true});
    gpu.finish();

    auto const close = [](auto const& got, auto const& want, double limit) {
      for (std::int64_t i = 0; i < want.shape.elements(); ++i)
        if (!(std::fabs(got[i] - want[i]) <= limit * (1.0 + std::fabs(want[i])))) return false;
      return true;
    };
    double const limit = 4 * reference::tolerance<T>();
    CHECK(close(glosses.back(), losses, limit));
    CHECK(close(glogits.back(), logits, limit));  // including the padding
    CHECK(close(gdx.back(), dx, limit));
    CHECK(close(gdw.back(), dw, limit));
  }
}

TEST_CASE_TEMPLATE("GPU: the sum of losses counts unmasked targets", T, float, double) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (std::int64_t rows : {0, 1, 31, 33, 1023, 1024, 1025, 8192, 70001}) {
    CAPTURE(rows);
    Array<T> const losses = reference::random<T>({rows}, 1, 12.0);
    Array<std::int32_t> const targets = some_targets(rows, 100, 5);
    double want = 0, size = 0;
    std::int64_t unmasked = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      want += losses[row];
      size += std::fabs(losses[row]);
      unmasked += targets.values[static_cast<std::size_t>(row)] >= 0;
    }
    OnGpu<T> device_losses(losses);
    OnGpu<std::int32_t> device_targets(targets);
    OnGpu<double> sums(poison<double>({2}));
    OnGpu<std::int64_t> counts(Array<std::int64_t>({2}, -7));
    for (int run = 0; run < 2; ++run)
      ops::sum_losses(gpu.context, device_losses.view(), device_targets.cview(), sums.view().data() + run,
                      counts.view().data() + run);
    gpu.finish();
    Array<double> const got = sums.back();
    CHECK(std::fabs(got[0] - want) <= 1e-13 * size);
    CHECK(same_bits<double>({got.values[0]}, {got.values[1]}));
    CHECK(counts.back().values == std::vector<std::int64_t>{unmasked, unmasked});
  }
}
