// SPDX-License-Identifier: Apache-2.0
// Provides the common code of the attention tests: inputs, a function that calls attention for many memory
// layouts, and a scalar implementation in double as reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/attention.hpp"

#include "operators/place.hpp"

namespace test {

using reference::Array;
using reference::poison;
using reference::same_bits;

struct AttentionSize {
  std::int64_t samples, queries;
  int heads;
  std::int64_t head;
  std::int64_t group = 1;  // number of query heads that share one key head
  std::int64_t first = 0;  // position of the first query in the sequence
  std::int64_t keys = 0;   // number of keys; 0 means one key for each query

  std::int64_t channels() const { return heads * head; }
  std::int64_t key_channels() const { return channels() / group; }
  std::int64_t key_count() const { return keys ? keys : queries; }
  bool self_attention() const { return group == 1 && first == 0 && key_count() == queries; }
};

inline std::string text(AttentionSize const& size) {
  std::string result;
  for (std::int64_t const number : {size.samples, size.queries, std::int64_t{size.heads}, size.head,
                                    size.group, size.first, size.key_count()})
    result += std::to_string(number) + " ";
  return result;
}

template <class T>
struct AttentionInput {
  explicit AttentionInput(AttentionSize const& of, double range = 1.5)
      : size(of),
        q(reference::random<T>({of.samples, of.queries, of.channels()}, 1, range)),
        k(reference::random<T>({of.samples, of.key_count(), of.key_channels()}, 2, range)),
        v(reference::random<T>(k.shape, 3, range)),
        dout(reference::random<T>(q.shape, 4)) {}
  AttentionSize size;
  Array<T> q, k, v, dout;
};

template <class T>
struct AttentionOutput {
  Array<T> out, dq, dk, dv;
  Array<compute_t<T>> logsumexp;
  Array<compute_t<T>> partials;  // not compared by ==

  bool operator==(AttentionOutput const& b) const {
    return out == b.out && dq == b.dq && dk == b.dk && dv == b.dv && logsumexp == b.logsumexp;
  }
};

struct AttentionVariant {
  bool packed = false;      // q, k and v are columns of one tensor; if false, only k and v share a tensor
  bool sums = false;        // also computes sums over blocks of rows of the packed gradient
  std::int64_t gap = 0;     // unused columns before q and before v; if not 0, v comes before k
  std::int64_t offset = 0;  // every operand starts this many elements after an aligned address
};

/// Runs forward and backward of attention and returns their results. The output buffers contain NaN before
/// the calls, so a value that is not written is detected.
template <class T, class P>
AttentionOutput<T> attention(Context<P>& context, AttentionInput<T> const& in,
                             AttentionVariant const& variant = {}) {
  using S = compute_t<T>;
  using Columns = ops::Columns<T, Place>;
  AttentionSize const& size = in.size;
  std::int64_t const c = size.channels(), kc = size.key_channels(), gap = variant.gap,
                     offset = variant.offset;
  // `q_at`, `k_at` and `v_at` are the indices of the first column of the queries, the keys and the values.
  std::int64_t const q_at = gap,
                     k_at = variant.packed ? c
                            : gap          ? gap + kc
                                           : 0,
                     v_at = variant.packed ? 2 * c
                            : gap          ? gap
                                           : kc;
  Shape const rows{size.samples, size.queries, variant.packed ? 3 * c : gap + c},
      key_rows{size.samples, size.key_count(), variant.packed ? 3 * c : gap + 2 * kc};
  auto const columns = [](Array<T> const& from, auto const& visit) {
    std::int64_t const n = from.shape.columns();
    for (std::int64_t i = 0; i < from.shape.elements(); ++i) visit(i / n, i % n, i);
  };
  auto const insert = [&](Array<T> const& values, Array<T>& to, std::int64_t at) {
    columns(values, [&](std::int64_t row, std::int64_t column, std::int64_t i) {
      to.at(row * to.shape.columns() + at + column) = values.values[static_cast<std::size_t>(i)];
    });
  };
  auto const extract = [&](Array<T> const& from, std::int64_t at, Array<T> like) {
    columns(like, [&](std::int64_t row, std::int64_t column, std::int64_t i) {
      like.at(i) = from.values[static_cast<std::size_t>(row * from.shape.columns() + at + column)];
    });
    return like;
  };
  Array<T> of_queries = poison<T>(rows), of_keys = poison<T>(key_rows);
  Array<T>& keys_to = variant.packed ? of_queries : of_keys;
  insert(in.q, of_queries, q_at);
  insert(in.k, keys_to, k_at);
  insert(in.v, keys_to, v_at);
  OnPlace<T> q(of_queries, offset), kv(of_keys, offset), dq(poison<T>(rows), offset),
      dkv(poison<T>(key_rows), offset), dout(in.dout, offset), out(poison<T>(in.q.shape), offset);
  OnPlace<S> logsumexp(poison<S>({size.samples, size.heads, size.queries})),
      partials(poison<S>({ops::attention_partial_rows(size.samples, size.queries), 3 * c}));
  if (variant.packed) {
    ops::attention_forward(context, q.view(), size.heads, out.view(), logsumexp.view());
    ops::attention_backward(context, dout.view(), q.view(), out.view(), logsumexp.view(), size.heads,
                            dq.view(), variant.sums ? partials.view() : Tensor<S, Place>());
  } else {
    ops::HeadColumns<T, Place> const x(Columns(q.view(), q_at, c), Columns(kv.view(), k_at, kc),
                                       Columns(kv.view(), v_at, kc)),
        dx(Columns(dq.view(), q_at, c), Columns(dkv.view(), k_at, kc), Columns(dkv.view(), v_at, kc));
    ops::attention_forward(context, x, size.heads, out.view(), logsumexp.view(), size.first);
    ops::attention_backward(context, dout.view(), x, out.view(), logsumexp.view(), size.heads, dx,
                            size.first);
  }
  if constexpr (std::is_same_v<P, Cuda>) {
    context.synchronize();
    context.raise();
  }
  Array<T> const gradient = dq.back(), key_gradient = variant.packed ? gradient : dkv.back();
  if (variant.sums) CHECK(reference::sum_error(partials.back(), gradient) <= 16);
  return {out.back(),
          extract(gradient, q_at, in.q),
          extract(key_gradient, k_at, in.k),
          extract(key_gradient, v_at, in.v),
          logsumexp.back(),
          partials.back()};
}

struct AttentionDefinition {
  double group;
  std::vector<double> out, dq, dk, dv, logsumexp;
};

/// Returns the results of forward and backward, computed in double from the definition of attention. Each
/// query of each head is computed separately.
template <class T>
AttentionDefinition attention_definition(AttentionInput<T> const& in) {
  auto const wide = [](Array<T> const& from) {
    return std::vector<double>(from.values.begin(), from.values.end());
  };
  AttentionSize const& size = in.size;
  std::int64_t const head = size.head, c = size.channels(), kc = size.key_channels();
  std::vector<double> const q = wide(in.q), k = wide(in.k), v = wide(in.v), dout = wide(in.dout);
  AttentionDefinition result{double(size.group), q, q, k, k, {}};
  for (auto* const sums : {&result.out, &result.dq, &result.dk, &result.dv})
    std::fill(sums->begin(), sums->end(), 0.0);
  double const scale = 1 / std::sqrt(double(head));
  auto const dot = [&](double const* x, double const* y) { return std::inner_product(x, x + head, y, 0.0); };
  auto const add = [&](double factor, double const* of, double* to) {
    for (std::int64_t d = 0; d < head; ++d) to[d] += factor * of[d];
  };
  for (std::int64_t b = 0; b < size.samples; ++b)
    for (std::int64_t h = 0; h < size.heads; ++h)
      for (std::int64_t i = 0; i < size.queries; ++i) {
        std::int64_t const at = (b * size.queries + i) * c + h * head, visible = size.first + i + 1;
        auto const key = [&](std::int64_t j) {
          return (b * size.key_count() + j) * kc + h / size.group * head;
        };
        std::vector<double> p, dp;
        for (std::int64_t j = 0; j < visible; ++j) p.push_back(scale * dot(q.data() + at, k.data() + key(j)));
        double const top = *std::max_element(p.begin(), p.end());
        double total = 0, mean = 0;
        for (double& score : p) total += score = std::exp(score - top);
        result.logsumexp.push_back(top + std::log(total));
        for (double& probability : p) {
          std::int64_t const j = key(static_cast<std::int64_t>(dp.size()));
          probability /= total;
          dp.push_back(dot(dout.data() + at, v.data() + j));
          mean += probability * dp.back();
          add(probability, v.data() + j, result.out.data() + at);
          add(probability, dout.data() + at, result.dv.data() + j);
        }
        for (std::size_t j = 0; j < p.size(); ++j) {
          double const slope = scale * p[j] * (dp[j] - mean);
          std::int64_t const from = key(static_cast<std::int64_t>(j));
          add(slope, k.data() + from, result.dq.data() + at);
          add(slope, q.data() + at, result.dk.data() + from);
        }
      }
  return result;
}

/// Checks that `got` is near `want`, the results of the definition. The error of a value is |got - want| /
/// (floor + |want|). `limit` is the allowed error of the forward results.
template <class T>
void check_near(AttentionOutput<T> const& got, AttentionDefinition const& want,
                double limit = reference::tolerance<T>(), double floor = 1.0) {
  using S = compute_t<T>;
  CHECK(reference::error(got.out, want.out, floor) < limit);
  CHECK(reference::error(got.logsumexp, want.logsumexp, floor) <
        (std::is_same_v<S, T> ? limit : reference::tolerance<S>()));
  // Backward uses the output of forward, which is rounded. The rounding errors of backward also add up over
  // the keys. The limits for the gradients are therefore larger than `limit`.
  CHECK(reference::error(got.dq, want.dq, 2 * floor) < 2 * limit);
  CHECK(reference::error(got.dk, want.dk, 2 * floor * want.group) < 2 * limit);
  CHECK(reference::error(got.dv, want.dv, 2 * floor * want.group) < 2 * limit);
}

}  // namespace test
