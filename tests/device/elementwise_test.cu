// SPDX-License-Identifier: Apache-2.0
// Tests conversion, filling, copying, folding, norms, inspection, GELU and AdamW on a GPU against the CPU.
// Bits are equal wherever the contract promises it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/adamw.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using reference::same_bits;
using test::DeviceBytes;
using test::Gpu;
using test::OnGpu;

namespace {

// Lengths around packs of 2, 4 and 8 values, around blocks of 4096, and over several thread blocks.
std::int64_t const lengths[] = {1, 3, 15, 16, 17, 255, 2047, 4095, 4096, 4097, 13001, 100003};

template <class T>
Array<T> poison(std::int64_t n) {
  return Array<T>({n}, T(std::numeric_limits<float>::quiet_NaN()));
}

/// A view of the elements from `offset` on. With 1, the start is not aligned for vector accesses.
template <class T>
Tensor<T, Cuda> from(Tensor<T, Cuda> all, std::int64_t offset) {
  return {all.data() + offset, {all.elements() - offset}};
}
template <class T>
Tensor<T> from(Tensor<T> all, std::int64_t offset) {
  return {all.data() + offset, {all.elements() - offset}};
}

/// Random values of many magnitudes, plus the edge cases of conversions: zeros, denormals, halfway cases, the
/// largest value, infinities.
template <class T>
Array<T> awkward(std::int64_t n, std::uint32_t seed) {
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
  constexpr std::size_t count = std::size(edges);
  Array<T> values = reference::random<T>({n}, seed);
  for (std::size_t i = 0; i < values.values.size(); ++i) {
    double const value = static_cast<double>(values.values[i]);
    if (i % 3 == 1) values.values[i] = static_cast<T>(std::ldexp(value, static_cast<int>(i % 61) - 40));
    if (i % 3 == 2) values.values[i] = static_cast<T>(edges[i / 3 % count]);
  }
  return values;
}

template <class S, class D>
void converts_like_the_cpu(Machine& machine, Gpu& gpu) {
  for (std::int64_t n : lengths)
    for (std::int64_t offset : {0, 1}) {
      if (n <= offset) continue;
      CAPTURE(n);
      CAPTURE(offset);
      Array<S> source = awkward<S>(n, 1);
      Array<D> want = poison<D>(n);
      OnGpu<S> device_source(source);
      OnGpu<D> got(want);
      ops::convert(machine.context, from(source.view(), offset), from(want.view(), offset));
      ops::convert(gpu.context, from(device_source.view(), offset), from(got.view(), offset));
      gpu.finish();
      // The element before the view stays unchanged. Comparing NaN bits shows which elements were not
      // written.
      CHECK(same_bits(got.back().values, want.values));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: convert has the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  converts_like_the_cpu<T, float>(machine, gpu);
  converts_like_the_cpu<T, double>(machine, gpu);
  converts_like_the_cpu<T, tessera::half>(machine, gpu);
  converts_like_the_cpu<T, bfloat16>(machine, gpu);
}

TEST_CASE("GPU: convert keeps NaN and works in place between formats of one size") {
  TESSERA_NEEDS_GPU();
  Machine machine(1);
  Gpu gpu;
  Array<float> nan = poison<float>(37);
  OnGpu<float> device_nan(nan);
  OnGpu<tessera::half> halves(Array<tessera::half>({37}));
  OnGpu<bfloat16> brains(Array<bfloat16>({37}));
  OnGpu<double> doubles(Array<double>({37}));
  ops::convert(gpu.context, device_nan.view(), halves.view());
  ops::convert(gpu.context, device_nan.view(), brains.view());
  ops::convert(gpu.context, halves.view(), doubles.view());
  Array<tessera::half> values = reference::random<tessera::half>({1001}, 1, 100.0);
  Array<bfloat16> want({1001});
  OnGpu<tessera::half> in_place(values);
  ops::convert(machine.context, values.view(), want.view());
  ops::convert(gpu.context, in_place.view(),
               Tensor<bfloat16, Cuda>{reinterpret_cast<bfloat16*>(in_place.view().data()), {1001}});
  gpu.finish();
  int numbers = 0;
  for (std::int64_t i = 0; i < 37; ++i)
    numbers += !std::isnan(halves.back()[i]) + !std::isnan(brains.back()[i]) + !std::isnan(doubles.back()[i]);
  CHECK(numbers == 0);
  Array<tessera::half> const got = in_place.back();
  CHECK(std::memcmp(got.values.data(), want.values.data(), 1001 * sizeof(bfloat16)) == 0);
}

TEST_CASE_TEMPLATE("GPU: fill and copy write every element and no other", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  for (std::int64_t n : lengths)
    for (std::int64_t offset : {0, 1}) {
      if (n <= offset + 1) continue;
      CAPTURE(n);
      Array<T> const start = reference::random<T>({n}, 1);
      Array<T> filled = start, copied = start;
      OnGpu<T> on_gpu(start), target(start);
      auto const middle = [&](Tensor<T, Cuda> all) {
        return Tensor<T, Cuda>{all.data() + offset, {n - offset - 1}};
      };
      ops::fill(gpu.context, middle(on_gpu.view()), compute_t<T>(1.5));
      ops::copy(gpu.context, middle(on_gpu.view()), middle(target.view()));
      ops::copy(gpu.context, target.view(), target.view());
      gpu.finish();
      for (std::int64_t i = offset; i < n - 1; ++i) filled.at(i) = copied.at(i) = T(1.5f);
      CHECK(same_bits(on_gpu.back().values, filled.values));
      CHECK(same_bits(target.back().values, copied.values));
    }
}

TEST_CASE("GPU: copy reaches pinned host memory in both directions") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  std::int64_t const n = 5003;
  Array<float> values = reference::random<float>({n}, 1);
  Arena<cuda::PinnedMemory> pinned(2 * n * static_cast<std::int64_t>(sizeof(float)));
  float* const first = reinterpret_cast<float*>(pinned.base());
  std::memcpy(first, values.values.data(), static_cast<std::size_t>(n) * sizeof(float));
  OnGpu<float> device(poison<float>(n));
  ops::copy(gpu.context, Tensor<float const, Cuda>{first, {n}}, device.view());
  ops::copy(gpu.context, device.cview(), Tensor<float, Cuda>{first + n, {n}});
  gpu.finish();
  CHECK(same_bits(device.back().values, values.values));
  CHECK(std::memcmp(first + n, first, static_cast<std::size_t>(n) * sizeof(float)) == 0);
}

TEST_CASE_TEMPLATE("GPU: fold has the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  using S = compute_t<T>;
  Machine machine(2);
  Gpu gpu;
  for (std::int64_t n : lengths)
    for (int count : {1, 2, 5, 9})
      for (std::int64_t gap : {0, 3, 16})
        for (bool first : {false, true}) {
          CAPTURE(n);
          CAPTURE(count);
          CAPTURE(gap);
          CAPTURE(first);
          std::int64_t const stride = n + gap;
          Array<T> pieces = reference::random<T>({count * stride}, 1, 3.0);
          Array<S> accumulator = first ? poison<S>(n) : reference::random<S>({n}, 2, 3.0);
          OnGpu<T> device_pieces(pieces);
          OnGpu<S> got(accumulator);
          T const* const data = pieces.values.data();
          ops::fold(gpu.context, got.view(), static_cast<T const*>(device_pieces.view().data()), count,
                    stride, first);
          ops::fold(machine.context, accumulator.view(), data, count, stride, first);
          gpu.finish();
          CHECK(same_bits(got.back().values, accumulator.values));
          if (first) {
            Array<float> norms = poison<float>((n + 4095) / 4096);
            OnGpu<float> got_norms(norms);
            ops::fold(gpu.context, got.view(), static_cast<T const*>(device_pieces.view().data()), count,
                      stride, true, got_norms.view());
            ops::norm_partials(machine.context, accumulator.view(), norms.view());
            gpu.finish();
            CHECK(same_bits(got_norms.back().values, norms.values));
          }
          if constexpr (std::is_same_v<S, T>)
            if (first) {  // the accumulator may be the first piece
              ops::fold(gpu.context, Tensor<T, Cuda>{device_pieces.view().data(), {n}},
                        static_cast<T const*>(device_pieces.view().data()), count, stride, true);
              gpu.finish();
              Array<T> in_place = device_pieces.back();
              in_place.values.resize(static_cast<std::size_t>(n));
              CHECK(same_bits(in_place.values, accumulator.values));
            }
        }
}

TEST_CASE_TEMPLATE("GPU: norm partials have the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  using S = compute_t<T>;
  Machine machine(2);
  Gpu gpu;
  for (std::int64_t n : lengths)
    for (std::int64_t offset : {0, 1}) {
      if (n <= offset) continue;
      CAPTURE(n);
      Array<T> values = reference::random<T>({n}, static_cast<std::uint32_t>(n), 3.0);
      std::int64_t const blocks = (n - offset + 4095) / 4096;
      Array<S> want = poison<S>(blocks);
      Array<float> rounded = poison<float>(blocks);
      OnGpu<T> device(values);
      OnGpu<S> got(want);
      OnGpu<float> got_rounded(rounded);
      ops::norm_partials(machine.context, from(values.view(), offset), want.view());
      ops::norm_partials(machine.context, from(values.view(), offset), rounded.view());
      ops::norm_partials(gpu.context, from(device.view(), offset), got.view());
      ops::norm_partials(gpu.context, from(device.view(), offset), got_rounded.view());
      gpu.finish();
      CHECK(same_bits(got.back().values, want.values));
      CHECK(same_bits(got_rounded.back().values, rounded.values));
      for (float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (std::int64_t where : {offset, n - 1}) {
          Array<T> copy = values;
          copy.at(where) = T(broken);
          OnGpu<T> device_copy(copy);
          ops::norm_partials(gpu.context, from(device_copy.view(), offset), got.view());
          gpu.finish();
          CHECK(!std::isfinite(got.back()[(where - offset) / 4096]));
        }
    }
}

TEST_CASE_TEMPLATE("GPU: norm partials note the first value that is not finite, as the CPU does", T, float,
                   double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  std::int64_t const n = 40 * 4096 + 17, begin = 1000, blocks = 41;
  Array<T> const finite = reference::random<T>({n}, 5, 3.0);
  Array<float> partials = poison<float>(blocks);
  auto const noted = [&](std::vector<std::int64_t> const& where, BadElement before) {
    Array<T> values = finite;
    for (std::int64_t i : where) values.at(i) = T(std::numeric_limits<float>::infinity());
    OnGpu<T> device(values);
    OnGpu<float> sums(partials);
    Array<std::int64_t> start({2});
    start.at(0) = before.unit;
    start.at(1) = before.element;
    OnGpu<std::int64_t> bad(start);
    BadElement want = before;
    ops::norm_partials(machine.context, values.view(), partials.view(), {&want, 3, begin});
    ops::norm_partials(gpu.context, device.view(), sums.view(),
                       {reinterpret_cast<BadElement*>(bad.view().data()), 3, begin});
    gpu.finish();
    Array<std::int64_t> const got = bad.back();
    CHECK(got[0] == want.unit);
    CHECK(got[1] == want.element);
    return want.element;
  };
  CHECK(noted({}, {}) == -1);
  CHECK(noted({n - 1}, {}) == begin + n - 1);
  CHECK(noted({8191, 4096, 4100, 100000, n - 1}, {}) == begin + 4096);
  CHECK(noted({30000}, {2, 7}) == begin + 30000);  // unit 3 comes first in backward
  CHECK(noted({30000}, {4, 7}) == 7);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 5; i < n; ++i) all.push_back(i);
  CHECK(noted(all, {}) == begin + 5);
}

TEST_CASE("GPU: norm partials note a block whose squares overflow only as they are stored, as the CPU does") {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  Array<double> values = reference::random<double>({3 * 4096}, 5, 3.0);
  values.at(4096 + 5) = 1e25;  // the square fits a double but not a float
  OnGpu<double> device(values);
  Array<float> partials = poison<float>(3);
  OnGpu<float> sums(partials);
  Array<std::int64_t> none({2});
  none.at(0) = none.at(1) = -1;
  OnGpu<std::int64_t> bad(none);
  BadElement want;
  ops::norm_partials(machine.context, values.view(), partials.view(), {&want, 3, 1000});
  ops::norm_partials(gpu.context, device.view(), sums.view(),
                     {reinterpret_cast<BadElement*>(bad.view().data()), 3, 1000});
  gpu.finish();
  CHECK(want.element == 1000 + 4096);
  CHECK(bad.back()[0] == want.unit);
  CHECK(bad.back()[1] == want.element);
}

TEST_CASE_TEMPLATE("GPU: the first value that is not finite is found", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  OnGpu<std::int64_t> index(Array<std::int64_t>({1}, 77));
  auto const found = [&](Array<T> const& values, std::int64_t offset) {
    OnGpu<T> device(values);
    ops::first_non_finite(gpu.context, from(device.view(), offset), index.view().data());
    gpu.finish();
    return index.back().values[0];
  };
  float const infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t n : lengths) {
    CAPTURE(n);
    Array<T> const values = reference::random<T>({n}, 1, 60000.0);
    CHECK(found(values, 0) == -1);
    for (std::int64_t where : {std::int64_t{0}, n / 3, n / 2, n - 1}) {
      Array<T> broken = values;
      broken.at(where) = T(where % 2 ? nan : -infinity);
      CHECK(found(broken, 0) == where);
      if (where > 0) CHECK(found(broken, 1) == where - 1);
      broken.at(n - 1) = T(infinity);
      CHECK(found(broken, 0) == where);
    }
  }
  CHECK(found(Array<T>({200003}, T(nan)), 0) == 0);
  CHECK(found(Array<T>({0}), 0) == -1);
}

TEST_CASE_TEMPLATE("GPU: GELU matches the definition and the CPU, in place too", T, float, double,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (std::int64_t n : lengths) {
    CAPTURE(n);
    Array<T> pre = reference::random<T>({n}, 1, 6.0), want({n});
    pre.at(0) = T(-100.0f);
    pre.at(n / 2) = T(1000.0f);
    std::vector<double> exact;
    for (std::int64_t i = 0; i < n; ++i) exact.push_back(reference::gelu(pre[i]));
    OnGpu<T> device(pre), got(poison<T>(n)), odd(pre);
    ops::activate(machine.context, Activation::gelu, pre.view(), want.view());
    ops::activate(gpu.context, Activation::gelu, device.view(), got.view());
    ops::activate(gpu.context, Activation::gelu, device.view(), device.view());
    ops::activate(gpu.context, Activation::gelu, from(odd.view(), n > 1 ? 1 : 0),
                  from(odd.view(), n > 1 ? 1 : 0));
    gpu.finish();
    Array<T> const result = got.back();
    CHECK(reference::error(result, exact) < reference::tolerance<T>());
    CHECK(reference::error(result, {want.values.begin(), want.values.end()}) < reference::tolerance<T>());
    CHECK(same_bits(device.back().values, result.values));
    Array<T> unaligned = odd.back();
    if (n > 1) {
      CHECK(unaligned[0] == pre[0]);
      unaligned.at(0) = result.values[0];
    }
    CHECK(same_bits(unaligned.values, result.values));
  }
}

namespace {

/// The buffers that an update changes.
template <class S, class T>
struct Parameters {
  Array<S> master, first, second;
  Array<T> weights;
};

template <class G, class S, class T>
void updates_like_the_cpu(std::int64_t n, std::int64_t offset, bool separate) {
  CAPTURE(n);
  CAPTURE(offset);
  CAPTURE(separate);
  Machine machine(2);
  Gpu gpu;
  Parameters<S, T> at{reference::random<S>({n}, 1), reference::random<S>({n}, 2, 1e-3), Array<S>({n}),
                      poison<T>(n)};
  for (std::int64_t i = 0; i < n; ++i) {
    at.second.at(i) = static_cast<S>(at.first[i] * at.first[i]);
    if (i % 7 != 0) continue;  // moments that fall below 2^-100 during the update
    at.first.at(i) = static_cast<S>(i % 2 ? 1e-30 : -1e-30);
    at.second.at(i) = static_cast<S>(0.9e-30);
  }
  OnGpu<S> master(at.master), first(at.first), second(at.second);
  OnGpu<T> weights(at.weights);
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (int step = 1; step <= 4; ++step) {
    Array<G> gradient = reference::random<G>({n}, static_cast<std::uint32_t>(10 + step), 0.5);
    for (std::int64_t i = 0; i < n; i += 5) gradient.at(i) = G(0.0f);
    Array<AdamWFactors<S>> const factors(
        {1}, adamw_factors<S>(options, 3e-3, std::pow(0.9, step), std::pow(0.95, step), 0.3, step % 2 == 0));
    Array<std::int64_t> const skip({1}, step == 3);
    OnGpu<G> device_gradient(gradient);
    OnGpu<AdamWFactors<S>> device_factors(factors);
    OnGpu<std::int64_t> device_skip(skip);
    ops::adamw(machine.context, n - offset, static_cast<G const*>(gradient.values.data() + offset),
               at.master.values.data() + offset, at.first.values.data() + offset,
               at.second.values.data() + offset, separate ? at.weights.values.data() + offset : nullptr,
               factors.values.data(), skip.values.data());
    ops::adamw(gpu.context, n - offset, static_cast<G const*>(device_gradient.view().data() + offset),
               master.view().data() + offset, first.view().data() + offset, second.view().data() + offset,
               separate ? weights.view().data() + offset : nullptr, device_factors.cview().data(),
               device_skip.cview().data());
    gpu.finish();
    REQUIRE(same_bits(master.back().values, at.master.values));
    REQUIRE(same_bits(first.back().values, at.first.values));
    REQUIRE(same_bits(second.back().values, at.second.values));
    REQUIRE(same_bits(weights.back().values, at.weights.values));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: AdamW has the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  using S = compute_t<T>;
  for (std::int64_t n : {2, 17, 1023, 4096, 13001})
    for (std::int64_t offset : {0, 1})
      for (bool separate : {false, true}) {
        updates_like_the_cpu<T, S, T>(n, offset, separate);
        updates_like_the_cpu<S, S, T>(n, offset, separate);
      }
}

TEST_CASE("GPU: AdamW with the master as the weights") {
  TESSERA_NEEDS_GPU();
  Machine machine(1);
  Gpu gpu;
  std::int64_t const n = 1001;
  Array<float> gradient = reference::random<float>({n}, 1), master = reference::random<float>({n}, 2),
               first({n}), second({n});
  OnGpu<float> device_gradient(gradient), device_master(master), device_first(first), device_second(second);
  Array<AdamWFactors<float>> const factors({1}, adamw_factors<float>({}, 1e-2, 0.9, 0.999, 1.0, true));
  Array<std::int64_t> const skip({1}, 0);
  OnGpu<AdamWFactors<float>> device_factors(factors);
  OnGpu<std::int64_t> device_skip(skip);
  ops::adamw(machine.context, n, static_cast<float const*>(gradient.values.data()), master.values.data(),
             first.values.data(), second.values.data(), master.values.data(), factors.values.data(),
             skip.values.data());
  ops::adamw(gpu.context, n, device_gradient.cview().data(), device_master.view().data(),
             device_first.view().data(), device_second.view().data(), device_master.view().data(),
             device_factors.cview().data(), device_skip.cview().data());
  gpu.finish();
  CHECK(same_bits(device_master.back().values, master.values));
  CHECK(same_bits(device_first.back().values, first.values));
}

TEST_CASE("GPU: elementwise operations take empty tensors") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  OnGpu<float> one(Array<float>({1}, 3.0f));
  Tensor<float, Cuda> const empty{one.view().data(), {0}};
  ops::convert(gpu.context, empty, Tensor<float, Cuda>{one.view().data(), {0}});
  ops::fill(gpu.context, empty, 1.0f);
  ops::copy(gpu.context, empty, empty);
  ops::fold(gpu.context, empty, one.cview().data(), 2, 0, true);
  ops::activate(gpu.context, Activation::gelu, empty, empty);
  ops::norm_partials(gpu.context, empty, empty);
  ops::adamw(gpu.context, 0, one.cview().data(), one.view().data(), one.view().data(), one.view().data(),
             static_cast<float*>(nullptr), static_cast<AdamWFactors<float> const*>(nullptr),
             static_cast<std::int64_t const*>(nullptr));
  gpu.finish();
  CHECK(one.back()[0] == 3.0);
}

TEST_CASE("GPU: elements beyond the 2^31st are reached") {
  TESSERA_NEEDS_GPU();
  std::int64_t const n = (std::int64_t{1} << 31) + 4096 + 7, blocks = (n + 4095) / 4096;
  std::size_t unused = 0, total = 0;
  cuda::require(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  if (unused < (std::size_t{12} << 30)) {
    MESSAGE("skipped: the GPU has too little free memory");
    return;
  }
  Gpu gpu;
  DeviceBytes memory(static_cast<std::size_t>(n) * 2), copy(static_cast<std::size_t>(n) * 2);
  Tensor<tessera::half, Cuda> const values{reinterpret_cast<tessera::half*>(memory.data()), {n}};
  Tensor<bfloat16, Cuda> const converted{reinterpret_cast<bfloat16*>(copy.data()), {n}};
  OnGpu<float> partials(Array<float>({blocks}));
  OnGpu<std::int64_t> index(Array<std::int64_t>({1}, 77));
  ops::fill(gpu.context, values, 1.0f);
  ops::fill(gpu.context, Tensor<tessera::half, Cuda>{values.data() + n - 3, {1}},
            std::numeric_limits<float>::infinity());
  ops::norm_partials(gpu.context, values, partials.view());
  ops::convert(gpu.context, values, converted);
  ops::first_non_finite(gpu.context, converted, index.view().data());
  gpu.finish();
  CHECK(index.back().values[0] == n - 3);
  Array<float> const sums = partials.back();
  CHECK(sums[0] == 4096.0);
  CHECK(sums[blocks - 2] == 4096.0);
  CHECK(std::isinf(sums[blocks - 1]));
}
