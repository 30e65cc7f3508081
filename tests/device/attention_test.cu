// SPDX-License-Identifier: Apache-2.0
// Tests causal attention on a GPU against the CPU implementation, over types, lengths, widths and head
// counts, and for identical bits in a second run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/attention/attention.cuh"
#include "tessera/ops/attention.hpp"

#include "device/attention.hpp"
#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using test::adds_up;
using test::distance;
using test::fp32_products;
using test::Gpu;
using test::heads_of;
using test::OnGpu;
using test::poison;
using test::products;
using test::Size;
using test::Span;
using test::span_on_cpu;
using test::span_on_gpu;
using test::Spanned;
using test::SpanProblem;
using test::text;
using test::tolerance_of;

namespace {

template <class T>
struct Attended {
  Array<T> out, dqkv;
  Array<compute_t<T>> logsumexp;
};

/// Forward and backward on the CPU.
template <class T>
Attended<T> attend(Machine& machine, Size size, Array<T>& qkv, Array<T>& dout) {
  std::int64_t const b = size.samples, t = size.sequence, c = size.channels();
  Attended<T> result{Array<T>({b, t, c}), Array<T>({b, t, 3 * c}), Array<compute_t<T>>({b, size.heads, t})};
  ops::attention_forward(machine.context, qkv.view(), size.heads, result.out.view(), result.logsumexp.view());
  ops::attention_backward(machine.context, dout.view(), qkv.view(), result.out.view(),
                          result.logsumexp.view(), size.heads, result.dqkv.view());
  return result;
}

/// Runs forward and backward on the GPU, into outputs filled with NaN. Backward starts from the CPU's results
/// if they are given.
template <class T>
Attended<T> attend(Gpu& gpu, Size size, Array<T> const& qkv, Array<T> const& dout,
                   Attended<T> const* start = nullptr, bool sums = false) {
  using S = compute_t<T>;
  std::int64_t const b = size.samples, t = size.sequence, c = size.channels();
  OnGpu<T> gqkv(qkv), gdout(dout), out(poison<T>({b, t, c})), dqkv(poison<T>({b, t, 3 * c}));
  OnGpu<S> logsumexp(poison<S>({b, size.heads, t})),
      partials(poison<S>({ops::attention_partial_rows(b, t), 3 * c}));
  ops::attention_forward(gpu.context, gqkv.cview(), size.heads, out.view(), logsumexp.view());
  gpu.finish();
  OnGpu<T> from_out(start ? start->out : out.back());
  OnGpu<S> from_logsumexp(start ? start->logsumexp : logsumexp.back());
  ops::attention_backward(gpu.context, gdout.cview(), gqkv.cview(), from_out.cview(), from_logsumexp.cview(),
                          size.heads, dqkv.view(), sums ? partials.view() : Tensor<S, Cuda>());
  gpu.finish();
  if (sums) CHECK(adds_up(partials.back(), dqkv.back()));
  return {out.back(), dqkv.back(), logsumexp.back()};
}

/// Compares results relative to `floor`, for inputs within `range`.
template <class T>
void attention_matches(Machine& machine, Gpu& gpu, Size size, double range = 1.5, double floor = 1.0) {
  using S = compute_t<T>;
  CAPTURE(text(size));
  std::int64_t const c = size.channels();
  Array<T> qkv = reference::random<T>({size.samples, size.sequence, 3 * c}, 1, range),
           dout = reference::random<T>({size.samples, size.sequence, c}, 2);
  Attended<T> const want = attend(machine, size, qkv, dout);
  Attended<T> const got = attend(gpu, size, qkv, dout, &want),
                    again = attend(gpu, size, qkv, dout, &want, /*sums=*/true);
  CHECK(distance(got.out, want.out, floor) < reference::tolerance<T>());
  CHECK(distance(got.logsumexp, want.logsumexp, floor) < reference::tolerance<S>());
  CHECK(distance(got.dqkv, want.dqkv, 2 * floor) < 2 * reference::tolerance<T>());
  CHECK(reference::same_bits(got.out.values, again.out.values));
  CHECK(reference::same_bits(got.logsumexp.values, again.logsumexp.values));
  CHECK(reference::same_bits(got.dqkv.values, again.dqkv.values));
}

}  // namespace

TEST_CASE("on a GPU, attention of fp32 by tensor cores matches double") {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu plain(1 << 16, {.product = DType::bf16x3, .attention = AttentionKind::reference});
  std::unique_ptr<Gpu> fast[3];
  for (int i = 0; i < 3; ++i) fast[i] = std::make_unique<Gpu>(1 << 16, Math{.product = fp32_products[i]});
  auto const wide = [](Array<float> const& from) {
    Array<double> result(from.shape);
    std::copy(from.values.begin(), from.values.end(), result.values.begin());
    return result;
  };
  std::vector<Size> sizes = {{2, 200, 2, 18},
                             {1, 130, 2, 136},
                             {1, 1100, 2, 64},
                             {2, 128, 3, 64},
                             {3, 127, 2, 36}};  // the first two by tiles
  int turn = 0;
  for (std::int64_t sequence : {1, 7, 64, 65, 128, 129, 300})
    for (std::int64_t head : {4, 8, 20, 32, 40, 64, 80, 96, 104, 128}) {
      sizes.push_back({turn % 3 + 1, sequence, turn % 5 + 1, head});
      ++turn;
    }
  double worst[3] = {};
  for (Size const& size : sizes) {
    CAPTURE(text(size));
    std::int64_t const c = size.channels();
    Array<float> const qkv = reference::random<float>({size.samples, size.sequence, 3 * c}, 1, 1.5),
                       dout = reference::random<float>({size.samples, size.sequence, c}, 2);
    Array<double> qkv_wide = wide(qkv), dout_wide = wide(dout);
    Attended<double> const want = attend(machine, size, qkv_wide, dout_wide);
    Attended<float> const by_tiles = attend(plain, size, qkv, dout);
    for (int i = 0; i < 3; ++i) {
      DType const product = fp32_products[i];
      CAPTURE(name_of(product));
      Gpu& gpu = *fast[i];
      Attended<float> const got = attend(gpu, size, qkv, dout),
                            again = attend<float>(gpu, size, qkv, dout, nullptr, /*sums=*/true);
      double const limit = product == DType::bf16x6 ? 1e-6 : tolerance_of<float>(product);
      for (double const share :
           {distance(got.out, want.out, 1.0) / limit, distance(got.logsumexp, want.logsumexp, 1.0) / limit,
            distance(got.dqkv, want.dqkv, 2.0) / (2 * limit)}) {
        CHECK(share < 1);
        worst[i] = std::max(worst[i], share);
      }
      CHECK(reference::same_bits(got.out.values, again.out.values));
      CHECK(reference::same_bits(got.logsumexp.values, again.logsumexp.values));
      CHECK(reference::same_bits(got.dqkv.values, again.dqkv.values));
      bool const tiles = size.head % 4 != 0 || size.head > 128;
      if (tiles || size.sequence >= 64)
        CHECK(reference::same_bits(got.dqkv.values, by_tiles.dqkv.values) == tiles);
    }
  }
  for (int i = 0; i < 3; ++i)
    MESSAGE("attention by " << name_of(fp32_products[i]) << ": the largest difference is " << worst[i]
                            << " of the tolerance");
}

TEST_CASE_TEMPLATE("on a GPU, attention matches the CPU", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  int turn = 0;
  for (std::int64_t sequence : {1, 7, 64, 65, 129, 300})
    for (std::int64_t head : {1, 8, 20, 32, 40, 64, 80, 96, 104, 128, 256}) {
      attention_matches<T>(machine, gpu, {turn % 3 + 1, sequence, turn % 5 + 1, head});
      ++turn;
    }
}

TEST_CASE_TEMPLATE("on a GPU, attention with very wide heads and with long sequences", T, float, double,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  attention_matches<T>(machine, gpu, {1, 70, 2, 300});
  attention_matches<T>(machine, gpu, {1, 1100, 2, 64});
  attention_matches<T>(machine, gpu, {1, 1025, 1, 24});
}

TEST_CASE_TEMPLATE("on a GPU, attention with scores up to 50", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (std::int64_t head : {20, 32, 64, 128})
    attention_matches<T>(machine, gpu, {2, 200, 3, head}, 7.0, 50.0);
}

TEST_CASE_TEMPLATE("on a GPU, attention does not look ahead", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  for (DType const product : products<T>())
    for (std::int64_t head : {8, 64}) {
      CAPTURE(name_of(product));
      CAPTURE(head);
      Gpu gpu(1 << 16, {.product = product});
      Size const size{1, 200, 2, head};
      std::int64_t const t = size.sequence, c = size.channels(), changed = 66;
      Array<T> qkv = reference::random<T>({1, t, 3 * c}, 1), dout = reference::random<T>({1, t, c}, 2);
      Array<T> const first = attend(gpu, size, qkv, dout).out;
      for (std::int64_t i = changed * 3 * c; i < t * 3 * c; ++i)
        qkv.at(i) = T(static_cast<float>(7.0 - qkv[i]));
      Array<T> const second = attend(gpu, size, qkv, dout).out;
      int wrong = 0, same = 0;
      for (std::int64_t i = 0; i < changed * c; ++i) wrong += second[i] != first[i];
      for (std::int64_t i = changed * c; i < t * c; ++i) same += second[i] == first[i];
      CHECK(wrong == 0);
      CHECK(same < t * c / 20);
      // A NaN in one row must not reach any earlier tile of 64 rows, and must reach every later row.
      for (std::int64_t i = changed * 3 * c; i < (changed + 1) * 3 * c; ++i)
        qkv.at(i) = T(std::numeric_limits<float>::quiet_NaN());
      Array<T> const third = attend(gpu, size, qkv, dout).out;
      for (std::int64_t i = 0; i < t * c; ++i)
        wrong += i < 64 * c ? third[i] != first[i] : i >= changed * c && !std::isnan(third[i]);
      CHECK(wrong == 0);
    }
}

TEST_CASE_TEMPLATE("on a GPU, attention on tensor cores matches the reference, which keeps off them", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu plain(1 << 16, {.attention = AttentionKind::reference}), fused;
  attention_matches<T>(machine, plain, {2, 130, 3, 64});
  for (Size size : {Size{2, 1024, 3, 64}, Size{1, 1000, 2, 128}, Size{2, 600, 3, 80}, Size{1, 500, 2, 96},
                    Size{3, 777, 4, 32}}) {
    CAPTURE(text(size));
    std::int64_t const b = size.samples, t = size.sequence, c = size.channels();
    Array<T> const qkv = reference::random<T>({b, t, 3 * c}, 1, 2.0),
                   dout = reference::random<T>({b, t, c}, 2);
    Attended<T> const want = attend(plain, size, qkv, dout), got = attend(fused, size, qkv, dout, &want);
    CHECK(distance(got.out, want.out, 1.0) < reference::tolerance<T>());
    CHECK(distance(got.logsumexp, want.logsumexp, 1.0) < reference::tolerance<float>());
    CHECK(distance(got.dqkv, want.dqkv, 2.0) < 2 * reference::tolerance<T>());
    CHECK_FALSE(reference::same_bits(got.logsumexp.values, want.logsumexp.values));  // by other kernels
  }
  CHECK(plain.context.attention_ran() == AttentionKind::reference);
  CHECK(fused.context.attention_ran() == AttentionKind::fused);
}

namespace {

/// Runs the path for GPUs without warpgroups.
template <int D, class T>
Attended<T> attend_by_warps(Size size, Array<T> const& qkv, Array<T> const& dout, Attended<T> const& start) {
  std::int64_t const b = size.samples, t = size.sequence, c = size.channels(), pairs = b * size.heads;
  OnGpu<T> gqkv(qkv), gdout(dout), out(poison<T>({b, t, c})), dqkv(poison<T>({b, t, 3 * c})),
      from_out(start.out);
  OnGpu<float> logsumexp(poison<float>({b, size.heads, t})), from_logsumexp(start.logsumexp),
      dots(poison<float>({b, size.heads, t}));
  ops::AttentionSizes const sizes{b, t, t, 0, size.heads, 1, size.head};
  cuda::HeadLayout const at(sizes);
  float const scale = 1 / std::sqrt(static_cast<float>(size.head));
  cuda::Heads<T const> const x(ops::HeadColumns<T const, Cuda>(gqkv.cview()));
  cuda::Heads<T> const dx(ops::HeadColumns<T, Cuda>(dqkv.view()));
  cuda::require(cuda::run_attention_forward_mma<D>(nullptr, at, pairs, scale, x, out.view().data(),
                                                   logsumexp.view().data()),
                "forward");
  cuda::AttentionGradient<T> const gradient{at,
                                            0,
                                            scale,
                                            gdout.cview().data(),
                                            x,
                                            from_out.cview().data(),
                                            from_logsumexp.cview().data(),
                                            dots.view().data(),
                                            dx};
  cuda::require(cuda::run_attention_gradient_mma<D>(nullptr, gradient, pairs), "backward");
  cuda::require(cudaDeviceSynchronize(), "attention by warps");
  return {out.back(), dqkv.back(), logsumexp.back()};
}

template <int D, class T>
void warps_match(Machine& machine, std::int64_t sequence) {
  Size const size{2, sequence, 3, D};
  CAPTURE(text(size));
  Array<T> qkv = reference::random<T>({2, sequence, 3 * size.channels()}, 1, 1.5),
           dout = reference::random<T>({2, sequence, size.channels()}, 2);
  Attended<T> const want = attend(machine, size, qkv, dout), got = attend_by_warps<D>(size, qkv, dout, want);
  CHECK(distance(got.out, want.out, 1.0) < reference::tolerance<T>());
  CHECK(distance(got.logsumexp, want.logsumexp, 1.0) < reference::tolerance<float>());
  CHECK(distance(got.dqkv, want.dqkv, 2.0) < 2 * reference::tolerance<T>());
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, attention by warps, for those without warpgroups, matches the CPU", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  for (std::int64_t sequence : {1, 65, 300}) {
    warps_match<32, T>(machine, sequence);
    warps_match<64, T>(machine, sequence);
    warps_match<128, T>(machine, sequence);
  }
}

TEST_CASE_TEMPLATE("on a GPU, queries keys and values may lie anywhere in rows", T, float, tessera::half) {
  using S = compute_t<T>;
  using Columns = ops::Columns<T, Cuda>;
  TESSERA_NEEDS_GPU();
  for (DType const product : products<T>()) {
    CAPTURE(name_of(product));
    Gpu gpu(1 << 16, {.product = product});
    Size const size{2, 130, 3, 64};
    std::int64_t const b = size.samples, t = size.sequence, c = size.channels(), m = b * t;
    Array<T> const qkv = reference::random<T>({b, t, 3 * c}, 1), dout = reference::random<T>({b, t, c}, 2);
    Attended<T> const want = attend(gpu, size, qkv, dout);
    Array<T> q({b, t, c + 8}), k({b, t, c}), v({b, t, c});
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t i = 0; i < c; ++i) {
        q.at(row * (c + 8) + 8 + i) = qkv.values[static_cast<std::size_t>(row * 3 * c + i)];
        k.at(row * c + i) = qkv.values[static_cast<std::size_t>(row * 3 * c + c + i)];
        v.at(row * c + i) = qkv.values[static_cast<std::size_t>(row * 3 * c + 2 * c + i)];
      }
    OnGpu<T> gq(q), gk(k), gv(v), gdout(dout), out(poison<T>({b, t, c})), dq(poison<T>({b, t, c + 8})),
        dk(poison<T>({b, t, c})), dv(poison<T>({b, t, c}));
    OnGpu<S> lse(poison<S>({b, size.heads, t}));
    ops::HeadColumns<T, Cuda> const x(Columns(gq.view(), 8, c), gk.view(), gv.view()),
        dx(Columns(dq.view(), 8, c), dk.view(), dv.view());
    ops::attention_forward(gpu.context, x, size.heads, out.view(), lse.view());
    ops::attention_backward(gpu.context, gdout.cview(), x, out.cview(), lse.cview(), size.heads, dx);
    gpu.finish();
    CHECK(reference::same_bits(out.back().values, want.out.values));
    Array<T> const got_q = dq.back(), got_k = dk.back(), got_v = dv.back();
    int wrong = 0;
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t i = 0; i < c; ++i) {
        wrong += got_q[row * (c + 8) + 8 + i] != want.dqkv[row * 3 * c + i];
        wrong += got_k[row * c + i] != want.dqkv[row * 3 * c + c + i];
        wrong += got_v[row * c + i] != want.dqkv[row * 3 * c + 2 * c + i];
      }
    CHECK(wrong == 0);
  }
}

namespace {

template <class T>
void spans_match(Machine& machine, std::vector<Span> const& spans, DType product = DType::f32) {
  Gpu gpu(1 << 16, {.product = product});
  double worst = 0;
  for (Span const& span : spans) {
    CAPTURE(text(span.size));
    CAPTURE(span.group);
    CAPTURE(span.first);
    CAPTURE(span.keys);
    SpanProblem<T> const problem(span);
    Spanned<T> const want = span_on_cpu(machine, problem), got = span_on_gpu(gpu, problem, want),
                     again = span_on_gpu(gpu, problem, want);
    double const limit = tolerance_of<T>(product), shared = 2.0 * static_cast<double>(span.group);
    for (double const share :
         {distance(got.out, want.out, 1.0) / limit,
          distance(got.logsumexp, want.logsumexp, 1.0) / tolerance_of<compute_t<T>>(product),
          distance(got.dq, want.dq, 2.0) / (2 * limit), distance(got.dkv, want.dkv, shared) / (2 * limit)}) {
      CHECK(share < 1);
      worst = std::max(worst, share);
    }
    CHECK(reference::same_bits(got.out.values, again.out.values));
    CHECK(reference::same_bits(got.dq.values, again.dq.values));
    CHECK(reference::same_bits(got.dkv.values, again.dkv.values));
  }
  MESSAGE("attention in " << name_of(product == DType::f32 ? dtype_of<T> : product)
                          << ": the largest difference is " << worst << " of the tolerance");
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, heads of queries may share heads of keys", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  std::vector<Span> spans;
  for (std::int64_t head : {8, 20, 32, 64, 80, 128, 256})
    for (std::int64_t sequence : {7, 65, 300}) spans.push_back({{2, sequence, 6, head}, 3, 0, sequence});
  spans.push_back({{1, 1025, 8, 64}, 8, 0, 1025});
  spans.push_back({{3, 129, 8, 128}, 2, 0, 129});
  for (DType const product : products<T>()) spans_match<T>(machine, spans, product);
}

TEST_CASE_TEMPLATE("on a GPU, queries may be a span of the positions", T, float, double, tessera::half,
                   bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  std::vector<Span> spans;
  for (std::int64_t head : {20, 32, 64, 128}) {
    spans.push_back({{2, 5, 2, head}, 1, 3, 8});
    spans.push_back({{1, 70, 4, head}, 2, 61, 131});
    spans.push_back({{1, 200, 2, head}, 1, 999, 1210});  // the last keys are masked for all queries
    spans.push_back({{2, 40, 4, head}, 4, 0, 300});      // as are whole blocks of keys
    spans.push_back({{2, 40, 4, head}, 2, 20, 128});
  }
  for (DType const product : products<T>()) spans_match<T>(machine, spans, product);
}

TEST_CASE("on a GPU, the gradient of shared keys has the same bits in a small workspace") {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  SpanProblem<bfloat16> const p({{3, 129, 6, 64}, 3, 0, 129});
  Spanned<bfloat16> const start = span_on_cpu(machine, p), whole = span_on_gpu(gpu, p, start);
  OnGpu<bfloat16> q(p.q), kv(p.kv), dout(p.dout), out(start.out), dq(whole.dq), dkv(whole.dkv);
  OnGpu<float> logsumexp(start.logsumexp);
  Context<Cuda> small(1, gpu.workspace.span().first(4 * 129 * sizeof(float)));
  ops::attention_backward(small, dout.cview(), heads_of(q.view(), kv.view()), out.cview(), logsumexp.cview(),
                          6, heads_of(dq.view(), dkv.view()));
  small.synchronize();
  small.raise();
  CHECK(reference::same_bits(dq.back().values, whole.dq.values));
  CHECK(reference::same_bits(dkv.back().values, whole.dkv.values));

  // Heads that share keys are processed together or refused.
  Context<Cuda> tiny(1, gpu.workspace.span().first(2 * 129 * sizeof(float)));
  ops::attention_backward(tiny, dout.cview(), heads_of(q.view(), kv.view()), out.cview(), logsumexp.cview(),
                          6, heads_of(dq.view(), dkv.view()));
  tiny.synchronize();
  CHECK_THROWS_WITH_AS(
      tiny.raise(), doctest::Contains("whose workspace holds fewer numbers than the heads that share keys"),
      Error);
}

TEST_CASE_TEMPLATE("on a GPU, attention takes operands that are not aligned", T, float, double, tessera::half,
                   bfloat16) {
  using S = compute_t<T>;
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  // Plain arithmetic handles the inputs that packed accesses cannot, in every product format.
  Gpu gpu(1 << 16, {.product = std::is_same_v<T, float> ? DType::tf32 : DType::f32});
  Size const size{1, 100, 2, 64};
  std::int64_t const t = size.sequence, c = size.channels();
  Array<T> qkv = reference::random<T>({1, t, 3 * c}, 1, 1.5), dout = reference::random<T>({1, t, c}, 2);
  Attended<T> const want = attend(machine, size, qkv, dout);
  // Each buffer has one element before the tensor.
  auto const shifted = [](Array<T> const& from) {
    Array<T> result({from.shape.elements() + 1});
    std::copy(from.values.begin(), from.values.end(), result.values.begin() + 1);
    return result;
  };
  auto const unshifted = [](OnGpu<T> const& from, Shape const& shape) {
    Array<T> const all = from.back();
    Array<T> result(shape);
    result.values.assign(all.values.begin() + 1, all.values.end());
    return result;
  };
  OnGpu<T> gqkv(shifted(qkv)), gdout(shifted(dout)), out(poison<T>({t * c + 1})),
      dqkv(poison<T>({3 * t * c + 1}));
  OnGpu<S> lse(poison<S>({1, 2, t}));
  Tensor<T const, Cuda> const from(gqkv.cview().data() + 1, qkv.shape),
      from_out(out.cview().data() + 1, dout.shape);
  ops::attention_forward(gpu.context, from, size.heads, Tensor<T, Cuda>(out.view().data() + 1, dout.shape),
                         lse.view());
  ops::attention_backward(gpu.context, Tensor<T const, Cuda>(gdout.cview().data() + 1, dout.shape), from,
                          from_out, lse.cview(), size.heads,
                          Tensor<T, Cuda>(dqkv.view().data() + 1, qkv.shape));
  gpu.finish();
  CHECK(distance(unshifted(out, dout.shape), want.out, 1.0) < reference::tolerance<T>());
  CHECK(distance(lse.back(), want.logsumexp, 1.0) < reference::tolerance<S>());
  CHECK(distance(unshifted(dqkv, qkv.shape), want.dqkv, 2.0) < 2 * reference::tolerance<T>());
}

TEST_CASE_TEMPLATE("on a GPU, attention's gradient has the same bits in a small workspace", T, float, double,
                   tessera::half, bfloat16) {
  using S = compute_t<T>;
  TESSERA_NEEDS_GPU();
  for (DType const product : products<T>()) {
    CAPTURE(name_of(product));
    for (std::int64_t const head : {32, 64}) {
      CAPTURE(head);
      Gpu gpu(1 << 16, {.product = product});
      Size const size{3, 129, 3, head};
      std::int64_t const c = size.channels(), t = size.sequence;
      Array<T> const qkv = reference::random<T>({3, t, 3 * c}, 1), dout = reference::random<T>({3, t, c}, 2);
      Attended<T> const whole = attend(gpu, size, qkv, dout);
      OnGpu<T> gqkv(qkv), gdout(dout), out(whole.out), dqkv(poison<T>({3, t, 3 * c}));
      OnGpu<S> logsumexp(whole.logsumexp);
      auto const sums_by = [&](Context<Cuda>& context) {
        OnGpu<S> partials(poison<S>({ops::attention_partial_rows(3, t), 3 * c}));
        ops::attention_backward(context, gdout.cview(), gqkv.cview(), out.cview(), logsumexp.cview(),
                                size.heads, dqkv.view(), partials.view());
        context.synchronize();
        context.raise();
        CHECK(reference::same_bits(dqkv.back().values, whole.dqkv.values));
        return partials.back();
      };
      Context<Cuda> small(1, gpu.workspace.span().first(static_cast<std::size_t>(4 * t) * sizeof(S)), nullptr,
                          {.product = product});
      Array<S> const want = sums_by(gpu.context), got = sums_by(small);
      CHECK(adds_up(want, whole.dqkv));
      CHECK(reference::same_bits(got.values, want.values));
    }
  }
}
