// SPDX-License-Identifier: Apache-2.0
// Causal multi-head attention on queries, keys and values anywhere in rows, by the implementation that the
// recipe asks for (backend/math.hpp): `reference` keeps to plain arithmetic in compute_t<T>, `fused` takes
// tensor cores where there are some; on the CPU both are one kernel, the oracle. `cudnn` is cuDNN's, on GPUs.
#pragma once

#include "tessera/backend/cpu/attention.hpp"
#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

namespace detail {

/// Throws for heads that no form can run.
inline void expect_heads(char const* name, AttentionSizes const& sizes, std::int64_t key_channels) {
  if (sizes.head > 32768)
    throw_error(ErrorKind::unsupported,
                {name, ": a head of ", sizes.head, " channels; the largest is 32768: use more heads"});
  if (sizes.group < 1 || sizes.heads % sizes.group != 0 || sizes.key_heads() * sizes.head != key_channels)
    throw_error(ErrorKind::usage,
                {name, ": keys of ", key_channels, " channels for ", sizes.heads, " heads of ", sizes.head,
                 "; the heads of keys are as wide, and their number divides that of the queries' heads"});
}

/// The sizes that the operands have; throws where they do not fit.
template <class T, class P>
AttentionSizes expect_attention(char const* name, HeadColumns<T, P> const& x, int heads, Shape const& out,
                                Shape const& logsumexp, std::int64_t first_query) {
  bool const whole = out.dims() == 3 && heads > 0 && out[0] > 0 && out[2] % heads == 0 && out[2] > 0;
  AttentionSizes sizes;
  if (whole) {
    std::int64_t const head = out[2] / heads, key_heads = x.k.columns / head;
    sizes = {out[0], out[1], x.k.rows / out[0], first_query, heads, key_heads > 0 ? heads / key_heads : 0,
             head};
  }
  expect(whole && x.q.rows == out[0] * out[1] && x.q.columns == out[2] && x.v.rows == x.k.rows &&
             x.k.rows == sizes.samples * sizes.keys && first_query >= 0 &&
             first_query + sizes.queries <= sizes.keys && x.k.columns == x.v.columns &&
             x.k.stride == x.v.stride && logsumexp.elements() == out[0] * heads * out[1],
         name,
         "q (B,T,C), k and v of one layout with a row for each position up to the last query's, or qkv "
         "(B,T,3C), out (B,T,C) with C a multiple of heads, logsumexp (B,heads,T)",
         x.q.shape(), x.k.shape(), x.v.shape(), out, logsumexp);
  expect_heads(name, sizes, x.k.columns);
  return sizes;
}

/// What runs in a place for the attention that a recipe asks for.
template <class P>
AttentionKind attention_to_run(AttentionKind asked) {
  switch (asked) {
    case AttentionKind::automatic:
      return AttentionKind::fused;
    case AttentionKind::reference:
    case AttentionKind::fused:
      return asked;
    case AttentionKind::cudnn:
      if (std::is_same_v<P, Cuda> && cuda::has_cudnn_attention()) return asked;
      throw Error(ErrorKind::unsupported,
                  "attention cudnn needs a GPU and a program that links tessera::cudnn; use auto, fused or "
                  "reference");
  }
  throw_error(ErrorKind::usage, {"attention ", static_cast<int>(asked), " does not exist"});
}

/// The products of what queries see: of a whole sequence half of the full square's.
inline double attention_flops(AttentionSizes const& sizes, int products) {
  return static_cast<double>(products) * static_cast<double>(sizes.samples * sizes.queries) *
         static_cast<double>(2 * sizes.first + sizes.queries + 1) *
         static_cast<double>(sizes.heads * sizes.head);
}

}  // namespace detail

/// out = softmax(q k^T / sqrt(D), causal) v for each head. x is q, C = heads*D wide, and k and v, key_heads*D
/// wide: heads / key_heads neighbours share a head of keys. out (B,T,C); logsumexp (B,heads,T) in
/// compute_t<T> is what the backward pass needs of the softmax. No (T,T) buffer. The queries of a sample are
/// at positions first_query + t, its keys at 0 and up, first_query + T of them or more.
template <class T, class P>
void attention_forward(Context<P>& context, std::type_identity_t<HeadColumns<T const, P>> const& x, int heads,
                       Tensor<T, P> out, Out<compute_t<T>, P> logsumexp, std::int64_t first_query = 0) {
  AttentionSizes const sizes =
      detail::expect_attention("attention_forward", x, heads, out.shape(), logsumexp.shape(), first_query);
  Operation const operation{"attention_forward", detail::attention_flops(sizes, 2),
                            detail::bytes_of(x.q, x.k, x.v, out, logsumexp)};
  AttentionKind const kind = detail::attention_to_run<P>(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::forward(context, kind, x, sizes, out, logsumexp);
    context.ran(kind);
  });
}

/// The same of one tensor qkv (B,T,3C) that holds q, k and v one after another.
template <class T, class P>
void attention_forward(Context<P>& context, In<T, P> qkv, int heads, Tensor<T, P> out,
                       Out<compute_t<T>, P> logsumexp) {
  attention_forward(context, HeadColumns<T const, P>(qkv), heads, out, logsumexp);
}

/// dx, the gradients of q, k and v, from dout (B,T,C) and what the forward pass read and wrote; those of a
/// head of keys are summed over the heads that share it, in order. Probabilities are recomputed. `partials`
/// (attention_partial_rows(B,T),3C), unless empty, become the sums of dx, which is then one tensor (B,T,3C),
/// over blocks of rows as stored, for the bias of the layer whose dy it is; a place that sums them with that
/// layer's weight gradient leaves them as they are.
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout,
                        std::type_identity_t<HeadColumns<T const, P>> const& x, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, HeadColumns<T, P> const& dx,
                        std::int64_t first_query = 0, Out<compute_t<T>, P> partials = {}) {
  AttentionSizes const sizes =
      detail::expect_attention("attention_backward", x, heads, out.shape(), logsumexp.shape(), first_query);
  detail::expect_attention("attention_backward", HeadColumns<T const, P>(dx), heads, out.shape(),
                           logsumexp.shape(), first_query);
  std::int64_t const channels = out.shape().columns();
  auto const one_tensor = [&] {
    return dx.q.stride == 3 * channels && dx.k.stride == dx.q.stride && dx.k.data == dx.q.data + channels &&
           dx.v.data == dx.k.data + channels;
  };
  detail::expect(dout.shape().rows() == out.shape().rows() && dout.shape().columns() == channels &&
                     dx.k.shape() == x.k.shape() &&
                     (!partials || (one_tensor() && sizes.group == 1 && sizes.keys == sizes.queries &&
                                    partials.shape().elements() ==
                                        attention_partial_rows(sizes.samples, sizes.queries) * 3 * channels)),
                 "attention_backward",
                 "dout like out (B,T,C), dk like k, partials (attention_partial_rows(B,T),3C) of dx in one "
                 "tensor (B,T,3C)",
                 dout.shape(), out.shape(), x.k.shape(), dx.k.shape(), partials.shape());
  Operation const operation{"attention_backward", detail::attention_flops(sizes, 5),
                            detail::bytes_of(dout, x.q, x.k, x.v, out, logsumexp, dx.q, dx.k, dx.v)};
  AttentionKind const kind = detail::attention_to_run<P>(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::backward(context, kind, dout, x, out, logsumexp, sizes, dx, partials);
  });
}

/// The same into one tensor dqkv (B,T,3C).
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout, In<T, P> qkv, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, Tensor<T, P> dqkv,
                        Out<compute_t<T>, P> partials = {}) {
  attention_backward(context, dout, HeadColumns<T const, P>(qkv), out, logsumexp, heads,
                     HeadColumns<T, P>(dqkv), 0, partials);
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
