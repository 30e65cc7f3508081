// SPDX-License-Identifier: Apache-2.0
// Products with the epilogues of a transformer's linear layers. The contracts are in ops/linear.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/activation.hpp"
#include "tessera/backend/cpu/gemm.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera::inline v0 {
namespace cpu {

/// An epilogue that maps each packet of results: function(index, value, whole, count) returns what goes to
/// `to`, where index is the element's place in the (m, n) result and `column` its column.
template <class S, class T, class F>
auto map_into(T* to, std::int64_t n, F const& function) {
  return [to, n, function](std::int64_t i, std::int64_t j, S const* values, std::int64_t count) {
    for_packets<S>(0, count, [&](std::int64_t offset, auto whole, std::int64_t some) {
      std::int64_t const column = j + offset;
      std::int64_t const index = i * n + column;
      put(to + index, function(index, column, load<S>(values + offset), whole, some), whole, some);
    });
  };
}

/// Stores the result as it is.
template <class S, class T>
auto store_into(T* to, std::int64_t n) {
  if constexpr (std::is_same_v<S, T>)
    return InPlace<S>{to, n};
  else
    return map_into<S>(to, n,
                       [](std::int64_t, std::int64_t, Packet<S> value, auto, std::int64_t) { return value; });
}

template <class S, class T, class Whole>
EIGEN_STRONG_INLINE Packet<S> add_bias(Packet<S> value, T const* bias, std::int64_t column, Whole whole,
                                       std::int64_t count) {
  return bias ? value + get<S>(bias + column, whole, count) : value;
}

template <class T>
void linear_forward(Context<Cpu>& context, ConstTensor<T> x, ConstTensor<T> w, ConstTensor<T> bias,
                    Tensor<T> y) {
  using S = compute_t<T>;
  std::int64_t const depth = x.shape().columns(), n = y.shape().columns();
  T const* const b = bias.data();
  product<S>(context, Matrix<T>{x.data(), depth}, Matrix<T>{w.data(), n}, y.shape().rows(), n, depth,
             map_into<S>(y.data(), n,
                         [b](std::int64_t, std::int64_t column, Packet<S> value, auto whole,
                             std::int64_t count) { return add_bias(value, b, column, whole, count); }));
}

/// The activation is computed from `pre` as stored, so that gelu_forward repeats it bit for bit.
template <class T>
void linear_gelu_forward(Context<Cpu>& context, ConstTensor<T> x, ConstTensor<T> w, ConstTensor<T> bias,
                         Tensor<T> pre, Tensor<T> y) {
  using S = compute_t<T>;
  std::int64_t const depth = x.shape().columns(), n = y.shape().columns();
  T const* const b = bias.data();
  T* const before = pre.data();
  product<S>(context, Matrix<T>{x.data(), depth}, Matrix<T>{w.data(), n}, y.shape().rows(), n, depth,
             map_into<S>(y.data(), n,
                         [b, before](std::int64_t index, std::int64_t column, Packet<S> value, auto whole,
                                     std::int64_t count) {
                           put(before + index, add_bias(value, b, column, whole, count), whole, count);
                           return gelu(get<S>(static_cast<T const*>(before) + index, whole, count));
                         }));
}

template <class T>
void linear_residual_forward(Context<Cpu>& context, ConstTensor<T> x, ConstTensor<T> w, ConstTensor<T> bias,
                             ConstTensor<T> residual, Tensor<T> y) {
  using S = compute_t<T>;
  std::int64_t const depth = x.shape().columns(), n = y.shape().columns();
  T const* const b = bias.data();
  T const* const base = residual.data();
  product<S>(context, Matrix<T>{x.data(), depth}, Matrix<T>{w.data(), n}, y.shape().rows(), n, depth,
             map_into<S>(y.data(), n,
                         [b, base](std::int64_t index, std::int64_t column, Packet<S> value, auto whole,
                                   std::int64_t count) {
                           return add_bias(value, b, column, whole, count) +
                                  get<S>(base + index, whole, count);
                         }));
}

/// y (m, n) = a (m, depth) op(b): what the plain products share.
template <class T, class Y>
void plain_product(Context<Cpu>& context, Matrix<T> a, Matrix<T> b, std::int64_t n, std::int64_t depth,
                   Tensor<Y> y) {
  using S = compute_t<T>;
  product<S>(context, a, b, y.shape().rows(), n, depth, store_into<S>(y.data(), y.shape().columns()));
}

template <class T>
void linear_gelu_backward_input(Context<Cpu>& context, ConstTensor<T> dy, ConstTensor<T> w,
                                ConstTensor<T> pre, Tensor<T> dpre) {
  using S = compute_t<T>;
  std::int64_t const depth = dy.shape().columns(), n = dpre.shape().columns();
  T const* const before = pre.data();
  product<S>(context, Matrix<T>{dy.data(), depth}, Matrix<T>{w.data(), depth, true}, dpre.shape().rows(), n,
             depth,
             map_into<S>(
                 dpre.data(), n,
                 [before](std::int64_t index, std::int64_t, Packet<S> value, auto whole, std::int64_t count) {
                   return value * gelu_derivative(get<S>(before + index, whole, count));
                 }));
}

template <class T>
void linear_backward_weight(Context<Cpu>& context, ConstTensor<T> x, ConstTensor<T> dy, Tensor<T> dw,
                            Tensor<T> dbias) {
  using S = compute_t<T>;
  std::int64_t const rows = x.shape().rows(), m = x.shape().columns(), n = dy.shape().columns();
  Matrix<T> const left{x.data(), m, true}, right{dy.data(), n};
  auto const store_weight = store_into<S>(dw.data(), n);
  if (!dbias) return product<S>(context, left, right, m, n, rows, store_weight);
  T* const sums_to = dbias.data();
  product<S>(context, left, right, m, n, rows, store_weight,
             [sums_to](std::int64_t j, S const* sums, std::int64_t cols) {
               for_packets<S>(0, cols, [&](std::int64_t offset, auto whole, std::int64_t count) {
                 put(sums_to + j + offset, get<S>(sums + offset, whole, count), whole, count);
               });
             });
}

}  // namespace cpu
}  // namespace tessera::inline v0
