// SPDX-License-Identifier: Apache-2.0
// Provides shared parts of the attention tests on a GPU: sizes, tolerances, and problems in which several
// query heads share key heads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/ops/attention.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

namespace test {

using namespace tessera;
using reference::Array;
using reference::Machine;

struct Size {
  std::int64_t samples, sequence;
  int heads;
  std::int64_t head;
  std::int64_t channels() const { return heads * head; }
};

inline std::string text(Size size) {
  return std::to_string(size.samples) + " " + std::to_string(size.sequence) + " " +
         std::to_string(size.heads) + " " + std::to_string(size.head);
}

/// The formats in which tensor cores multiply fp32 values.
inline constexpr DType fp32_products[] = {DType::tf32, DType::bf16x6, DType::bf16x3};

/// The formats in which values of T are multiplied: their own, and for fp32 also the tensor core formats.
template <class T>
std::vector<DType> products() {
  if (std::is_same_v<T, float>) return {DType::f32, DType::tf32, DType::bf16x6, DType::bf16x3};
  return {DType::f32};
}

/// The largest allowed difference of attention in T, relative to the scale of its results: the tolerance of
/// T, plus the effect of rounding on scores, probabilities and their products. tf32 rounds both factors of a
/// term, by 2^-11 each. The terms that six pieces leave out are smaller than fp32's own rounding.
template <class T>
double tolerance_of(DType product) {
  double const of_term = product == DType::tf32 ? 2 * 0x1p-11 : product == DType::bf16x3 ? 3 * 0x1p-16 : 0.0;
  return reference::tolerance<T>() + 2 * of_term;
}

/// The largest |got - want| / (floor + |want|); infinite if a result is not finite.
template <class T, class W>
double distance(Array<T> const& got, Array<W> const& want, double floor) {
  double worst = got.values.size() == want.values.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < want.shape.elements(); ++i) {
    double const difference = std::fabs(got[i] - want[i]) / (floor + std::fabs(want[i]));
    worst = std::isfinite(difference) ? std::max(worst, difference) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

/// Key heads that several query heads share, with queries for a span of the positions.
struct Span {
  Size size;  // of the queries, with all their heads
  std::int64_t group, first, keys;
};

template <class T>
struct Spanned {
  Array<T> out, dq, dkv;
  Array<compute_t<T>> logsumexp;
};

/// Views of keys and values, which are adjacent columns of one tensor.
template <class Place, class T>
ops::HeadColumns<T, Place> heads_of(Tensor<T, Place> q, Tensor<T, Place> kv) {
  std::int64_t const columns = kv.shape().columns() / 2;
  return {q, {kv, 0, columns}, {kv, columns, columns}};
}

template <class T>
struct SpanProblem {
  explicit SpanProblem(Span const& from)
      : span(from),
        q(reference::random<T>({from.size.samples, from.size.sequence, from.size.channels()}, 1, 1.5)),
        kv(reference::random<T>({from.size.samples, from.keys, 2 * from.size.channels() / from.group}, 2,
                                1.5)),
        dout(reference::random<T>(q.shape, 3)) {}
  Span span;
  Array<T> q, kv, dout;

  Spanned<T> empty(Array<T> (*make)(Shape const&)) const {
    return {make(q.shape), make(q.shape), make(kv.shape),
            Array<compute_t<T>>({span.size.samples, span.size.heads, span.size.sequence})};
  }
};

template <class T>
Spanned<T> span_on_cpu(Machine& machine, SpanProblem<T> p) {
  Spanned<T> r = p.empty([](Shape const& shape) { return Array<T>(shape); });
  auto const x = heads_of(p.q.view(), p.kv.view()), dx = heads_of(r.dq.view(), r.dkv.view());
  ops::attention_forward(machine.context, x, p.span.size.heads, r.out.view(), r.logsumexp.view(),
                         p.span.first);
  ops::attention_backward(machine.context, p.dout.view(), x, r.out.view(), r.logsumexp.view(),
                          p.span.size.heads, dx, p.span.first);
  return r;
}

/// Runs the problem into outputs filled with NaN. Backward starts from the CPU's results.
template <class T>
Spanned<T> span_on_gpu(Gpu& gpu, SpanProblem<T> const& p, Spanned<T> const& start) {
  Spanned<T> const r = p.empty(&poison<T>);
  OnGpu<T> q(p.q), kv(p.kv), dout(p.dout), out(r.out), dq(r.dq), dkv(r.dkv), from_out(start.out);
  OnGpu<compute_t<T>> logsumexp(r.logsumexp), from_logsumexp(start.logsumexp);
  auto const x = heads_of(q.view(), kv.view()), dx = heads_of(dq.view(), dkv.view());
  ops::attention_forward(gpu.context, x, p.span.size.heads, out.view(), logsumexp.view(), p.span.first);
  ops::attention_backward(gpu.context, dout.cview(), x, from_out.cview(), from_logsumexp.cview(),
                          p.span.size.heads, dx, p.span.first);
  gpu.finish();
  return {out.back(), dq.back(), dkv.back(), logsumexp.back()};
}

}  // namespace test
