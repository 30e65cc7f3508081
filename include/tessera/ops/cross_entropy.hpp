// SPDX-License-Identifier: Apache-2.0
// Provides the cross-entropy loss of a classifier together with the gradient of its logits, and the sum of
// losses.
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/cross_entropy.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Computes losses[m] = logsumexp(logits[m]) - logits[m][targets[m]], in compute_t<T>. targets and losses are
/// (M). logits is (M,P) with P >= V: the first V = vocabulary columns are words, the other columns are
/// padding. If `gradient` is true, the gradient (softmax - one hot) * *gradient_scale overwrites the logits,
/// and 0 overwrites the padding. *gradient_scale is read when the operation runs. If `gradient` is false, the
/// logits stay unchanged and gradient_scale may be null. A row with a negative target is masked: its loss and
/// its gradient are 0. Each logit is read from memory once and written at most once.
template <class T, class P>
void cross_entropy(Context<P>& context, Tensor<T, P> logits, std::int64_t vocabulary,
                   In<std::int32_t, P> targets, Out<compute_t<T>, P> losses, bool gradient,
                   compute_t<T> const* gradient_scale) {
  std::int64_t const rows = logits.shape().rows();
  detail::expect(vocabulary >= 1 && vocabulary <= logits.shape().columns() &&
                     detail::is_vector(targets.shape(), rows) && detail::is_vector(losses.shape(), rows),
                 "cross_entropy", "logits (M,P) with P >= V, targets (M), losses (M)", logits.shape(),
                 targets.shape(), losses.shape());
  Operation const operation{
      "cross_entropy", (gradient ? 6.0 : 3.0) * static_cast<double>(logits.shape().elements()),
      detail::bytes_of(logits, targets, losses) + (gradient ? detail::bytes_of(logits) : 0.0)};
  context.enqueue(operation, [&] {
    backend::CrossEntropy<P>::forward(context, logits, vocabulary, targets, losses, gradient, gradient_scale);
  });
}

/// Same as cross_entropy above, for logits (M,V) without padding columns.
template <class T, class P>
void cross_entropy(Context<P>& context, Tensor<T, P> logits, In<std::int32_t, P> targets,
                   Out<compute_t<T>, P> losses, bool gradient, compute_t<T> const* gradient_scale) {
  cross_entropy(context, logits, logits.shape().columns(), targets, losses, gradient, gradient_scale);
}

/// Computes *loss = the sum of losses (M) in order, in double, and *valid_tokens = the number of targets (M)
/// that are not negative. `loss` and `valid_tokens` point to memory of the device.
template <class S, class P>
void sum_losses(Context<P>& context, Tensor<S, P> losses, In<std::int32_t, P> targets, double* loss,
                std::int64_t* valid_tokens) {
  detail::expect(losses.shape().elements() == targets.shape().elements(), "sum_losses",
                 "losses (M), targets (M)", losses.shape(), targets.shape());
  Operation const operation{"sum_losses", static_cast<double>(losses.shape().elements()),
                            detail::bytes_of(losses, targets)};
  context.enqueue(operation, [&] {
    backend::CrossEntropy<P>::sum_losses(context, In<std::remove_const_t<S>, P>(losses), targets, loss,
                                         valid_tokens);
  });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
