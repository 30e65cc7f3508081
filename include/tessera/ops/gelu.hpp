// SPDX-License-Identifier: Apache-2.0
// GELU alone, for recomputation.
#pragma once

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera::inline v0 {
namespace ops {

/// y = gelu(pre) in the tanh form: the same bits as linear_gelu_forward's y. Any shape; y may be pre.
template <class T, class P>
void gelu_forward(Context<P>& context, In<T, P> pre, Tensor<T, P> y) {
  detail::expect(pre.shape().elements() == y.shape().elements(), "gelu_forward", "pre and y of one shape",
                 pre.shape(), y.shape());
  Operation const operation{"gelu_forward", 8.0 * static_cast<double>(y.shape().elements()),
                            detail::bytes_of(pre, y)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::gelu_forward(context, pre, y); });
}

}  // namespace ops
}  // namespace tessera::inline v0
