// SPDX-License-Identifier: Apache-2.0
// Provides a linear layer and its gradients. Bias, residual and activation are fused into the matrix product,
// so they need no further pass over memory.
//
// Matrices are row-major. All dimensions but the last are rows: x (B,T,K) is a matrix (M,K) with M = B*T.
// Values are stored in T. Products, biases, residuals and activations are computed in compute_t<T>, and a
// result is rounded to T once. Each element of a product is a sum over k in a fixed order. So the element
// depends only on its row of x, its column of w and the shapes. Outputs are overwritten. They must not
// overlap inputs, except that `residual` may be the output itself.
//
// The weight w is (K,N), or (N,K) if `transposed`. On a GPU, 16-bit products are several times slower if an
// extent of w is not a multiple of 8.
#pragma once

#include <type_traits>

#include "tessera/backend/cpu/linear.hpp"
#include "tessera/config.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

namespace detail {

[[noreturn]] inline void refuse_format(char const* name, DType format, bool scaled) {
  throw_error(ErrorKind::unsupported, {name, ": weights in ", name_of(format), scaled ? " with scales" : "",
                                       " are not part of this build; give weights of the type of x"});
}

/// Throws Error(unsupported) for weights in another format than T or with scales (quantized weights).
template <class T, class P>
void expect_plain(char const* name, Operand<T, P> const& w) {
  if (w.format != dtype_of<T> || w.scales) refuse_format(name, w.format, bool(w.scales));
}

/// Whether `partials` is empty or has the size for sums over blocks of rows of a matrix of shape `of`.
template <class S, class P>
bool are_partials(Tensor<S, P> const& partials, Shape const& of) {
  return !partials || partials.shape().elements() == linear_partial_rows(of.rows()) * of.columns();
}

/// Throws Error(usage) unless x is (M,K), w is (K,N) or, if transposed, (N,K), and y is (M,N). Also throws if
/// `others`, the result of the caller's further checks, is false. `shapes` are further shapes for the
/// message.
template <class... Shapes>
void expect_linear(char const* name, Shape const& x, Shape const& w, Shape const& y, bool transposed,
                   bool others, Shapes const&... shapes) {
  expect(others && x.rows() == y.rows() && x.columns() == (transposed ? w.columns() : w.rows()) &&
             y.columns() == (transposed ? w.rows() : w.columns()),
         name,
         transposed ? "x (M,K), w (N,K), y (M,N), bias (N); the residual and the input of the activation "
                      "have the shape of y"
                    : "x (M,K), w (K,N), y (M,N), bias (N); the residual and the input of the activation "
                      "have the shape of y",
         x, w, y, shapes...);
}

}  // namespace detail

/// Computes y = scale x w + bias + residual. With an activation, this sum is stored in with.pre, and y is the
/// activation of the stored value. Needs 2MNK FLOPs.
template <class T, class P>
void linear(Context<P>& context, In<T, P> x, std::type_identity_t<Operand<T, P>> const& w, Tensor<T, P> y,
            std::type_identity_t<LinearOptions<T, P>> const& with = {}) {
  detail::expect_plain("linear", w);
  detail::expect_known("linear", with.activation);
  bool const activates = with.activation != Activation::none;
  detail::expect_linear("linear", x.shape(), w.values.shape(), y.shape(), with.transposed,
                        (!with.bias || detail::is_vector(with.bias.shape(), y.shape().columns())) &&
                            (!with.residual || with.residual.shape().elements() == y.shape().elements()) &&
                            (!activates || with.pre.shape().elements() == y.shape().elements()),
                        with.bias.shape(), with.residual.shape(), with.pre.shape());
  Operation const operation{"linear",
                            detail::multiply_adds(x.shape().rows(), y.shape().columns(), x.shape().columns()),
                            detail::bytes_of(x, w.values, with.bias, with.residual, with.pre, y)};
  context.enqueue(operation, [&] { backend::Linear<P>::forward(context, x, w, y, with); });
}

/// Computes dx = scale dy w^T + residual. If with.activation produced x, dx is also multiplied by the
/// derivative of the activation at with.pre. dy is (M,N), dx is (M,K). An empty dx is not computed. If
/// with.partials is not empty, a GPU writes to it the sums of the stored dx over blocks of rows; the CPU
/// leaves it unchanged.
template <class T, class P>
void linear_backward_input(Context<P>& context, In<T, P> dy, std::type_identity_t<Operand<T, P>> const& w,
                           Tensor<T, P> dx, std::type_identity_t<LinearInputOptions<T, P>> const& with = {}) {
  if (!dx) return;
  bool const activated = with.activation != Activation::none;
  detail::expect_plain("linear_backward_input", w);
  detail::expect_known("linear_backward_input", with.activation);
  detail::expect_linear("linear_backward_input", dx.shape(), w.values.shape(), dy.shape(), with.transposed,
                        (!activated || with.pre.shape().elements() == dx.shape().elements()) &&
                            (!with.residual || with.residual.shape().elements() == dx.shape().elements()) &&
                            detail::are_partials(with.partials, dx.shape()),
                        with.residual.shape(), with.pre.shape(), with.partials.shape());
  Operation const operation{
      "linear_backward_input",
      detail::multiply_adds(dy.shape().rows(), dx.shape().columns(), dy.shape().columns()),
      detail::bytes_of(dy, w.values, with.residual, with.pre, dx)};
  context.enqueue(operation, [&] { backend::Linear<P>::backward_input(context, dy, w, dx, with); });
}

/// Computes dw = x^T dy, with the shape of w, and dbias = the sum of dy over rows. x is (M,K), dy is (M,N).
/// The type G of dw is T, or compute_t<T> if another gradient will be added to dw. If with.partials is not
/// empty, it has sums of dy over blocks of rows. A device may compute dbias from these sums instead of from
/// dy. Sums over rows are in the order of the rows. An empty dw or dbias is not computed. x is read only for
/// dw.
template <class T, class G, class P>
void linear_backward_weight(
    Context<P>& context, Tensor<T, P> x, In<std::remove_const_t<T>, P> dy, Tensor<G, P> dw,
    std::type_identity_t<LinearWeightOptions<std::remove_const_t<T>, P>> const& with = {}) {
  using V = std::remove_const_t<T>;
  static_assert(std::is_same_v<G, V> || std::is_same_v<G, compute_t<V>>,
                "tessera: a weight gradient must have the type of the operands or the type of their sums.");
  if (!dw && !with.dbias) return;
  Shape const read = dw ? x.shape() : Shape{dy.shape().rows(), 1};
  std::int64_t const in = read.columns(), out = dy.shape().columns();
  Shape const unwanted = with.transposed ? Shape{out, in} : Shape{in, out};
  detail::expect_linear("linear_backward_weight", read, dw ? dw.shape() : unwanted, dy.shape(),
                        with.transposed,
                        (!with.dbias || detail::is_vector(with.dbias.shape(), out)) &&
                            (!with.partials || with.partials.shape().columns() == out),
                        with.dbias.shape(), with.partials.shape());
  Operation const operation{"linear_backward_weight", dw ? detail::multiply_adds(in, out, read.rows()) : 0.0,
                            detail::bytes_of(dy, dw, with.dbias) + (dw ? detail::bytes_of(x) : 0.0)};
  context.enqueue(operation,
                  [&] { backend::Linear<P>::backward_weight(context, In<V, P>(x), dy, dw, with); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
