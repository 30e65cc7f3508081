// SPDX-License-Identifier: Apache-2.0
// Tests cuDNN's attention on a GPU against the CPU implementation, if the build has cuDNN.
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/attention/attention.cuh"
#include "tessera/ops/attention.hpp"

#include "device/attention.hpp"
#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Machine;
using test::distance;
using test::Gpu;
using test::heads_of;
using test::OnGpu;
using test::poison;
using test::Span;
using test::span_on_cpu;
using test::span_on_gpu;
using test::Spanned;
using test::SpanProblem;
using test::text;

#define TESSERA_NEEDS_CUDNN()                                         \
  TESSERA_NEEDS_GPU();                                                \
  if (!cuda::has_cudnn_attention()) {                                 \
    MESSAGE("skipped: this build has no cuDNN (-DTESSERA_CUDNN=ON)"); \
    return;                                                           \
  }

namespace {

/// Compares results relative to `floor`, for inputs within `range`. cuDNN's bits may differ from run to run.
template <class T>
void cudnn_matches(Machine& machine, Context<Cuda>& cudnn, Span const& span, double range = 1.5,
                   double floor = 1.0) {
  CAPTURE(text(span.size));
  CAPTURE(span.group);
  SpanProblem<T> problem(span);
  problem.q = reference::random<T>(problem.q.shape, 1, range);
  problem.kv = reference::random<T>(problem.kv.shape, 2, range);
  Spanned<T> const want = span_on_cpu(machine, problem), empty = problem.empty(&poison<T>);
  OnGpu<T> q(problem.q), kv(problem.kv), dout(problem.dout), out(empty.out), dq(empty.dq), dkv(empty.dkv);
  OnGpu<float> logsumexp(poison<float>({span.size.samples, span.size.heads, span.size.sequence}));
  auto const x = heads_of(q.view(), kv.view()), dx = heads_of(dq.view(), dkv.view());
  ops::attention_forward(cudnn, x, span.size.heads, out.view(), logsumexp.view());
  ops::attention_backward(cudnn, dout.cview(), x, out.cview(), logsumexp.cview(), span.size.heads, dx);
  cudnn.synchronize();
  cudnn.raise();
  double const limit = reference::tolerance<T>(), shared = 2.0 * static_cast<double>(span.group);
  CHECK(distance(out.back(), want.out, floor) < limit);
  CHECK(distance(logsumexp.back(), want.logsumexp, floor) < reference::tolerance<float>());
  CHECK(distance(dq.back(), want.dq, 2 * floor) < 2 * limit);
  CHECK(distance(dkv.back(), want.dkv, shared * floor) < 2 * limit);
  CHECK(cudnn.attention_ran() == AttentionKind::cudnn);
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, attention by cuDNN matches the CPU", T, tessera::half, bfloat16) {
  TESSERA_NEEDS_CUDNN();
  Machine machine(2);
  Gpu gpu(1 << 16, {.attention = AttentionKind::cudnn});
  std::int64_t turn = 0;
  for (std::int64_t sequence : {2, 7, 64, 65, 129, 300})
    for (std::int64_t head : {8, 32, 40, 64, 80, 128}) {
      std::int64_t const samples = turn % 3 + 1;
      int const heads = static_cast<int>(turn % 5 + 1);
      cudnn_matches<T>(machine, gpu.context, {{samples, sequence, heads, head}, 1, 0, sequence});
      ++turn;
    }
  cudnn_matches<T>(machine, gpu.context, {{1, 1100, 2, 64}, 1, 0, 1100});
  cudnn_matches<T>(machine, gpu.context, {{2, 200, 3, 64}, 1, 0, 200}, 7.0, 50.0);
}

TEST_CASE_TEMPLATE("on a GPU, heads of cuDNN's queries may share heads of keys", T, tessera::half, bfloat16) {
  TESSERA_NEEDS_CUDNN();
  Machine machine(2);
  Gpu gpu(1 << 16, {.attention = AttentionKind::cudnn});
  for (std::int64_t head : {64, 128})
    for (std::int64_t sequence : {65, 300})
      cudnn_matches<T>(machine, gpu.context, {{2, sequence, 6, head}, 3, 0, sequence});
  cudnn_matches<T>(machine, gpu.context, {{1, 257, 8, 64}, 8, 0, 257});
}

TEST_CASE("on a GPU, cuDNN takes samples and heads in pieces that a small workspace holds") {
  TESSERA_NEEDS_CUDNN();
  Machine machine(2);
  Gpu gpu;
  // cuDNN needs 129 * 65 numbers per head for its sums. The first workspace takes the five samples of seven
  // heads in batches of 2, 2 and 1. The second takes the heads in batches of 4 and 3.
  for (std::size_t const heads : {15, 4}) {
    CAPTURE(heads);
    Context<Cuda> small(1, gpu.workspace.span().first(heads * 129 * 65 * sizeof(float)), nullptr,
                        {.attention = AttentionKind::cudnn});
    cudnn_matches<bfloat16>(machine, small, {{5, 129, 7, 64}, 1, 0, 129});
  }
  Context<Cuda> shared(1, gpu.workspace.span().first(20 * 129 * 65 * sizeof(float)), nullptr,
                       {.attention = AttentionKind::cudnn});
  cudnn_matches<bfloat16>(machine, shared, {{5, 129, 6, 64}, 3, 0, 129});
  Context<Cuda> tiny(1, gpu.workspace.span().first(129 * 64), nullptr, {.attention = AttentionKind::cudnn});
  CHECK_THROWS_WITH_AS(cudnn_matches<bfloat16>(machine, tiny, {{5, 129, 6, 64}, 1, 0, 129}),
                       doctest::Contains("one head of keys takes"), Error);
}

TEST_CASE("on a GPU, what cuDNN cannot take is refused in a sentence") {
  TESSERA_NEEDS_CUDNN();
  auto const attend_span = [&]<class T>(T, Span const& span) {
    Gpu gpu(1 << 16, {.attention = AttentionKind::cudnn});
    SpanProblem<T> const problem(span);
    (void)span_on_gpu(gpu, problem, problem.empty(&poison<T>));
  };
  using doctest::Contains;
  bfloat16 const b16(1.0f);
  CHECK_THROWS_WITH_AS(attend_span(1.0f, {{1, 64, 2, 64}, 1, 0, 64}),
                       Contains("cuDNN's attention takes 16-bit values alone"), Error);
  CHECK_THROWS_WITH_AS(
      attend_span(b16, {{2, 64, 3, 20}, 1, 0, 64}),
      Contains(
          "cuDNN takes no bf16 attention of 2 x 64 positions, 3 heads of 20 channels, 3 of keys (channels "
          "of a head and strides of rows are multiples of 8); use attention auto or fused"),
      Error);
  CHECK_THROWS_WITH_AS(
      attend_span(b16, {{1, 64, 2, 1024}, 1, 0, 64}),
      Contains("cuDNN takes no bf16 attention of 1 x 64 positions, 2 heads of 1024 channels, 2 of keys ("),
      Error);
  CHECK_THROWS_WITH_AS(attend_span(b16, {{1, 70, 4, 64}, 2, 61, 131}),
                       Contains("these queries are a span of the positions"), Error);
}
