// SPDX-License-Identifier: Apache-2.0
// Provides RMS normalisation over the last dimension (arXiv 1910.07467).
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/layer_norm.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes y = x * rstd * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon). x and y are (M,C), gamma (C).
/// Also writes rstd (M) in compute_t<T>, for the backward pass. Reads x from memory once and writes y once.
template <class T, class P>
void rms_norm_forward(Context<P>& context, In<T, P> x, In<T, P> gamma, double epsilon, Tensor<T, P> y,
                      Out<compute_t<T>, P> rstd) {
  std::int64_t const rows = x.shape().rows(), channels = x.shape().columns();
  detail::expect(y.shape().rows() == rows && y.shape().columns() == channels &&
                     detail::is_vector(gamma.shape(), channels) && detail::is_vector(rstd.shape(), rows),
                 "rms_norm_forward", "x (M,C), gamma (C), y (M,C), rstd (M)", x.shape(), gamma.shape(),
                 y.shape(), rstd.shape());
  Operation const operation{"rms_norm_forward", 4.0 * static_cast<double>(x.shape().elements()),
                            detail::bytes_of(x, gamma, y, rstd)};
  context.enqueue(operation, [&] {
    Tensor<T const, P> const no_beta;
    Tensor<compute_t<T>, P> const no_mean;
    backend::RmsNorm<P>::forward(context, x, gamma, no_beta, epsilon, y, no_mean, rstd);
  });
}

/// Computes dx = the gradient of x, plus residual_gradient (M,C) unless it is empty. residual_gradient may be
/// the same tensor as dx, and dx may be the same tensor as dy. `partials` (1, layer_norm_partial_rows(M), C)
/// in compute_t<T> receives sums over blocks of rows, from which rms_norm_backward_weight computes dgamma. An
/// empty dx or partials is not computed.
template <class T, class P>
void rms_norm_backward_input(Context<P>& context, In<T, P> dy, In<T, P> x, In<T, P> gamma,
                             In<compute_t<T>, P> rstd, In<T, P> residual_gradient, Tensor<T, P> dx,
                             Out<compute_t<T>, P> partials) {
  if (!dx && !partials) return;
  std::int64_t const rows = x.shape().rows(), channels = x.shape().columns();
  detail::expect(dy.shape().rows() == rows && dy.shape().columns() == channels &&
                     (!dx || (dx.shape().rows() == rows && dx.shape().columns() == channels)) &&
                     detail::is_vector(gamma.shape(), channels) && detail::is_vector(rstd.shape(), rows) &&
                     (!residual_gradient || residual_gradient.shape().elements() == rows * channels) &&
                     (!partials || partials.shape().elements() == layer_norm_partial_rows(rows) * channels),
                 "rms_norm_backward_input",
                 "dy, x, dx and any residual gradient (M,C), rstd (M), gamma (C), partials "
                 "(1,layer_norm_partial_rows(M),C)",
                 dy.shape(), x.shape(), dx.shape(), residual_gradient.shape(), rstd.shape(), gamma.shape(),
                 partials.shape());
  Operation const operation{"rms_norm_backward_input", 9.0 * static_cast<double>(x.shape().elements()),
                            detail::bytes_of(dy, x, gamma, rstd, residual_gradient, dx)};
  context.enqueue(operation, [&] {
    Tensor<compute_t<T> const, P> const no_mean;
    backend::RmsNorm<P>::backward_input(context, dy, x, gamma, no_mean, rstd, residual_gradient, dx,
                                        partials);
  });
}

/// Computes dgamma (C): adds the partial sums that rms_norm_backward_input has stored, in order. `rows` is
/// the M of that call. An empty dgamma is not computed.
template <class T, class P>
void rms_norm_backward_weight(Context<P>& context, In<compute_t<T>, P> partials, std::int64_t rows,
                              Tensor<T, P> dgamma) {
  if (!dgamma) return;
  std::int64_t const channels = partials.shape().columns(), count = layer_norm_partial_rows(rows);
  detail::expect(
      detail::is_vector(dgamma.shape(), channels) && partials.shape().elements() == count * channels,
      "rms_norm_backward_weight", "partials (1,layer_norm_partial_rows(M),C), dgamma (C)", partials.shape(),
      dgamma.shape());
  Operation const operation{"rms_norm_backward_weight", static_cast<double>(count * channels),
                            detail::bytes_of(partials, dgamma)};
  context.enqueue(operation, [&] {
    backend::RmsNorm<P>::backward_weight(context, partials, rows, dgamma, Tensor<T, P>());
  });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
