// SPDX-License-Identifier: Apache-2.0
// Tests causal attention against plain softmax in double, central differences, and other numbers of threads.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/attention.hpp"

#include "reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

struct Size {
  std::int64_t samples, sequence;
  int heads;
  std::int64_t head;
  std::int64_t channels() const { return heads * head; }
};

struct Attended {
  std::vector<double> out, logsumexp, dqkv;
};

/// Forward and backward by the definition, one head at a time.
template <class T>
Attended attention_reference(Size size, Array<T> const& qkv, Array<T> const& dout) {
  std::int64_t const length = size.sequence, head = size.head, c = size.channels();
  Attended result;
  result.out.assign(static_cast<std::size_t>(size.samples * length * c), 0.0);
  result.dqkv.assign(static_cast<std::size_t>(size.samples * length * 3 * c), 0.0);
  double const scale = 1 / std::sqrt(static_cast<double>(head));
  for (std::int64_t b = 0; b < size.samples; ++b)
    for (std::int64_t h = 0; h < size.heads; ++h)
      for (std::int64_t i = 0; i < length; ++i) {
        auto const at = [&](std::int64_t row, int which, std::int64_t d) {
          return static_cast<std::size_t>((b * length + row) * 3 * c + which * c + h * head + d);
        };
        std::size_t const out_at = static_cast<std::size_t>((b * length + i) * c + h * head);
        auto const value = [&](std::size_t index) { return static_cast<double>(qkv.values[index]); };
        std::vector<double> p;
        double top = -1e300, total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double dot = 0;
          for (std::int64_t d = 0; d < head; ++d) dot += value(at(i, 0, d)) * value(at(j, 1, d));
          p.push_back(dot * scale);
          top = std::max(top, p.back());
        }
        for (double& score : p) total += score = std::exp(score - top);
        result.logsumexp.push_back(top + std::log(total));
        std::vector<double> dp;
        double mean = 0;
        for (std::size_t j = 0; j < p.size(); ++j) {
          p[j] /= total;
          double slope = 0;
          for (std::int64_t d = 0; d < head; ++d) {
            std::size_t const o = out_at + static_cast<std::size_t>(d),
                              v = at(static_cast<std::int64_t>(j), 2, d);
            result.out[o] += p[j] * value(v);
            slope += static_cast<double>(dout.values[o]) * value(v);
            result.dqkv[v] += p[j] * static_cast<double>(dout.values[o]);
          }
          dp.push_back(slope);
          mean += p[j] * slope;
        }
        for (std::size_t j = 0; j < p.size(); ++j) {
          double const slope = p[j] * (dp[j] - mean) * scale;
          for (std::int64_t d = 0; d < head; ++d) {
            std::size_t const q = at(i, 0, d), k = at(static_cast<std::int64_t>(j), 1, d);
            result.dqkv[q] += slope * value(k);
            result.dqkv[k] += slope * value(q);
          }
        }
      }
  return result;
}

template <class T>
void attention_matches(Machine& machine, Size size) {
  using S = compute_t<T>;
  std::int64_t const c = size.channels();
  Array<T> qkv = reference::random<T>({size.samples, size.sequence, 3 * c}, 1, 1.5),
           dout = reference::random<T>({size.samples, size.sequence, c}, 2);
  Array<T> out({size.samples, size.sequence, c}), dqkv({size.samples, size.sequence, 3 * c});
  Array<S> logsumexp({size.samples, size.heads, size.sequence});
  ops::attention_forward(machine.context, qkv.view(), size.heads, out.view(), logsumexp.view());
  ops::attention_backward(machine.context, dout.view(), qkv.view(), out.view(), logsumexp.view(), size.heads,
                          dqkv.view());
  Attended const want = attention_reference(size, qkv, dout);
  double const limit = reference::tolerance<T>();
  CHECK_MESSAGE(reference::error(out, want.out) < limit, size.sequence, " ", size.head);
  CHECK_MESSAGE(reference::error(logsumexp, want.logsumexp) < reference::tolerance<S>(), size.sequence, " ",
                size.head);
  // The backward pass starts from the rounded `out`, whose error is summed over keys.
  CHECK_MESSAGE(reference::error(dqkv, want.dqkv, 2.0) < 2 * limit, size.sequence, " ", size.head);
}

}  // namespace

TEST_CASE_TEMPLATE("attention matches the definition", T, float, double, half, bfloat16) {
  Machine machine(2);
  for (Size size : {Size{1, 1, 1, 1}, Size{2, 7, 2, 8}, Size{1, 64, 2, 17}, Size{2, 65, 1, 33},
                    Size{1, 128, 3, 64}, Size{1, 129, 1, 20}, Size{1, 300, 2, 5}})
    attention_matches<T>(machine, size);
}

TEST_CASE("attention over several blocks of keys and queries") {
  Machine machine(2);
  attention_matches<double>(machine, {1, 600, 1, 9});
  attention_matches<float>(machine, {1, 1100, 1, 8});
  attention_matches<bfloat16>(machine, {1, 600, 2, 16});
  // Wide heads shrink the tiles. In 16 bits, their query sums do not fit the scratch and take another path.
  attention_matches<float>(machine, {1, 140, 1, 1900});
  attention_matches<bfloat16>(machine, {1, 140, 1, 1900});
}

TEST_CASE("attention gradients match central differences") {
  Machine machine(2);
  Size const size{1, 6, 2, 3};
  std::int64_t const c = size.channels();
  Array<double> qkv = reference::random<double>({1, 6, 3 * c}, 1),
                weights = reference::random<double>({1, 6, c}, 2);
  Array<double> out({1, 6, c}), dqkv({1, 6, 3 * c}), logsumexp({1, 2, 6});
  auto const loss = [&] {
    ops::attention_forward(machine.context, qkv.view(), 2, out.view(), logsumexp.view());
    return reference::weighted(weights, out);
  };
  loss();
  ops::attention_backward(machine.context, weights.view(), qkv.view(), out.view(), logsumexp.view(), 2,
                          dqkv.view());
  CHECK(reference::error(dqkv, reference::central_differences(qkv, loss)) < 1e-8);
}

TEST_CASE("gradients of shared keys match central differences") {
  using Columns = ops::Columns<double, Cpu>;
  Machine machine(2);
  std::int64_t const t = 5, c = 12, kc = 6;
  Array<double> q = reference::random<double>({1, t, c}, 1),
                kv = reference::random<double>({1, t, 2 * kc}, 2),
                weights = reference::random<double>({1, t, c}, 3), out({1, t, c}), lse({1, 4, t}),
                dq({1, t, c}), dkv({1, t, 2 * kc});
  ops::HeadColumns<double, Cpu> const x(q.view(), Columns(kv.view(), 0, kc), Columns(kv.view(), kc, kc)),
      dx(dq.view(), Columns(dkv.view(), 0, kc), Columns(dkv.view(), kc, kc));
  auto const loss = [&] {
    ops::attention_forward(machine.context, x, 4, out.view(), lse.view());
    return reference::weighted(weights, out);
  };
  loss();
  ops::attention_backward(machine.context, weights.view(), x, out.view(), lse.view(), 4, dx);
  CHECK(reference::error(dq, reference::central_differences(q, loss)) < 1e-8);
  CHECK(reference::error(dkv, reference::central_differences(kv, loss)) < 1e-8);
}

TEST_CASE_TEMPLATE("attention has the same bits for every number of threads", T, float, double, half,
                   bfloat16) {
  using S = compute_t<T>;
  std::int64_t const b = 2, t = 131, c = 66;
  Array<T> qkv = reference::random<T>({b, t, 3 * c}, 1), dout = reference::random<T>({b, t, c}, 2);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    Array<T> out({b, t, c}), dqkv({b, t, 3 * c});
    Array<S> logsumexp({b, 3, t});
    ops::attention_forward(machine.context, qkv.view(), 3, out.view(), logsumexp.view());
    ops::attention_backward(machine.context, dout.view(), qkv.view(), out.view(), logsumexp.view(), 3,
                            dqkv.view());
    out.values.insert(out.values.end(), dqkv.values.begin(), dqkv.values.end());
    return out.values;
  }));
  Array<T> q = reference::random<T>({b, t, c}, 3), kv = reference::random<T>({b, t, 44}, 4);
  CHECK(reference::same_for_all_threads([&](Machine& machine) {
    using Columns = ops::Columns<T, Cpu>;
    Array<T> out({b, t, c}), dq({b, t, c}), dkv({b, t, 44});
    Array<S> logsumexp({b, 3, t});
    ops::HeadColumns<T, Cpu> const x(q.view(), Columns(kv.view(), 0, 22), Columns(kv.view(), 22, 22)),
        dx(dq.view(), Columns(dkv.view(), 0, 22), Columns(dkv.view(), 22, 22));
    ops::attention_forward(machine.context, x, 3, out.view(), logsumexp.view());
    ops::attention_backward(machine.context, dout.view(), x, out.view(), logsumexp.view(), 3, dx);
    for (Array<T> const* more : {&dq, &dkv})
      out.values.insert(out.values.end(), more->values.begin(), more->values.end());
    return out.values;
  }));
}

TEST_CASE("attention does not look ahead and survives large scores") {
  Machine machine(2);
  std::int64_t const t = 70, c = 8;
  Array<float> qkv = reference::random<float>({1, t, 3 * c}, 1), out({1, t, c}), other({1, t, c}),
               lse({1, 1, t});
  ops::attention_forward(machine.context, qkv.view(), 1, out.view(), lse.view());
  for (std::int64_t i = 66 * 3 * c; i < t * 3 * c; ++i) qkv.at(i) = 7.0f - qkv.at(i);
  ops::attention_forward(machine.context, qkv.view(), 1, other.view(), lse.view());
  int wrong = 0;
  for (std::int64_t i = 0; i < t * c; ++i) wrong += i < 66 * c ? other[i] != out[i] : other[i] == out[i];
  CHECK(wrong == 0);
  for (std::int64_t i = 66 * 3 * c; i < 67 * 3 * c; ++i) qkv.at(i) = std::numeric_limits<float>::quiet_NaN();
  ops::attention_forward(machine.context, qkv.view(), 1, other.view(), lse.view());
  for (std::int64_t i = 0; i < t * c; ++i)
    wrong += i < 64 * c ? other[i] != out[i] : i >= 66 * c && !std::isnan(other[i]);
  CHECK(wrong == 0);
  qkv = reference::random<float>({1, t, 3 * c}, 2, 1e4);
  ops::attention_forward(machine.context, qkv.view(), 1, out.view(), lse.view());
  for (std::int64_t i = 0; i < t * c; ++i) wrong += !std::isfinite(out[i]);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("queries keys and values may lie anywhere in rows", T, float, half) {
  using S = compute_t<T>;
  using ops::Columns;
  Machine machine(2);
  std::int64_t const b = 2, t = 70, c = 24, m = b * t;
  int const heads = 3;
  Array<T> qkv = reference::random<T>({b, t, 3 * c}, 1), dout = reference::random<T>({b, t, c}, 2);
  Array<T> want({b, t, c}), want_dqkv({b, t, 3 * c}), out({b, t, c}), q({b, t, c + 5}), kv({b, t, 2 * c}),
      dq({b, t, c}), dkv({b, t, 2 * c + 1});
  Array<S> lse({b, heads, t});
  ops::attention_forward(machine.context, qkv.view(), heads, want.view(), lse.view());
  ops::attention_backward(machine.context, dout.view(), qkv.view(), want.view(), lse.view(), heads,
                          want_dqkv.view());
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      q.at(row * (c + 5) + 5 + i) = qkv.at(row * 3 * c + i);
      kv.at(row * 2 * c + i) = qkv.at(row * 3 * c + c + i);
      kv.at(row * 2 * c + c + i) = qkv.at(row * 3 * c + 2 * c + i);
    }
  ops::HeadColumns<T, Cpu> const x(Columns<T, Cpu>(q.view(), 5, c), Columns<T, Cpu>(kv.view(), 0, c),
                                   Columns<T, Cpu>(kv.view(), c, c)),
      dx(dq.view(), Columns<T, Cpu>(dkv.view(), 1 + c, c), Columns<T, Cpu>(dkv.view(), 1, c));
  ops::attention_forward(machine.context, x, heads, out.view(), lse.view());
  CHECK(reference::same_bits(out.values, want.values));
  ops::attention_backward(machine.context, dout.view(), x, out.view(), lse.view(), heads, dx);
  int wrong = 0;
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      wrong += dq[row * c + i] != want_dqkv[row * 3 * c + i];
      wrong += dkv[row * (2 * c + 1) + 1 + c + i] != want_dqkv[row * 3 * c + c + i];
      wrong += dkv[row * (2 * c + 1) + 1 + i] != want_dqkv[row * 3 * c + 2 * c + i];
    }
  CHECK(wrong == 0);

  ops::HeadColumns<T, Cpu> const uneven(x.q, Columns<T, Cpu>(kv.view(), 0, 16),
                                        Columns<T, Cpu>(kv.view(), 16, 16));
  CHECK_THROWS_WITH_AS(
      ops::attention_forward(machine.context, uneven, heads, out.view(), lse.view()),
      "attention_forward: keys of 16 channels for 3 heads of 8; the heads of keys are as wide, and their "
      "number divides that of the queries' heads",
      Error);
  CHECK_THROWS_AS(ops::attention_forward(machine.context, x, heads, out.view(), lse.view(), 1), Error);
}

namespace {

/// Some queries of longer sequences, and key heads that several query heads share.
struct Span {
  Size size;  // of the queries, with all their heads
  std::int64_t group, first, keys;
};

/// Compares the operation with the definition, in which every head has its own keys and all queries exist.
template <class T>
void span_matches(Machine& machine, Span const& span) {
  using S = compute_t<T>;
  using Columns = ops::Columns<T, Cpu>;
  auto const [b, n, heads, head] = span.size;
  std::int64_t const c = heads * head, kc = c / span.group, t = span.keys;
  CAPTURE(n);
  CAPTURE(head);
  CAPTURE(span.group);
  CAPTURE(span.first);
  Array<T> q = reference::random<T>({b, n, c}, 1, 1.5), kv = reference::random<T>({b, t, 2 * kc}, 2, 1.5),
           dout = reference::random<T>({b, n, c}, 3), out({b, n, c}), dq({b, n, c}), dkv({b, t, 2 * kc});
  Array<S> lse({b, heads, n});
  Array<T> all({b, t, 3 * c}), all_dout({b, t, c});
  for (std::int64_t row = 0; row < b * t; ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      std::int64_t const from = i / head / span.group * head + i % head, query = row % t - span.first;
      all.at(row * 3 * c + c + i) = kv.at(row * 2 * kc + from);
      all.at(row * 3 * c + 2 * c + i) = kv.at(row * 2 * kc + kc + from);
      if (query < 0 || query >= n) continue;
      all.at(row * 3 * c + i) = q.at((row / t * n + query) * c + i);
      all_dout.at(row * c + i) = dout.at((row / t * n + query) * c + i);
    }
  Attended const whole = attention_reference({b, t, heads, head}, all, all_dout);
  std::vector<double> want_out, want_dq, want_dkv(static_cast<std::size_t>(b * t * 2 * kc), 0.0), want_lse;
  for (std::int64_t row = 0; row < b * n; ++row)
    for (std::int64_t i = 0; i < c; ++i) {
      std::int64_t const at = row / n * t + span.first + row % n;
      want_out.push_back(whole.out[static_cast<std::size_t>(at * c + i)]);
      want_dq.push_back(whole.dqkv[static_cast<std::size_t>(at * 3 * c + i)]);
    }
  for (std::int64_t pair = 0; pair < b * heads; ++pair)
    for (std::int64_t row = 0; row < n; ++row)
      want_lse.push_back(whole.logsumexp[static_cast<std::size_t>(pair * t + span.first + row)]);
  for (std::int64_t row = 0; row < b * t; ++row)
    for (std::int64_t i = 0; i < 2 * c; ++i) {
      std::int64_t const own = i % c, to = own / head / span.group * head + own % head + i / c * kc;
      want_dkv[static_cast<std::size_t>(row * 2 * kc + to)] +=
          whole.dqkv[static_cast<std::size_t>(row * 3 * c + c + i)];
    }
  ops::HeadColumns<T, Cpu> const x(q.view(), Columns(kv.view(), 0, kc), Columns(kv.view(), kc, kc)),
      dx(dq.view(), Columns(dkv.view(), 0, kc), Columns(dkv.view(), kc, kc));
  ops::attention_forward(machine.context, x, heads, out.view(), lse.view(), span.first);
  ops::attention_backward(machine.context, dout.view(), x, out.view(), lse.view(), heads, dx, span.first);
  double const limit = reference::tolerance<T>();
  CHECK(reference::error(out, want_out) < limit);
  CHECK(reference::error(lse, want_lse) < reference::tolerance<S>());
  CHECK(reference::error(dq, want_dq, 2.0) < 2 * limit);
  CHECK(reference::error(dkv, want_dkv, 2.0 * static_cast<double>(span.group)) < 2 * limit);
}

}  // namespace

TEST_CASE_TEMPLATE("heads of queries may share heads of keys", T, float, double, half, bfloat16) {
  Machine machine(2);
  span_matches<T>(machine, {{2, 7, 4, 8}, 2, 0, 7});
  span_matches<T>(machine, {{1, 65, 3, 33}, 3, 0, 65});
  span_matches<T>(machine, {{2, 130, 8, 20}, 4, 0, 130});
  span_matches<T>(machine, {{1, 300, 6, 80}, 2, 0, 300});   // in 16 bits the query sums fit the scratch
  span_matches<T>(machine, {{1, 140, 4, 600}, 4, 0, 140});  // and here they do not
}

TEST_CASE_TEMPLATE("queries may be a span of the positions", T, float, double, half, bfloat16) {
  Machine machine(2);
  span_matches<T>(machine, {{2, 5, 2, 8}, 1, 3, 8});
  span_matches<T>(machine, {{1, 70, 4, 16}, 2, 61, 131});
  span_matches<T>(machine, {{1, 66, 2, 16}, 1, 1001, 1070});  // several tiles of keys, the last three masked
  span_matches<T>(machine, {{2, 40, 4, 8}, 4, 0, 200});       // and a fully masked block of keys
}

TEST_CASE("attention runs what the context asks for and says what ran") {
  std::int64_t const t = 9, c = 8;
  Array<float> qkv = reference::random<float>({1, t, 3 * c}, 1), out({1, t, c}), lse({1, 1, t});
  std::vector<std::byte> workspace(Context<Cpu>::workspace_bytes(1));
  auto const ran = [&](AttentionKind asked) {
    Context<Cpu> context(1, workspace, nullptr, {.attention = asked});
    CHECK(context.attention_ran() == AttentionKind::automatic);
    ops::attention_forward(context, qkv.view(), 1, out.view(), lse.view());
    return context.attention_ran();
  };
  CHECK(ran(AttentionKind::automatic) == AttentionKind::fused);
  CHECK(ran(AttentionKind::fused) == AttentionKind::fused);
  CHECK(ran(AttentionKind::reference) == AttentionKind::reference);
  CHECK_THROWS_WITH_AS(
      ran(AttentionKind::cudnn),
      "attention cudnn needs a GPU and a program that links tessera::cudnn; use auto, fused or "
      "reference",
      Error);
}
