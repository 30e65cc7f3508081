// SPDX-License-Identifier: Apache-2.0
// Provides activation functions as a separate operation. A recomputation in the backward pass uses it.
#pragma once

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes y = activation(pre). GELU has its tanh form. The result has the same bits as the y that `linear`
/// computes with this activation. Any shape; y may be the same tensor as pre.
template <class T, class P>
void activate(Context<P>& context, Activation activation, In<T, P> pre, Tensor<T, P> y) {
  detail::expect_known("activate", activation);
  detail::expect(pre.shape().elements() == y.shape().elements(), "activate", "pre and y of the same shape",
                 pre.shape(), y.shape());
  Operation const operation{"activate", 8.0 * static_cast<double>(y.shape().elements()),
                            detail::bytes_of(pre, y)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::activate(context, activation, pre, y); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
