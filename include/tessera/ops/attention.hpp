// SPDX-License-Identifier: Apache-2.0
// Causal multi-head attention on packed queries, keys and values, by the implementation that the recipe asks
// for (backend/math.hpp): `reference` keeps to plain arithmetic in compute_t<T>, `fused` takes tensor cores
// where there are some. On the CPU both are one kernel, the oracle.
#pragma once

#include "tessera/backend/cpu/attention.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera::inline v0 {
namespace ops {

namespace detail {

inline void expect_attention(char const* name, Shape const& qkv, int heads, Shape const& out,
                             Shape const& logsumexp) {
  bool const fits = out.dims() == 3 && heads > 0 && out[2] % heads == 0 && qkv.rows() == out[0] * out[1] &&
                    qkv.columns() == 3 * out[2] && logsumexp.elements() == out[0] * heads * out[1];
  expect(fits, name, "qkv (B,T,3C), out (B,T,C) with C a multiple of heads, logsumexp (B,heads,T)", qkv, out,
         logsumexp);
  if (out[2] / heads > 32768)
    throw Error(ErrorKind::unsupported, std::string(name) + ": a head of " + std::to_string(out[2] / heads) +
                                            " channels; the largest is 32768: use more heads");
}

/// What runs for the attention that a recipe asks for.
inline AttentionKind attention_to_run(AttentionKind asked) {
  if (asked == AttentionKind::cudnn)
    throw Error(ErrorKind::unsupported,
                "attention cudnn is not part of this build; use auto, fused or reference");
  return asked == AttentionKind::automatic ? AttentionKind::fused : asked;
}

/// Half of the full square's products: the masked half is not computed.
inline double attention_flops(Shape const& out, int products) {
  return static_cast<double>(products) * static_cast<double>(out[0]) * static_cast<double>(out[1]) *
         static_cast<double>(out[1] + 1) * static_cast<double>(out[2]);
}

}  // namespace detail

/// out = softmax(q k^T / sqrt(D), causal) v for each head. qkv (B,T,3C) holds q, k, v one after another, each
/// C = heads*D wide; out (B,T,C); logsumexp (B,heads,T) in compute_t<T> is what the backward pass needs of
/// the softmax. No (T,T) buffer.
template <class T, class P>
void attention_forward(Context<P>& context, In<T, P> qkv, int heads, Tensor<T, P> out,
                       Out<compute_t<T>, P> logsumexp) {
  detail::expect_attention("attention_forward", qkv.shape(), heads, out.shape(), logsumexp.shape());
  Operation const operation{"attention_forward", detail::attention_flops(out.shape(), 2),
                            detail::bytes_of(qkv, out, logsumexp)};
  AttentionKind const kind = detail::attention_to_run(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::forward(context, kind, qkv, heads, out, logsumexp);
    context.ran(kind);
  });
}

/// dqkv (B,T,3C) from dout (B,T,C) and what the forward pass read and wrote. Probabilities are recomputed.
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout, In<T, P> qkv, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, Tensor<T, P> dqkv) {
  detail::expect_attention("attention_backward", qkv.shape(), heads, out.shape(), logsumexp.shape());
  detail::expect(
      dout.shape().elements() == out.shape().elements() && dqkv.shape().elements() == qkv.shape().elements(),
      "attention_backward", "dout like out (B,T,C) and dqkv like qkv (B,T,3C)", dout.shape(), out.shape(),
      dqkv.shape(), qkv.shape());
  Operation const operation{"attention_backward", detail::attention_flops(out.shape(), 5),
                            detail::bytes_of(dout, qkv, out, logsumexp, dqkv)};
  AttentionKind const kind = detail::attention_to_run(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::backward(context, kind, dout, qkv, out, logsumexp, heads, dqkv);
  });
}

}  // namespace ops
}  // namespace tessera::inline v0
