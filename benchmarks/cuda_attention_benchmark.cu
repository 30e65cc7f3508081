// SPDX-License-Identifier: Apache-2.0
// Measures causal attention on a GPU at several head widths. of_product is the flop/s as a fraction of the
// flop/s of cuBLASLt's fastest square matrix product in the same format. of_copy is the bytes/s as a fraction
// of the bytes/s of a 1 GiB device copy. This program measures both references. Benchmark names:
// operation/format/samples x sequence x heads x width, then the format of the matrix products if it is not
// the same.
#include <cmath>
#include <cstdint>
#include <string>

#include "tessera/backend/cuda/attention/attention.cuh"
#include "tessera/ops/attention.hpp"

#include "cuda_benchmark.cuh"

namespace {

namespace ts = tessera;
using gpu::Context;
using gpu::Pool;

struct Size {
  std::int64_t samples, sequence, heads, width;
};

/// The arrays and the calls of one attention kernel. `kind` selects the implementation, `product` the format
/// of its matrix products.
template <class T>
struct Attended {
  using S = ts::compute_t<T>;
  using P = ts::Cuda;
  ts::AttentionKind kind;
  ts::DType product;
  ts::ops::AttentionSizes sizes;
  ts::Tensor<T, P> qkv, out;
  ts::Tensor<S, P> sums;

  void forward(Context& on) const {
    ts::ops::HeadColumns<T const, P> const x(qkv);
    if (kind == ts::AttentionKind::cudnn)
      return ts::cuda::Attention::forward<T>(on, kind, x, sizes, out, sums);
    on.check(run_attention_forward(on.stream(), kind, product, ts::cuda::HeadLayout(sizes),
                                   sizes.samples * sizes.heads, ts::cuda::Heads<T const>(x), out.data(),
                                   sums.data()),
             "attention_forward");
  }
  void backward(Context& on, ts::Tensor<T, P> dout, ts::Tensor<T, P> dqkv) const {
    ts::ops::HeadColumns<T const, P> const x(qkv);
    ts::ops::HeadColumns<T, P> const dx(dqkv);
    if (kind == ts::AttentionKind::cudnn)
      return ts::cuda::Attention::backward<T>(on, kind, dout, x, out, sums, sizes, dx);
    ts::cuda::AttentionGradient<T> const gradient{ts::cuda::HeadLayout(sizes),
                                                  0,
                                                  1 / std::sqrt(static_cast<S>(sizes.head)),
                                                  dout.data(),
                                                  ts::cuda::Heads<T const>(x),
                                                  out.data(),
                                                  sums.data(),
                                                  reinterpret_cast<S*>(on.workspace().data()),
                                                  ts::cuda::Heads<T>(dx)};
    bool const whole_packs = sizes.head % ts::cuda::pack_width<T> == 0;
    on.check(run_attention_gradient(on.stream(), ts::cuda::attention_form<T>(kind, gradient.at, whole_packs),
                                    product, gradient, sizes.samples * sizes.heads),
             "attention_backward");
  }
};

template <class T>
void add_both(Size const& z, ts::DType product = ts::dtype_of<T>,
              ts::AttentionKind kind = ts::AttentionKind::fused) {
  using S = ts::compute_t<T>;
  auto const [b, n, h, d] = z;
  auto const c = h * d;
  ts::ops::AttentionSizes const sizes{b, n, n, 0, h, 1, d};
  auto const real = [](std::int64_t number) { return static_cast<double>(number); };
  // Query i attends to i + 1 keys, so the product of queries and keys computes n (n + 1) / 2 scores in each
  // of b h heads. A score needs 2 d operations. With c = h d, one product needs b c n (n + 1) operations.
  // Forward has two products of this size, backward five. Exponentials and sums are not counted.
  double const flops = real(b * c) * real(n) * real(n + 1);
  // `tensor` is the bytes of one (b,n,c) tensor of T. `rows` is the bytes of the softmax's sums: one S for
  // each row of a head.
  double const tensor = real(b * n * c) * sizeof(T), rows = real(b * n * h) * sizeof(S);
  std::string detail =
      std::to_string(b) + "x" + std::to_string(n) + "x" + std::to_string(h) + "x" + std::to_string(d);
  if (product != ts::dtype_of<T>) detail += "/" + std::string(ts::name_of(product));
  std::string const by = kind == ts::AttentionKind::cudnn ? "cudnn_" : "";

  // The kernel reads q, k and v. It writes the output and the softmax's sums.
  gpu::add<T>(by + "attention_forward", detail, {2 * flops, 4 * tensor + rows}, [=](Pool& pool) {
    Attended<T> const of{kind,
                         product,
                         sizes,
                         pool.array<T>({b, n, 3 * c}),
                         pool.zeros<T>({b, n, c}),
                         pool.zeros<S>({b, h, n})};
    return [=](Context& on) { of.forward(on); };
  });
  // The kernel reads dout, q, k, v, out and the softmax's sums. It writes the gradients of q, k and v. A
  // forward pass computes out and the sums first, so the probabilities are as in training.
  gpu::add<T>(by + "attention_backward", detail, {5 * flops, 8 * tensor + rows}, [=](Pool& pool) {
    Attended<T> const of{kind,
                         product,
                         sizes,
                         pool.array<T>({b, n, 3 * c}),
                         pool.zeros<T>({b, n, c}),
                         pool.zeros<S>({b, h, n})};
    auto const dout = pool.array<T>({b, n, c}), dqkv = pool.zeros<T>({b, n, 3 * c});
    of.forward(gpu::machine().context);
    return [=](Context& on) { of.backward(on, dout, dqkv); };
  });
}

}  // namespace

int main(int argc, char** argv) {
  gpu::add_rates<float, ts::bfloat16>();
  // The first loop measures GPT-2's sequence length at several head widths. Width 80 has no kernel of its
  // own. The second loop measures a longer sequence in bf16, and fp32.
  for (std::int64_t const width : {32, 64, 80, 96, 128}) add_both<ts::bfloat16>({16, 1024, 12, width});
  for (std::int64_t const width : {64, 128}) {
    add_both<ts::bfloat16>({2, 8192, 12, width});
    add_both<float>({4, 1024, 12, width});
  }
  // Measures some of these sizes with cuDNN's kernels too, if the build contains cuDNN.
  if (ts::cuda::has_cudnn_attention())
    for (Size const& size : {Size{16, 1024, 12, 64}, Size{16, 1024, 12, 80}, Size{16, 1024, 12, 128},
                             Size{2, 8192, 12, 64}, Size{2, 8192, 12, 128}})
      add_both<ts::bfloat16>(size, ts::DType::bf16, ts::AttentionKind::cudnn);
  // fp32 at GPT-2's head width in every format of matrix products, for a short and a longer sequence.
  for (ts::DType const product : {ts::DType::f32, ts::DType::tf32, ts::DType::bf16x6, ts::DType::bf16x3})
    for (Size const& size : {Size{32, 128, 12, 64}, Size{8, 1024, 12, 64}}) add_both<float>(size, product);
  return gpu::run(argc, argv);
}
