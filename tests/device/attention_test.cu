// SPDX-License-Identifier: Apache-2.0
// Tests the attention kernels for GPUs without warpgroup instructions. Also tests attention in a small
// workspace, in which the kernels run in several batches.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include "operators/attention.hpp"

using namespace tessera;
using test::attention;
using test::AttentionInput;
using test::AttentionOutput;
using test::AttentionSize;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

template <int D, class T>
void check_warps(std::int64_t sequence) {
  AttentionInput<T> const in({2, sequence, 3, D});
  CAPTURE(text(in.size));
  Shape const rows{2, 3, sequence};
  OnGpu<T> q(in.q), k(in.k), v(in.v), dout(in.dout), out(poison<T>(in.q.shape)), dq(poison<T>(in.q.shape)),
      dk(poison<T>(in.q.shape)), dv(poison<T>(in.q.shape));
  OnGpu<float> logsumexp(poison<float>(rows)), dots(poison<float>(rows));
  cuda::HeadLayout const at({2, sequence, sequence, 0, 3, 1, D});
  float const scale = 1 / std::sqrt(float{D});
  cuda::Heads<T const> const x(ops::HeadColumns<T const, Cuda>(q.cview(), k.cview(), v.cview()));
  cuda::Heads<T> const dx(ops::HeadColumns<T, Cuda>(dq.view(), dk.view(), dv.view()));
  cuda::require(cuda::run_attention_forward_mma<D>(nullptr, at, 6, scale, x, out.view().data(),
                                                   logsumexp.view().data()),
                "forward");
  cuda::AttentionGradient<T> const gradient{
      at, 0, scale, dout.cview().data(), x, out.cview().data(), logsumexp.cview().data(), dots.view().data(),
      dx};
  cuda::require(cuda::run_attention_gradient_mma<D>(nullptr, gradient, 6), "backward");
  cuda::require(cudaDeviceSynchronize(), "attention by warps");
  test::check_near<T>({out.back(), dq.back(), dk.back(), dv.back(), logsumexp.back(), logsumexp.back()},
                      test::attention_definition(in));
}

/// Checks that attention gives the same bits in a large workspace and in a workspace that has space for only
/// `heads` heads at a time.
template <class T>
void check_small_workspace(AttentionSize const& size, DType product, std::size_t heads) {
  CAPTURE(text(size));
  CAPTURE(name_of(product));
  Gpu gpu(1 << 16, {.product = product});
  std::size_t const bytes = heads * static_cast<std::size_t>(size.queries) * sizeof(compute_t<T>);
  Context<Cuda> small(1, gpu.workspace.span().first(bytes), nullptr, {.product = product});
  AttentionInput<T> const in(size);
  test::AttentionVariant const variant{.packed = size.self_attention(), .sums = size.self_attention()};
  AttentionOutput<T> const want = attention(gpu.context, in, variant), got = attention(small, in, variant);
  CHECK(got == want);
  CHECK(reference::same_bits(got.partials.values, want.partials.values));
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: attention by warps, for GPUs without warpgroups, matches its definition", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  for (std::int64_t const sequence : {1, 65, 300}) {
    check_warps<32, T>(sequence);
    check_warps<64, T>(sequence);
    check_warps<128, T>(sequence);
  }
}

TEST_CASE_TEMPLATE("GPU: attention has the same bits in a small workspace", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_GPU();
  for (DType const product : {DType::f32, DType::tf32, DType::bf16x6, DType::bf16x3}) {
    if (product != DType::f32 && !std::is_same_v<T, float>) continue;
    for (std::int64_t const head : {32, 64}) check_small_workspace<T>({3, 129, 3, head}, product, 4);
  }
  check_small_workspace<T>({3, 129, 6, 64, 3}, DType::f32, 4);
}

TEST_CASE("GPU: a workspace that is too small for the heads that share keys is refused") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  Context<Cuda> tiny(1, gpu.workspace.span().first(2 * 129 * sizeof(float)));
  CHECK_THROWS_WITH_AS(attention(tiny, AttentionInput<bfloat16>({3, 129, 6, 64, 3})),
                       doctest::Contains("the workspace is too small for the heads that share keys"), Error);
}
