// SPDX-License-Identifier: Apache-2.0
// Provides sums of squares by block, and the search for a value that is not finite.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// partials[i] = the sum of squares of values [4096 i, 4096 (i+1)), in compute_t of their type, in the same
/// order on every instruction set. partials (ceil(n/4096)). A value that is not finite makes its partial not
/// finite. As `note` says, notes the first such value, or the first value of a partial that overflowed.
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

/// Computes the partials of every row in one operation: values of T, partials of Q, one partial per block.
/// Rows may be empty.
template <class T, class Q, class P>
void norm_partials(Context<P>& context, Rows<NormRow> const& rows) {
  double const n = static_cast<double>(rows.elements);
  Operation const operation{"norm_partials", 2.0 * n,
                            n * sizeof(T) + static_cast<double>(rows.blocks) * sizeof(Q)};
  context.enqueue(operation, [&] { backend::Elementwise<P>::template norm_partials<T, Q>(context, rows); });
}

/// *index = the first element that is infinite or NaN, or -1.
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
