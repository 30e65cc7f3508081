// SPDX-License-Identifier: Apache-2.0
// Causal attention on a GPU at several widths of a head. of_product 1 is cuBLASLt's fastest square product in
// the same format, of_copy 1 a copy of 1 GiB, both measured by this program. Names read
// operation/format/samples x sequence x heads x width.
#include <cstdint>
#include <string>

#include "tessera/backend/cuda/attention.cuh"
#include "tessera/ops/attention.hpp"

#include "cuda_benchmark.cuh"

namespace {

namespace ts = tessera;
using gpu::Context;
using gpu::Pool;

struct Size {
  std::int64_t samples, sequence, heads, width;
};

template <class T>
void add_both(Size const& z, ts::AttentionKind kind = ts::AttentionKind::fused) {
  using S = ts::compute_t<T>;
  using P = ts::Cuda;
  auto const [b, n, h, d] = z;
  auto const c = h * d;
  auto const real = [](std::int64_t number) { return static_cast<double>(number); };
  // Query i sees i + 1 keys, so a product of queries and keys has n (n + 1) / 2 pairs of 2 d operations in
  // each of b h heads: b c n (n + 1) in all. Forward has two such products, backward five; what exponentials
  // and sums cost is not counted.
  double const product = real(b * c) * real(n) * real(n + 1);
  // (b,n,c) in T, and a number of S for each row of a head.
  double const tensor = real(b * n * c) * sizeof(T), rows = real(b * n * h) * sizeof(S);
  std::string const detail =
      std::to_string(b) + "x" + std::to_string(n) + "x" + std::to_string(h) + "x" + std::to_string(d);
  std::string const by = kind == ts::AttentionKind::cudnn ? "cudnn_" : "";
  ts::ops::AttentionSizes const sizes{b, n, n, 0, h, 1, d};

  // Reads q, k and v, writes out and the softmax's sums.
  gpu::add<T>(by + "attention_forward", detail, {2 * product, 4 * tensor + rows}, [=](Pool& pool) {
    auto const qkv = pool.array<T>({b, n, 3 * c}), out = pool.zeros<T>({b, n, c});
    auto const sums = pool.zeros<S>({b, h, n});
    ts::ops::HeadColumns<T const, P> const x(qkv);
    return [=](Context& on) { ts::cuda::Attention::forward<T>(on, kind, x, sizes, out, sums); };
  });
  // Reads dout, q, k, v, out and the sums, writes the gradients of q, k and v. What is read was computed, so
  // that probabilities are what they are in training.
  gpu::add<T>(by + "attention_backward", detail, {5 * product, 8 * tensor + rows}, [=](Pool& pool) {
    auto const dout = pool.array<T>({b, n, c}), qkv = pool.array<T>({b, n, 3 * c}),
               out = pool.zeros<T>({b, n, c}), dqkv = pool.zeros<T>({b, n, 3 * c});
    auto const sums = pool.zeros<S>({b, h, n});
    Context& now = gpu::machine().context;
    ts::ops::HeadColumns<T const, P> const x(qkv);
    ts::ops::HeadColumns<T, P> const dx(dqkv);
    ts::cuda::Attention::forward<T>(now, kind, x, sizes, out, sums);
    return [=](Context& on) { ts::cuda::Attention::backward<T>(on, kind, dout, x, out, sums, sizes, dx); };
  });
}

}  // namespace

int main(int argc, char** argv) {
  gpu::add_rates<float, ts::bfloat16>();
  // GPT-2's sequence, at the widths that kernels exist for and one between; then a longer one.
  for (std::int64_t const width : {32, 64, 80, 96, 128}) add_both<ts::bfloat16>({16, 1024, 12, width});
  for (std::int64_t const width : {64, 128}) {
    add_both<ts::bfloat16>({2, 8192, 12, width});
    add_both<float>({4, 1024, 12, width});
  }
  // The same by cuDNN, in a build that has it.
  if (ts::cuda::has_cudnn_attention())
    for (Size const& size : {Size{16, 1024, 12, 64}, Size{16, 1024, 12, 80}, Size{16, 1024, 12, 128},
                             Size{2, 8192, 12, 64}, Size{2, 8192, 12, 128}})
      add_both<ts::bfloat16>(size, ts::AttentionKind::cudnn);
  return gpu::run(argc, argv);
}
