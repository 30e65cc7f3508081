// SPDX-License-Identifier: Apache-2.0
// Provides sums of squares over blocks of 4096 values, and the search for a value that is not finite.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes partials[i] = the sum of squares of values [4096 i, 4096 (i+1)), in compute_t<T>. The order of
/// the additions is the same on every instruction set. values is (n), partials is (ceil(n/4096)). A value
/// that is not finite makes its sum not finite. The operation records the position of the first such value in
/// `note`. If a sum of finite values overflows, the operation records the position of the first value of this
/// sum.
template <class T, class Q, class P>
void norm_partials(Context<P>& context, Tensor<T, P> values, Tensor<Q, P> partials,
                   BadNote const& note = {}) {
  using V = std::remove_const_t<T>;
  std::int64_t const n = values.shape().elements();
  detail::expect(partials.shape().elements() == (n + 4095) / 4096, "norm_partials",
                 "values (n), partials (ceil(n/4096))", values.shape(), partials.shape());
  Operation const operation{"norm_partials", 2.0 * static_cast<double>(n),
                            detail::bytes_of(values, partials)};
  context.enqueue(operation,
                  [&] { backend::Elementwise<P>::norm_partials(context, In<V, P>(values), partials, note); });
}

/// Computes the sums of squares of several arrays in one operation. Each row of the table `rows` describes
/// one array: the address of its values (type T), and the address that receives its sums (type Q), one sum
/// per block of 4096 values. An array may be empty.
template <class T, class Q, class P>
void norm_partials(Context<P>& context, Rows<NormRow> const& rows) {
  double const n = static_cast<double>(rows.elements);
  Operation const operation{"norm_partials", 2.0 * n,
                            n * sizeof(T) + static_cast<double>(rows.blocks) * sizeof(Q)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::template norm_partials<T, Q>(context, rows); });
}

/// Sets *index to the position of the first element that is infinite or NaN, or to -1 if there is none.
template <class T, class P>
void first_non_finite(Context<P>& context, Tensor<T, P> values, std::int64_t* index) {
  using V = std::remove_const_t<T>;
  Operation const operation{"first_non_finite", 0.0, detail::bytes_of(values)};
  context.enqueue(operation,
                  [&] { backend::Elementwise<P>::first_non_finite(context, In<V, P>(values), index); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
