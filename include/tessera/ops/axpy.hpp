// SPDX-License-Identifier: Apache-2.0
// Provides the operation axpy, which adds a multiple of one array to another, for example a gradient to
// weights.
#pragma once

#include <type_traits>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes y = a x + y in compute_t<T>, with one fma per element, and rounds the result to T. So the CPU and
/// the GPU give the same bits. Any shape; x may be y. Needs 2n FLOPs for n elements, reads x and y, and
/// writes y.
template <class T, class P>
void axpy(Context<P>& context, std::type_identity_t<compute_t<T>> a, In<T, P> x, Tensor<T, P> y) {
  detail::expect(x.shape().elements() == y.shape().elements(), "axpy",
                 "x and y with the same number of elements", x.shape(), y.shape());
  Operation const operation{"axpy", 2.0 * static_cast<double>(y.shape().elements()),
                            detail::bytes_of(x, y, y)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::axpy(context, a, x, y); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
