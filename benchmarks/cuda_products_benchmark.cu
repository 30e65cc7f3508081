// SPDX-License-Identifier: Apache-2.0
// Measures linear layers on a GPU: forward, both backward products, their fused operations, and the column
// sums, which are the gradient of a bias. of_product is the flop/s as a fraction of the flop/s of cuBLASLt's
// fastest square matrix product in the same format. of_copy is the bytes/s as a fraction of the bytes/s of a
// 1 GiB device copy. This program measures both references. Benchmark names: operation/format/rows x
// channels.
#include <cstdint>
#include <string>

#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/ops/linear.hpp"

#include "cuda_benchmark.cuh"

namespace {

namespace ts = tessera;
using gpu::Context;
using gpu::Pool;
using gpu::Work;

/// The sizes of an MLP and an output head. The MLP has `c` channels, hidden width w = 4c, and `m` rows. The
/// output head has `v` rows, padded as in models; `v` = 0 leaves it out.
struct Size {
  std::int64_t m, c, v;
};

template <class T>
void add_all(Size const& z) {
  using S = ts::compute_t<T>;
  using P = ts::Cuda;
  auto const m = z.m, c = z.c, v = z.v, w = 4 * c;
  constexpr double t = sizeof(T), s = sizeof(S);
  auto const real = [](std::int64_t number) { return static_cast<double>(number); };
  // Each product involves matrices of shapes (m,c), (c,w) and (m,w), one of which is the result. A product
  // needs 2 m c w operations. It reads or writes each matrix once.
  double const flops = 2 * real(m) * real(c) * real(w), narrow = real(m * c), wide = real(m * w);
  double const bytes = (narrow + real(c * w) + wide) * t;
  auto const add = [&](char const* name, Work const& work, auto const& make) {
    gpu::add<T>(name, std::to_string(m) + "x" + std::to_string(c), work, make);
  };

  // In addition to the two matrices, the operation reads the bias.
  add("linear_forward", {flops, bytes + real(w) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, c}), k = pool.array<T>({c, w}), bias = pool.array<T>({w}),
               y = pool.zeros<T>({m, w});
    return [=](Context& on) { ts::ops::linear<T, P>(on, x, k, y, {.bias = bias}); };
  });
  // In addition, reads the bias and writes the input of GELU. GELU counts as 8 operations per element.
  add("linear_gelu_forward", {flops + 8 * wide, bytes + (wide + real(w)) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, c}), k = pool.array<T>({c, w}), bias = pool.array<T>({w}),
               pre = pool.zeros<T>({m, w}), y = pool.zeros<T>({m, w});
    return [=](Context& on) {
      ts::ops::linear<T, P>(on, x, k, y, {.bias = bias, .activation = ts::Activation::gelu, .pre = pre});
    };
  });
  // In addition, reads the residual and the bias.
  add("linear_residual_forward", {flops, bytes + (narrow + real(c)) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, w}), k = pool.array<T>({w, c}), bias = pool.array<T>({c}),
               residual = pool.array<T>({m, c}), y = pool.zeros<T>({m, c});
    return [=](Context& on) { ts::ops::linear<T, P>(on, x, k, y, {.bias = bias, .residual = residual}); };
  });
  add("linear_backward_input", {flops, bytes}, [=](Pool& pool) {
    auto const dy = pool.array<T>({m, w}), k = pool.array<T>({c, w}), dx = pool.zeros<T>({m, c});
    return [=](Context& on) { ts::ops::linear_backward_input<T, P>(on, dy, k, dx); };
  });
  // In addition, reads the input of GELU. The derivative of GELU counts as about 16 operations per element.
  add("linear_gelu_backward_input", {flops + 16 * wide, bytes + wide * t}, [=](Pool& pool) {
    auto const dy = pool.array<T>({m, c}), k = pool.array<T>({w, c}), pre = pool.array<T>({m, w}),
               dpre = pool.zeros<T>({m, w});
    return [=](Context& on) {
      ts::ops::linear_backward_input<T, P>(on, dy, k, dpre, {.activation = ts::Activation::gelu, .pre = pre});
    };
  });
  add("linear_backward_weight", {flops, bytes}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, c}), dy = pool.array<T>({m, w}), dk = pool.zeros<T>({c, w});
    return [=](Context& on) { ts::ops::linear_backward_weight<T, T, P>(on, x, dy, dk); };
  });
  // In addition, sums the columns of dy, one addition per element, and writes the gradient of the bias. The
  // bytes of dy count once, although the product and the sums both read dy.
  add("linear_backward_weight_and_bias", {flops + wide, bytes + real(w) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, c}), dy = pool.array<T>({m, w}), dk = pool.zeros<T>({c, w}),
               dbias = pool.zeros<T>({w});
    return [=](Context& on) { ts::ops::linear_backward_weight<T, T, P>(on, x, dy, dk, {.dbias = dbias}); };
  });
  // Reads dy (m,w) and writes the sums (w).
  add("column_sums", {wide, (wide + real(w)) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, 1}), dy = pool.array<T>({m, w}), dbias = pool.zeros<T>({w});
    return [=](Context& on) {
      ts::ops::linear_backward_weight<T, T, P>(on, x, dy, ts::Tensor<T, P>(), {.dbias = dbias});
    };
  });
  if (v == 0) return;

  // The output head: x (m,c), the table (v,c) and y (m,v). Operations and bytes are counted as for the MLP.
  // The gradient of the table has type S.
  double const head_flops = 2 * real(m) * real(c) * real(v), table = real(v * c);
  double const ends = (narrow + real(m) * real(v)) * t;
  add("head_forward", {head_flops, ends + table * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({m, c}), k = pool.array<T>({v, c}), y = pool.zeros<T>({m, v});
    return [=](Context& on) { ts::ops::linear<T, P>(on, x, k, y, {.transposed = true}); };
  });
  add("head_backward_input", {head_flops, ends + table * t}, [=](Pool& pool) {
    auto const dy = pool.array<T>({m, v}), k = pool.array<T>({v, c}), dx = pool.zeros<T>({m, c});
    return [=](Context& on) { ts::ops::linear_backward_input<T, P>(on, dy, k, dx, {.transposed = true}); };
  });
  add("head_backward_weight", {head_flops, ends + table * s}, [=](Pool& pool) {
    auto const dy = pool.array<T>({m, v}), x = pool.array<T>({m, c});
    auto const dk = pool.zeros<S>({v, c});
    return
        [=](Context& on) { ts::ops::linear_backward_weight<T, S, P>(on, x, dy, dk, {.transposed = true}); };
  });
}

}  // namespace

int main(int argc, char** argv) {
  gpu::add_rates<float, ts::bfloat16>();
  for (Size const& size : {Size{8192, 768, 50264}, Size{8192, 4096, 0}}) {
    add_all<float>(size);
    add_all<ts::bfloat16>(size);
  }
  return gpu::run(argc, argv);
}
