// SPDX-License-Identifier: Apache-2.0
// Linear layers: y = x w + b and its gradients, with the neighbours that share the product's pass over
// memory.
//
// Matrices are row-major; leading dims are rows, so x (B,T,K) is x (M,K) with M = B*T. Storage is T, products
// and epilogues are in compute_t<T>, and a result is rounded to T once. Each element is a sum over k in a
// fixed order, so it depends on nothing but its row, its column and the shapes. Outputs are overwritten and
// must not overlap inputs, except that `residual` may be y.
#pragma once

#include <type_traits>

#include "tessera/backend/cpu/linear.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera::inline v0 {
namespace ops {

namespace detail {

/// x (M,K), w (K,N), y (M,N), bias (N) or empty.
inline void expect_linear(char const* name, Shape const& x, Shape const& w, Shape const& y, bool has_bias,
                          Shape const& bias) {
  expect(x.rows() == y.rows() && x.columns() == w.rows() && w.columns() == y.columns() &&
             (!has_bias || is_vector(bias, y.columns())),
         name, "x (M,K), w (K,N), bias (N) or none, y (M,N)", x, w, bias, y);
}

}  // namespace detail

/// y = x w + bias. x (M,K), w (K,N), bias (N) or empty, y (M,N). 2MNK operations.
template <class T, class P>
void linear_forward(Context<P>& context, In<T, P> x, In<T, P> w, In<T, P> bias, Tensor<T, P> y) {
  detail::expect_linear("linear_forward", x.shape(), w.shape(), y.shape(), bool(bias), bias.shape());
  Operation const operation{"linear_forward",
                            detail::multiply_adds(x.shape().rows(), y.shape().columns(), x.shape().columns()),
                            detail::bytes_of(x, w, bias, y)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] { cpu::linear_forward<T>(context, x, w, bias, y); });
  else
    cuda_linear_forward(context, operation, x, w, bias, y);
}

/// pre = x w + bias, y = gelu(pre) of `pre` as stored. Shapes as linear_forward; pre (M,N).
template <class T, class P>
void linear_gelu_forward(Context<P>& context, In<T, P> x, In<T, P> w, In<T, P> bias, Out<T, P> pre,
                         Tensor<T, P> y) {
  detail::expect_linear("linear_gelu_forward", x.shape(), w.shape(), y.shape(), bool(bias), bias.shape());
  detail::expect(pre.shape().elements() == y.shape().elements(), "linear_gelu_forward",
                 "pre and y of one shape", pre.shape(), y.shape());
  Operation const operation{"linear_gelu_forward",
                            detail::multiply_adds(x.shape().rows(), y.shape().columns(), x.shape().columns()),
                            detail::bytes_of(x, w, bias, pre, y)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] { cpu::linear_gelu_forward<T>(context, x, w, bias, pre, y); });
  else
    cuda_linear_gelu_forward(context, operation, x, w, bias, pre, y);
}

/// y = x w + bias + residual, residual (M,N). `residual` may be y.
template <class T, class P>
void linear_residual_forward(Context<P>& context, In<T, P> x, In<T, P> w, In<T, P> bias, In<T, P> residual,
                             Tensor<T, P> y) {
  detail::expect_linear("linear_residual_forward", x.shape(), w.shape(), y.shape(), bool(bias), bias.shape());
  detail::expect(residual.shape().elements() == y.shape().elements(), "linear_residual_forward",
                 "residual and y of one shape", residual.shape(), y.shape());
  Operation const operation{"linear_residual_forward",
                            detail::multiply_adds(x.shape().rows(), y.shape().columns(), x.shape().columns()),
                            detail::bytes_of(x, w, bias, residual, y)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] { cpu::linear_residual_forward<T>(context, x, w, bias, residual, y); });
  else
    cuda_linear_residual_forward(context, operation, x, w, bias, residual, y);
}

/// y = x w^T, x (M,K), w (N,K), y (M,N): the head of a model whose w is the token embedding. On a GPU 16-bit
/// products run several times slower where N is no multiple of 8.
template <class T, class P>
void linear_transposed_forward(Context<P>& context, In<T, P> x, In<T, P> w, Tensor<T, P> y) {
  Shape const &xs = x.shape(), &ws = w.shape(), &ys = y.shape();
  detail::expect(xs.rows() == ys.rows() && xs.columns() == ws.columns() && ws.rows() == ys.columns(),
                 "linear_transposed_forward", "x (M,K), w (N,K), y (M,N)", xs, ws, ys);
  Operation const operation{"linear_transposed_forward",
                            detail::multiply_adds(xs.rows(), ws.rows(), xs.columns()),
                            detail::bytes_of(x, w, y)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] {
      cpu::plain_product<T>(context, {x.data(), xs.columns()}, {w.data(), xs.columns(), true}, ws.rows(),
                            xs.columns(), y);
    });
  else
    cuda_linear_transposed_forward(context, operation, x, w, y);
}

/// dx = dy w^T, dy (M,N), w (K,N), dx (M,K).
template <class T, class P>
void linear_backward_input(Context<P>& context, In<T, P> dy, In<T, P> w, Tensor<T, P> dx) {
  Shape const &dys = dy.shape(), &ws = w.shape(), &dxs = dx.shape();
  detail::expect(dys.rows() == dxs.rows() && dys.columns() == ws.columns() && ws.rows() == dxs.columns(),
                 "linear_backward_input", "dy (M,N), w (K,N), dx (M,K)", dys, ws, dxs);
  Operation const operation{"linear_backward_input",
                            detail::multiply_adds(dys.rows(), dxs.columns(), dys.columns()),
                            detail::bytes_of(dy, w, dx)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] {
      cpu::plain_product<T>(context, {dy.data(), dys.columns()}, {w.data(), dys.columns(), true},
                            dxs.columns(), dys.columns(), dx);
    });
  else
    cuda_linear_backward_input(context, operation, dy, w, dx);
}

/// dpre = (dy w^T) * gelu'(pre), dy (M,N), w (K,N), pre and dpre (M,K): through the layer after a GELU.
template <class T, class P>
void linear_gelu_backward_input(Context<P>& context, In<T, P> dy, In<T, P> w, In<T, P> pre,
                                Tensor<T, P> dpre) {
  Shape const &dys = dy.shape(), &ws = w.shape(), &dxs = dpre.shape();
  detail::expect(dys.rows() == dxs.rows() && dys.columns() == ws.columns() && ws.rows() == dxs.columns() &&
                     pre.shape().elements() == dxs.elements(),
                 "linear_gelu_backward_input", "dy (M,N), w (K,N), pre (M,K), dpre (M,K)", dys, ws,
                 pre.shape(), dxs);
  Operation const operation{"linear_gelu_backward_input",
                            detail::multiply_adds(dys.rows(), dxs.columns(), dys.columns()),
                            detail::bytes_of(dy, w, pre, dpre)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] { cpu::linear_gelu_backward_input<T>(context, dy, w, pre, dpre); });
  else
    cuda_linear_gelu_backward_input(context, operation, dy, w, pre, dpre);
}

/// dx = dy w, dy (M,N), w (N,K), dx (M,K): through linear_transposed_forward.
template <class T, class P>
void linear_transposed_backward_input(Context<P>& context, In<T, P> dy, In<T, P> w, Tensor<T, P> dx) {
  Shape const &dys = dy.shape(), &ws = w.shape(), &dxs = dx.shape();
  detail::expect(dys.rows() == dxs.rows() && dys.columns() == ws.rows() && ws.columns() == dxs.columns(),
                 "linear_transposed_backward_input", "dy (M,N), w (N,K), dx (M,K)", dys, ws, dxs);
  Operation const operation{"linear_transposed_backward_input",
                            detail::multiply_adds(dys.rows(), dxs.columns(), ws.rows()),
                            detail::bytes_of(dy, w, dx)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] {
      cpu::plain_product<T>(context, {dy.data(), dys.columns()}, {w.data(), dxs.columns()}, dxs.columns(),
                            ws.rows(), dx);
    });
  else
    cuda_linear_transposed_backward_input(context, operation, dy, w, dx);
}

/// dw = x^T dy and dbias = the sum of dy over rows, x (M,K), dy (M,N), dw (K,N), dbias (N) or empty. Rows in
/// order.
template <class T, class P>
void linear_backward_weight(Context<P>& context, In<T, P> x, In<T, P> dy, Tensor<T, P> dw, Out<T, P> dbias) {
  Shape const &xs = x.shape(), &dys = dy.shape(), &dws = dw.shape();
  detail::expect(xs.rows() == dys.rows() && xs.columns() == dws.rows() && dys.columns() == dws.columns() &&
                     (!dbias || detail::is_vector(dbias.shape(), dys.columns())),
                 "linear_backward_weight", "x (M,K), dy (M,N), dw (K,N), dbias (N) or none", xs, dys, dws,
                 dbias.shape());
  Operation const operation{"linear_backward_weight",
                            detail::multiply_adds(dws.rows(), dws.columns(), xs.rows()),
                            detail::bytes_of(x, dy, dw, dbias)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] { cpu::linear_backward_weight<T>(context, x, dy, dw, dbias); });
  else
    cuda_linear_backward_weight(context, operation, x, dy, dw, dbias);
}

/// dw = dy^T x, dy (M,N), x (M,K), dw (N,K) of T, or of compute_t<T> where another gradient is
/// still to be added.
template <class T, class G, class P>
void linear_transposed_backward_weight(Context<P>& context, Tensor<T, P> dy, In<std::remove_const_t<T>, P> x,
                                       Tensor<G, P> dw) {
  using V = std::remove_const_t<T>;
  static_assert(std::is_same_v<G, V> || std::is_same_v<G, compute_t<V>>,
                "tessera: this gradient is of the operands' type or of their sum type.");
  Shape const &xs = x.shape(), &dys = dy.shape(), &dws = dw.shape();
  detail::expect(xs.rows() == dys.rows() && dys.columns() == dws.rows() && xs.columns() == dws.columns(),
                 "linear_transposed_backward_weight", "dy (M,N), x (M,K), dw (N,K)", dys, xs, dws);
  Operation const operation{"linear_transposed_backward_weight",
                            detail::multiply_adds(dws.rows(), dws.columns(), xs.rows()),
                            detail::bytes_of(dy, x, dw)};
  if constexpr (std::is_same_v<P, Cpu>)
    context.enqueue(operation, [&] {
      cpu::plain_product<V>(context, {dy.data(), dys.columns(), true}, {x.data(), xs.columns()},
                            dws.columns(), xs.rows(), dw);
    });
  else
    cuda_linear_transposed_backward_weight(context, operation, In<V, P>(dy), x, dw);
}

}  // namespace ops
}  // namespace tessera::inline v0
