// SPDX-License-Identifier: Apache-2.0
// Provides operations that convert values between number formats, fill arrays and copy them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Converts `from` to the format of `to`, rounded to nearest even. `from` and `to` have the same number of
/// elements. They may be the same memory only if both formats have the same size.
template <class S, class D, class P>
void convert(Context<P>& context, Tensor<S, P> from, Tensor<D, P> to) {
  using V = std::remove_const_t<S>;
  detail::expect(from.shape().elements() == to.shape().elements(), "convert",
                 "source and target with the same number of elements", from.shape(), to.shape());
  Operation const operation{"convert", 0.0, detail::bytes_of(from, to)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::convert(context, In<V, P>(from), to); });
}

/// Sets every element of `to` to `value`, converted to T.
template <class T, class P>
void fill(Context<P>& context, Tensor<T, P> to, std::type_identity_t<compute_t<T>> value) {
  Operation const operation{"fill", 0.0, detail::bytes_of(to)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::fill(context, to, value); });
}

/// Copies `from` to `to`. The two tensors must be the same tensor or must not overlap.
template <class T, class P>
void copy(Context<P>& context, In<T, P> from, Tensor<T, P> to) {
  detail::expect(from.shape().elements() == to.shape().elements(), "copy",
                 "source and target with the same number of elements", from.shape(), to.shape());
  Operation const operation{"copy", 0.0, detail::bytes_of(from, to)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::copy(context, from, to); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
