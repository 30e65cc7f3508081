// SPDX-License-Identifier: Apache-2.0
// Provides sums over all elements of a tensor: the sum, the sum of squares and the L2 norm. The order of the
// additions depends only on the number of elements. So the result has the same bits on any number of threads,
// with every instruction set, on the CPU and on a GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/elementwise.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Returns the number of partial sums that sum, sum_of_squares and norm need for n elements: one for each
/// block of 4096 elements.
constexpr std::int64_t partial_sums(std::int64_t elements) { return (elements + row_block - 1) / row_block; }

namespace detail {

template <class T>
using PartialOf = compute_t<std::remove_const_t<T>>;

template <class P, class T>
void expect_sum(char const* name, Tensor<T, P> const& values, Out<PartialOf<T>, P> const& partials,
                Out<double, P> const& result) {
  expect(result && result.shape().elements() == 1 &&
             partials.elements() == partial_sums(values.shape().elements()),
         name, "values (n), partials (ceil(n/4096)), result (1)", values.shape(), partials.shape(),
         result.shape());
}

/// Enqueues a sum of squares and, if `root` is true, its square root.
template <class T, class P>
void add_squares(char const* name, bool root, Context<P>& context, Tensor<T, P> const& values,
                 Out<PartialOf<T>, P> const& partials, Out<double, P> const& result) {
  expect_sum<P>(name, values, partials, result);
  Operation const operation{name, 2.0 * static_cast<double>(values.shape().elements()),
                            bytes_of(values, partials, partials, result)};
  context.enqueue(operation, [&] {
    backend::Elementwise<P>::norm_partials(context, In<std::remove_const_t<T>, P>(values), partials,
                                           BadNote{});
    backend::Elementwise<P>::add_partials(context, In<PartialOf<T>, P>(partials), result, root);
  });
}

}  // namespace detail

/// Sets result[0] to the sum of all values. `values` is (n), `partials` is (partial_sums(n)) and is
/// overwritten, `result` is (1). Blocks of 4096 values are summed in compute_t<T>, in 16 running sums each.
/// The blocks are then added in double. Needs n FLOPs and reads each value once. The sum of no values is 0.
template <class T, class P>
void sum(Context<P>& context, Tensor<T, P> values, Out<detail::PartialOf<T>, P> partials,
         Out<double, P> result) {
  detail::expect_sum<P>("sum", values, partials, result);
  Operation const operation{"sum", static_cast<double>(values.shape().elements()),
                            detail::bytes_of(values, partials, partials, result)};
  context.enqueue(operation, [&] {
    backend::Elementwise<P>::sum_partials(context, In<std::remove_const_t<T>, P>(values), partials);
    backend::Elementwise<P>::add_partials(context, In<detail::PartialOf<T>, P>(partials), result, false);
  });
}

/// Sets result[0] to the sum of the squares of all values. The shapes and the order are the same as for
/// `sum`. Each square is added with one fma. Needs 2n FLOPs and reads each value once. A trainer computes the
/// norm of its gradient with the same sums.
template <class T, class P>
void sum_of_squares(Context<P>& context, Tensor<T, P> values, Out<detail::PartialOf<T>, P> partials,
                    Out<double, P> result) {
  detail::add_squares("sum_of_squares", false, context, values, partials, result);
}

/// Sets result[0] to the L2 norm of all values: the square root of sum_of_squares.
template <class T, class P>
void norm(Context<P>& context, Tensor<T, P> values, Out<detail::PartialOf<T>, P> partials,
          Out<double, P> result) {
  detail::add_squares("norm", true, context, values, partials, result);
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
