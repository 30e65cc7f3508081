// SPDX-License-Identifier: Apache-2.0
// Provides layer normalisation over the last dimension.
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/layer_norm.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes y = (x - mean) * rstd * gamma + beta with rstd = 1 / sqrt(variance + epsilon). x and y are (M,C),
/// gamma and beta (C). Also writes mean and rstd (M) in compute_t<T>, for the backward pass. Reads x from
/// memory once and writes y once.
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

/// Computes dx = the gradient of x, plus residual_gradient (M,C) unless it is empty. residual_gradient may be
/// the same tensor as dx, and dx may be the same tensor as dy. `partials` (2, layer_norm_partial_rows(M), C)
/// in compute_t<T> receives sums over blocks of rows, from which layer_norm_backward_weight computes dgamma
/// and dbeta. The two tensors of `sums` receive the sums of residual_gradient and of dx over blocks of rows.
/// An empty dx, partials or tensor of `sums` is not computed. If residual_gradient or dx is empty, its tensor
/// in `sums` must be empty.
template <class T, class P>
void layer_norm_backward_input(Context<P>& context, In<T, P> dy, In<T, P> x, In<T, P> gamma,
                               In<compute_t<T>, P> mean, In<compute_t<T>, P> rstd, In<T, P> residual_gradient,
                               Tensor<T, P> dx, Out<compute_t<T>, P> partials,
                               std::type_identity_t<NormSums<compute_t<T>, P>> const& sums = {}) {
  if (!dx && !partials && !sums.residual_gradient) return;
  std::int64_t const rows = x.shape().rows(), channels = x.shape().columns();
  auto const fits = [&](auto const& sum, auto const& of) {
    return !sum || (of && sum.shape().elements() == layer_norm_partial_rows(rows) * channels);
  };
  detail::expect(
      dy.shape().rows() == rows && dy.shape().columns() == channels &&
          (!dx || (dx.shape().rows() == rows && dx.shape().columns() == channels)) &&
          detail::is_vector(gamma.shape(), channels) && detail::is_vector(mean.shape(), rows) &&
          detail::is_vector(rstd.shape(), rows) &&
          (!residual_gradient || residual_gradient.shape().elements() == rows * channels) &&
          (!partials || partials.shape().elements() == 2 * layer_norm_partial_rows(rows) * channels) &&
          fits(sums.residual_gradient, residual_gradient) && fits(sums.dx, dx),
      "layer_norm_backward_input",
      "dy, x, dx and any residual gradient (M,C), mean and rstd (M), gamma (C), partials "
      "(2,layer_norm_partial_rows(M),C), any sums of residual gradient and dx (layer_norm_partial_rows(M),C)",
      dy.shape(), x.shape(), dx.shape(), residual_gradient.shape(), mean.shape(), rstd.shape(), gamma.shape(),
      partials.shape(), sums.residual_gradient.shape(), sums.dx.shape());
  Operation const operation{"layer_norm_backward_input", 14.0 * static_cast<double>(x.shape().elements()),
                            detail::bytes_of(dy, x, gamma, mean, rstd, residual_gradient, dx)};
  context.enqueue(operation, [&] {
    backend::LayerNorm<P>::backward_input(context, dy, x, gamma, mean, rstd, residual_gradient, dx, partials,
                                          sums);
  });
}

/// Computes dgamma (C) and dbeta (C): adds the partial sums that layer_norm_backward_input has stored, in
/// order. `rows` is the M of that call. An empty dgamma or dbeta is not computed.
template <class T, class P>
void layer_norm_backward_weight(Context<P>& context, In<compute_t<T>, P> partials, std::int64_t rows,
                                Tensor<T, P> dgamma, Out<T, P> dbeta) {
  if (!dgamma && !dbeta) return;
  std::int64_t const channels = partials.shape().columns(), count = layer_norm_partial_rows(rows);
  detail::expect((!dgamma || detail::is_vector(dgamma.shape(), channels)) &&
                     (!dbeta || detail::is_vector(dbeta.shape(), channels)) &&
                     partials.shape().elements() == 2 * count * channels,
                 "layer_norm_backward_weight",
                 "partials (2,layer_norm_partial_rows(M),C), dgamma and dbeta (C)", partials.shape(),
                 dgamma.shape(), dbeta.shape());
  Operation const operation{"layer_norm_backward_weight", 2.0 * static_cast<double>(count * channels),
                            detail::bytes_of(partials, dgamma, dbeta)};
  context.enqueue(operation,
                  [&] { backend::LayerNorm<P>::backward_weight(context, partials, rows, dgamma, dbeta); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
