// SPDX-License-Identifier: Apache-2.0
// Causal multi-head attention on queries, keys and values anywhere in rows, by the implementation that the
// recipe asks for (backend/math.hpp): `reference` keeps to plain arithmetic in compute_t<T>, `fused` takes
// tensor cores where there are some. On the CPU both are one kernel, the oracle.
#pragma once

#include "tessera/backend/cpu/attention.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

namespace detail {

/// What of the heads no form can run.
inline void expect_heads(char const* name, int heads, std::int64_t head, std::int64_t keys,
                         std::int64_t queries) {
  if (head > 32768)
    throw Error(ErrorKind::unsupported, std::string(name) + ": a head of " + std::to_string(head) +
                                            " channels; the largest is 32768: use more heads");
  if (keys != queries)
    throw Error(ErrorKind::unsupported,
                std::string(name) + ": keys of " + std::to_string(keys) + " channels for " +
                    std::to_string(heads) + " heads of " + std::to_string(head) +
                    "; fewer key-value heads than heads are not part of this build: give each head its own");
}

template <class T, class P>
void expect_attention(char const* name, HeadColumns<T, P> const& x, int heads, Shape const& out,
                      Shape const& logsumexp) {
  bool const fits = out.dims() == 3 && heads > 0 && out[2] % heads == 0 && x.q.rows == out[0] * out[1] &&
                    x.q.columns == out[2] && x.k.rows == x.q.rows && x.v.rows == x.q.rows &&
                    x.k.columns == x.v.columns && x.k.stride == x.v.stride &&
                    logsumexp.elements() == out[0] * heads * out[1];
  expect(
      fits, name,
      "q (B,T,C), k and v of one layout, or qkv (B,T,3C), out (B,T,C) with C a multiple of heads, logsumexp "
      "(B,heads,T)",
      x.q.shape(), x.k.shape(), x.v.shape(), out, logsumexp);
  expect_heads(name, heads, out[2] / heads, x.k.columns, x.q.columns);
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

/// out = softmax(q k^T / sqrt(D), causal) v for each head. x is q, k and v, each C = heads*D wide; out
/// (B,T,C); logsumexp (B,heads,T) in compute_t<T> is what the backward pass needs of the softmax. No (T,T)
/// buffer.
template <class T, class P>
void attention_forward(Context<P>& context, std::type_identity_t<HeadColumns<T const, P>> const& x, int heads,
                       Tensor<T, P> out, Out<compute_t<T>, P> logsumexp) {
  detail::expect_attention("attention_forward", x, heads, out.shape(), logsumexp.shape());
  Operation const operation{"attention_forward", detail::attention_flops(out.shape(), 2),
                            detail::bytes_of(x.q, x.k, x.v, out, logsumexp)};
  AttentionKind const kind = detail::attention_to_run(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::forward(context, kind, x, heads, out, logsumexp);
    context.ran(kind);
  });
}

/// The same of one tensor qkv (B,T,3C) that holds q, k and v one after another.
template <class T, class P>
void attention_forward(Context<P>& context, In<T, P> qkv, int heads, Tensor<T, P> out,
                       Out<compute_t<T>, P> logsumexp) {
  attention_forward(context, HeadColumns<T const, P>(qkv), heads, out, logsumexp);
}

/// dx, the gradients of q, k and v, from dout (B,T,C) and what the forward pass read and wrote. Probabilities
/// are recomputed.
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout,
                        std::type_identity_t<HeadColumns<T const, P>> const& x, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, HeadColumns<T, P> const& dx) {
  detail::expect_attention("attention_backward", x, heads, out.shape(), logsumexp.shape());
  detail::expect_attention("attention_backward", dx, heads, out.shape(), logsumexp.shape());
  detail::expect(dout.shape().rows() == out.shape().rows() && dout.shape().columns() == out.shape().columns(),
                 "attention_backward", "dout like out (B,T,C)", dout.shape(), out.shape());
  Operation const operation{"attention_backward", detail::attention_flops(out.shape(), 5),
                            detail::bytes_of(dout, x.q, x.k, x.v, out, logsumexp, dx.q, dx.k, dx.v)};
  AttentionKind const kind = detail::attention_to_run(context.math().attention);
  context.enqueue(
      operation, [&] { backend::Attention<P>::backward(context, kind, dout, x, out, logsumexp, heads, dx); });
}

/// The same into one tensor dqkv (B,T,3C).
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout, In<T, P> qkv, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, Tensor<T, P> dqkv) {
  attention_backward(context, dout, HeadColumns<T const, P>(qkv), out, logsumexp, heads,
                     HeadColumns<T, P>(dqkv));
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
