// SPDX-License-Identifier: Apache-2.0
// Implements linear layers on the CPU: one matrix product, with an epilogue that processes each tile of the
// result while it is in the cache. ops/linear.hpp documents the operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/activation.hpp"
#include "tessera/backend/cpu/gemm.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

/// Returns an epilogue. For each packet of results it calls function(index, column, value, full, count) and
/// stores the returned packet in `to`. `index` is the position of the packet's first element in the (m, n)
/// result, and `column` is the column of this element. `full` says whether the packet is complete; `count` is
/// the number of its valid elements.
template <class S, class T, class F>
auto map_into(T* to, std::int64_t n, F const& function) {
  return [to, n, function](std::int64_t i, std::int64_t j, S const* values, std::int64_t count) {
    for_packets<S>(0, count, [&](std::int64_t offset, auto full, std::int64_t some) {
      std::int64_t const column = j + offset;
      std::int64_t const index = i * n + column;
      put(to + index, function(index, column, load<S>(values + offset), full, some), full, some);
    });
  };
}

/// Returns an epilogue that stores the (m, n) result in `to`, rounded to T.
template <class S, class T>
auto store_into(T* to, std::int64_t n) {
  if constexpr (std::is_same_v<S, T>)
    return InPlace<S>{to, n};
  else
    return map_into<S>(to, n,
                       [](std::int64_t, std::int64_t, Packet<S> value, auto, std::int64_t) { return value; });
}

/// A function for map_into: returns the product times a scale, plus a bias and a residual (`base`) if they
/// are given. It is a named type, so that forward and backward products share one template instance.
template <class S, class T>
struct PlusBiasAndResidual {
  T const *bias, *base;
  Packet<S> scale;

  template <class Full>
  EIGEN_STRONG_INLINE Packet<S> operator()(std::int64_t index, std::int64_t column, Packet<S> value,
                                           Full full, std::int64_t count) const {
    value = value * scale;
    if (bias) value = value + get<S>(bias + column, full, count);
    return base ? value + get<S>(base + index, full, count) : value;
  }
};

/// Computes op(a) op(b) in compute_t<T>. op(a) is the transpose of `a` if a_transposed is true, and op(b) is
/// the transpose of `b` if b_transposed is true. `epilogue` stores the result, which has the shape of y. If
/// given, the callback `sums` receives the sums of the columns of op(b) (see `product`).
template <class T, class Y, class Epilogue, class Sums = NoSums>
void plain_product(Context<Cpu>& context, ConstTensor<T> const& a, bool a_transposed, ConstTensor<T> const& b,
                   bool b_transposed, Tensor<Y> const& y, Epilogue const& epilogue, Sums const& sums = {}) {
  product<compute_t<T>>(context, Matrix<T>{a.data(), a.shape().columns(), a_transposed},
                        Matrix<T>{b.data(), b.shape().columns(), b_transposed}, y.shape().rows(),
                        y.shape().columns(), a_transposed ? a.shape().rows() : a.shape().columns(), epilogue,
                        sums);
}

/// Writes the sum of the rows of x (M,N) to `sums` (N). Adds the rows in order.
template <class T>
void sum_rows(Context<Cpu>& context, ConstTensor<T> const& x, Tensor<T> const& sums) {
  using S = compute_t<T>;
  constexpr std::int64_t width = Packet<S>::size;
  std::int64_t const rows = x.shape().rows(), n = x.shape().columns();
  context.pool().parallel_for((n + width - 1) / width, [&](std::int64_t stripe, int) {
    std::int64_t const begin = stripe * width;
    for_packets<S>(begin, std::min(begin + width, n), [&](std::int64_t i, auto full, std::int64_t count) {
      Packet<S> sum(S(0));
      for (std::int64_t row = 0; row < rows; ++row) sum = sum + get<S>(x.data() + row * n + i, full, count);
      put(sums.data() + i, sum, full, count);
    });
  });
}

struct Linear {
  /// Implements ops::linear. The activation reads `pre` after it is rounded to T, so that ops::activate can
  /// compute y again with the same bits.
  template <class T>
  static void forward(Context<Cpu>& context, ConstTensor<T> const& x, ops::Operand<T, Cpu> const& w,
                      Tensor<T> const& y, ops::LinearOptions<T, Cpu> const& with) {
    using S = compute_t<T>;
    std::int64_t const n = y.shape().columns();
    auto const run = [&](auto const& epilogue) {
      plain_product(context, x, false, w.values, with.transposed, y, epilogue);
    };
    PlusBiasAndResidual<S, T> const add{with.bias.data(), with.residual.data(),
                                        Packet<S>(static_cast<S>(with.scale))};
    if (with.activation != Activation::none)
      with_activation(with.activation, [&](auto form) {
        run(map_into<S>(y.data(), n,
                        [add, form, pre = with.pre.data()](std::int64_t index, std::int64_t column,
                                                           Packet<S> value, auto full, std::int64_t count) {
                          put(pre + index, add(index, column, value, full, count), full, count);
                          return form.value(get<S>(static_cast<T const*>(pre) + index, full, count));
                        }));
      });
    else if (with.bias || with.residual || with.scale != 1.0)
      run(map_into<S>(y.data(), n, add));
    else
      run(store_into<S>(y.data(), n));
  }

  template <class T>
  static void backward_input(Context<Cpu>& context, ConstTensor<T> const& dy, ops::Operand<T, Cpu> const& w,
                             Tensor<T> const& dx, ops::LinearInputOptions<T, Cpu> const& with) {
    using S = compute_t<T>;
    std::int64_t const n = dx.shape().columns();
    auto const run = [&](auto const& epilogue) {
      plain_product(context, dy, false, w.values, !with.transposed, dx, epilogue);
    };
    PlusBiasAndResidual<S, T> const add{nullptr, with.residual.data(), Packet<S>(static_cast<S>(with.scale))};
    if (with.activation == Activation::none && !with.residual && with.scale == 1.0)
      return run(store_into<S>(dx.data(), n));
    if (with.activation == Activation::none) return run(map_into<S>(dx.data(), n, add));
    with_activation(with.activation, [&](auto form) {
      run(map_into<S>(dx.data(), n,
                      [add, form, pre = with.pre.data()](std::int64_t index, std::int64_t column,
                                                         Packet<S> value, auto full, std::int64_t count) {
                        value = add(index, column, value, full, count);
                        return value * form.derivative(get<S>(pre + index, full, count));
                      }));
    });
  }

  template <class T, class G>
  static void backward_weight(Context<Cpu>& context, ConstTensor<T> const& x, ConstTensor<T> const& dy,
                              Tensor<G> const& dw, ops::LinearWeightOptions<T, Cpu> const& with) {
    using S = compute_t<T>;
    if (!dw) return sum_rows(context, dy, with.dbias);
    auto const store_weight = store_into<S>(dw.data(), dw.shape().columns());
    if (with.transposed) {
      plain_product(context, dy, true, x, false, dw, store_weight);
      if (with.dbias) sum_rows(context, dy, with.dbias);
    } else if (with.dbias) {
      plain_product(context, x, true, dy, false, dw, store_weight,
                    [to = with.dbias.data()](std::int64_t j, S const* sums, std::int64_t cols) {
                      for_packets<S>(0, cols, [&](std::int64_t offset, auto full, std::int64_t count) {
                        put(to + j + offset, get<S>(sums + offset, full, count), full, count);
                      });
                    });
    } else {
      plain_product(context, x, true, dy, false, dw, store_weight);
    }
  }
};

}  // namespace cpu

template <>
struct backend::Linear<Cpu> : cpu::Linear {};

}  // namespace v0
}  // namespace tessera
