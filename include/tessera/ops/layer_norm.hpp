// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the last dim.
#pragma once

#include "tessera/backend/cpu/layer_norm.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera::inline v0 {
namespace ops {

/// y = (x - mean) * rstd * gamma + beta with rstd = 1 / sqrt(variance + epsilon). x and y (M,C), gamma and
/// beta (C), mean and rstd (M) in compute_t<T>, kept for the backward pass. Reads x once, writes y.
template <class T, class P>
void layer_norm_forward(Context<P>& context, In<T, P> x, In<T, P> gamma, In<T, P> beta, double epsilon,
                        Tensor<T, P> y, Out<compute_t<T>, P> mean, Out<compute_t<T>, P> rstd) {
  std::int64_t const rows = x.shape().rows(), channels = x.shape().columns();
  detail::expect(y.shape().rows() == rows && y.shape().columns() == channels &&
                     detail::is_vector(gamma.shape(), channels) &&
                     detail::is_vector(beta.shape(), channels) && detail::is_vector(mean.shape(), rows) &&
                     detail::is_vector(rstd.shape(), rows),
                 "layer_norm_forward", "x (M,C), gamma (C), beta (C), y (M,C), mean (M), rstd (M)", x.shape(),
                 gamma.shape(), beta.shape(), y.shape(), mean.shape(), rstd.shape());
  Operation const operation{"layer_norm_forward", 7.0 * static_cast<double>(x.shape().elements()),
                            detail::bytes_of(x, gamma, beta, y, mean, rstd)};
  context.enqueue(operation,
                  [&] { backend::LayerNorm<P>::forward(context, x, gamma, beta, epsilon, y, mean, rstd); });
}

/// dx = the gradient through the norm, plus residual_gradient (M,C) unless that is empty; it may be dx
/// itself, and dx may be dy. dgamma and dbeta (C) are sums over rows in a fixed block order.
template <class T, class P>
void layer_norm_backward(Context<P>& context, In<T, P> dy, In<T, P> x, In<T, P> gamma,
                         In<compute_t<T>, P> mean, In<compute_t<T>, P> rstd, In<T, P> residual_gradient,
                         Tensor<T, P> dx, Out<T, P> dgamma, Out<T, P> dbeta) {
  std::int64_t const rows = x.shape().rows(), channels = x.shape().columns();
  detail::expect(dy.shape().rows() == rows && dy.shape().columns() == channels && dx.shape().rows() == rows &&
                     dx.shape().columns() == channels && detail::is_vector(gamma.shape(), channels) &&
                     detail::is_vector(mean.shape(), rows) && detail::is_vector(rstd.shape(), rows) &&
                     (!residual_gradient || residual_gradient.shape().elements() == rows * channels) &&
                     detail::is_vector(dgamma.shape(), channels) &&
                     detail::is_vector(dbeta.shape(), channels),
                 "layer_norm_backward",
                 "dy, x, dx and any residual gradient (M,C), mean and rstd (M), gamma and its gradients (C)",
                 dy.shape(), x.shape(), dx.shape(), residual_gradient.shape(), mean.shape(), rstd.shape(),
                 gamma.shape(), dgamma.shape(), dbeta.shape());
  Operation const operation{"layer_norm_backward", 14.0 * static_cast<double>(x.shape().elements()),
                            detail::bytes_of(dy, x, gamma, mean, rstd, residual_gradient, dx, dgamma, dbeta)};
  context.enqueue(operation, [&] {
    backend::LayerNorm<P>::backward(context, dy, x, gamma, mean, rstd, residual_gradient, dx, dgamma, dbeta);
  });
}

}  // namespace ops
}  // namespace tessera::inline v0
