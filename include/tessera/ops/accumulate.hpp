// SPDX-License-Identifier: Apache-2.0
// Provides the operation accumulate, which adds micro-batch gradients to an accumulator, in order.
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Adds `count` arrays c_0, c_1, ... to the accumulator (n), elementwise in this order, in compute_t<T>. If
/// `first` is true, the accumulator starts as c_0 and its old contents are ignored. Array c_w starts at
/// pieces + w*stride and has n elements. The accumulator may be the memory of c_0 if the types are the same.
/// If `partials` (ceil(n/4096)) is not empty, the operation also does the work of norm_partials on the sum:
/// it writes the sums of squares to `partials` and records a non-finite value in `note`. The CPU computes
/// these sums of squares while the values are in the cache.
template <class T, class P>
void accumulate(Context<P>& context, Tensor<compute_t<T>, P> accumulator, T const* pieces, int count,
                std::int64_t stride, bool first, Tensor<float, P> partials = {}, BadNote const& note = {}) {
  double const n = static_cast<double>(accumulator.shape().elements());
  detail::expect(!partials.data() || partials.shape().elements() == (accumulator.elements() + 4095) / 4096,
                 "accumulate", "accumulator (n), partials (ceil(n/4096))", accumulator.shape(),
                 partials.shape());
  Operation const operation{"accumulate", n * (count - (first ? 1 : 0) + (partials.data() ? 2 : 0)),
                            n * (static_cast<double>(sizeof(T)) * count +
                                 static_cast<double>(sizeof(compute_t<T>)) * (first ? 1 : 2))};
  context.enqueue(operation, [&] {
    backend::Elementwise<P>::accumulate(context, accumulator, pieces, count, stride, first, partials, note);
  });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
