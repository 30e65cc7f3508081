// SPDX-License-Identifier: Apache-2.0
// Provides SwiGLU, the gated activation silu(gate) * up (arXiv 2002.05202).
#pragma once

#include "tessera/backend/cpu/swiglu.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes y = silu(gate) * up with silu(x) = x / (1 + e^-x). The result is rounded once. All tensors have
/// the same shape. y may be the same tensor as gate or up.
template <class T, class P>
void swiglu_forward(Context<P>& context, In<T, P> gate, In<T, P> up, Tensor<T, P> y) {
  std::int64_t const n = y.shape().elements();
  detail::expect(gate.shape().elements() == n && up.shape().elements() == n, "swiglu_forward",
                 "gate, up and y of the same shape", gate.shape(), up.shape(), y.shape());
  Operation const operation{"swiglu_forward", 7.0 * static_cast<double>(n), detail::bytes_of(gate, up, y)};
  context.enqueue(operation, [&] { backend::SwiGlu<P>::forward(context, gate, up, y); });
}

/// Computes dgate = dy up silu'(gate) and dup = dy silu(gate). All tensors have the same shape. dgate and dup
/// may each be the same tensor as gate, up or dy.
template <class T, class P>
void swiglu_backward(Context<P>& context, In<T, P> gate, In<T, P> up, In<T, P> dy, Tensor<T, P> dgate,
                     Out<T, P> dup) {
  std::int64_t const n = dgate.shape().elements();
  detail::expect(gate.shape().elements() == n && up.shape().elements() == n && dy.shape().elements() == n &&
                     dup.shape().elements() == n,
                 "swiglu_backward", "gate, up, dy, dgate and dup of the same shape", gate.shape(), up.shape(),
                 dy.shape(), dgate.shape(), dup.shape());
  Operation const operation{"swiglu_backward", 12.0 * static_cast<double>(n),
                            detail::bytes_of(gate, up, dy, dgate, dup)};
  context.enqueue(operation, [&] { backend::SwiGlu<P>::backward(context, gate, up, dy, dgate, dup); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
